from __future__ import annotations

import gc
import gzip
import pickle
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headscope.errors import HeadscopeWarning, InputError
from headscope.text.corpus import Corpus, Spool, hold_documents
from headscope.text.document import Document, Unit
from headscope.text.readers.conllu import conllu_sentences
from headscope.text.readers.read import demo_corpus, read
from headscope.text.readers.reader import ReadLog
from headscope.text.readers.sentences import Sentence, assemble

TEXTS = [f"Document number {i}." for i in range(200)]


def test_a_corpus_is_read_again_and_again() -> None:
    corpus = demo_corpus()
    assert list(corpus) == list(corpus)
    assert list(pickle.loads(pickle.dumps(corpus))) == list(corpus)
    first, second = iter(corpus), iter(corpus)
    assert next(first) == next(second)


def test_the_hash_is_of_the_content(tmp_path: Path) -> None:
    corpus = demo_corpus()
    text = Path(str(corpus.name)).read_bytes()
    other = tmp_path / "elsewhere.conllu"
    other.write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))
    assert read(other).hash == corpus.hash
    other.write_bytes(text.replace(b"\tobj\t", b"\tdobj\t", 1))
    assert read(other).hash != corpus.hash
    assert read(["a", "b"]).hash != read(["b", "a"]).hash
    # The same in every process and on every machine.
    assert read(["a b."]).hash == (
        "86996d9d5afcbf745a3e513e3b3858330c74b8a5070bfda04eddf4b00e647da9"
    )


def test_a_sample_is_drawn_once_and_kept_in_order() -> None:
    corpus = read(TEXTS, sample=20, seed=1)
    drawn = [document.id for document in corpus]
    assert len(set(drawn)) == 20
    assert drawn == sorted(drawn, key=lambda name: int(name.split("-")[1]))
    assert drawn == [document.id for document in read(TEXTS, sample=20, seed=1)]
    assert drawn != [document.id for document in read(TEXTS, sample=20, seed=2)]
    assert drawn == [document.id for document in read(TEXTS).sample(20, seed=1)]
    # Which ones must never change, or yesterday's run cannot be resumed.
    assert [int(name.split("-")[1]) for name in drawn][:6] == [4, 5, 11, 14, 22, 24]
    summary = corpus.summary()
    assert (summary.documents, summary.drawn_from) == (20, 200)


def test_a_run_reads_a_sample_once() -> None:
    passes = []

    def texts() -> Iterator[str]:
        passes.append(1)
        yield from TEXTS

    corpus = read(texts, sample=20, seed=1)
    held = hold_documents(corpus)
    report = ReadLog()
    assert list(held.read(report)) == list(held)
    assert len(passes) == 1
    assert list(held) == list(corpus)  # which reads anew
    assert len(passes) == 3
    assert held.summary().drawn_from == len(TEXTS)
    assert list(pickle.loads(pickle.dumps(hold_documents(read(TEXTS, sample=3))))) == list(
        read(TEXTS, sample=3)
    )


def test_a_run_reads_a_large_source_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    passes = []

    def texts() -> Iterator[str]:
        passes.append(1)
        yield from TEXTS

    corpus = read(texts)
    held = hold_documents(corpus)
    both = zip(held, held, strict=True)  # at the same time
    assert [(one, other) for one, other in both] == [(d, d) for d in corpus]
    assert len(passes) == 2
    assert len(list(tmp_path.iterdir())) == 1
    del held, both
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr("headscope.text.corpus.MAX_BYTES", 1000)
    assert list(hold_documents(corpus)) == list(corpus)
    assert len(passes) == 5  # one that did not fit
    assert not list(tmp_path.iterdir())


def test_trees_and_mentions_come_back_from_a_temporary_file() -> None:
    documents = list(demo_corpus("document"))
    assert list(Spool(documents)) == documents


def test_what_a_held_corpus_left_out_is_told_at_every_pass(tmp_path: Path) -> None:
    file = tmp_path / "some.jsonl"
    file.write_text('{"text": "The cat sat."}\nbroken\n', encoding="utf-8")
    corpus = read(file, on_error="skip")
    held = hold_documents(corpus)
    file.unlink()
    for _ in range(2):
        report = ReadLog("skip")
        assert [document.text for document in held.read(report)] == ["The cat sat."]
        assert sum(report.counts.values()) == len(report.messages) == 1


def test_a_sample_is_fair() -> None:
    counts = Counter(
        document.id for seed in range(200) for document in read(TEXTS[:10], sample=3, seed=seed)
    )
    # 600 draws of 10 documents: 60 each, standard deviation 6.5.
    assert len(counts) == 10
    assert all(35 < count < 85 for count in counts.values())


def test_one_of_each_document() -> None:
    whole = demo_corpus("sentence")
    drawn = list(whole.sample(11, seed=3, one_per_document=True))
    assert len({document.part_of for document in drawn}) == len(drawn) == 11
    few = list(whole.sample(4, seed=3, one_per_document=True))
    assert len({document.part_of for document in few}) == len(few) == 4
    firsts = Counter(
        next(iter(whole.sample(11, seed=seed, one_per_document=True))).id for seed in range(60)
    )
    assert len(firsts) > 5  # not always the first sentence


def test_more_than_there_is() -> None:
    for count in (list, Corpus.summary, hold_documents):
        with pytest.warns(HeadscopeWarning, match="sample=9, but list has only 3") as caught:
            count(read(["a", "b", "c"], sample=9))
        assert caught[0].filename == __file__  # however deep in headscope it was noticed


def test_a_sample_of_a_sample_is_refused() -> None:
    with pytest.raises(InputError, match="already a sample of 2"):
        read(TEXTS, sample=2).sample(1)


def test_units_can_be_changed_later() -> None:
    corpus = demo_corpus("document")
    assert corpus.by("document") is corpus
    assert corpus.by("sentence").summary().documents == 88
    assert corpus.by("sentence").by("document").hash == corpus.hash


@pytest.mark.parametrize("unit", ["document", "sentence"])
def test_saving_and_reading_again(tmp_path: Path, unit: Unit) -> None:
    corpus = demo_corpus(unit)
    for name in ("demo.jsonl", "demo.jsonl.gz"):
        corpus.save(tmp_path / name)
        again = read(tmp_path / name, unit=unit)
        assert list(again) == list(corpus)
        assert again.hash == corpus.hash
    assert sorted(path.name for path in tmp_path.iterdir()) == ["demo.jsonl", "demo.jsonl.gz"]


def test_a_pass_reports_as_it_goes() -> None:
    report = ReadLog("skip")
    seen = [document.text for document in read(["a", 1, "b", 2]).read(report)]
    assert seen == ["a", "b"]
    assert report.counts == {"documents": 2}
    assert "item 1" in report.messages[0]


def test_messages_are_not_kept_without_end() -> None:
    summary = read([1] * 500, on_error="skip").summary()
    assert summary.skipped == {"documents": 500}
    assert len(summary.messages) == 20


@pytest.mark.parametrize("unit", ["sentence", "paragraph"])
def test_only_one_unit_at_a_time_is_in_memory(tmp_path: Path, unit: str) -> None:
    """Also where the file is one endless document, as UDPipe writes it."""
    text = Path(demo_corpus().name).read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if not line.startswith("# newdoc")]
    path = tmp_path / "endless.conllu"
    path.write_text("# newdoc\n" + "\n".join(lines * 3), encoding="utf-8")

    def alive() -> int:
        return sum(type(thing) in (Document, Sentence) for thing in gc.get_objects())

    before = alive()
    for number, _ in enumerate(read(path, unit=unit)):  # type: ignore[arg-type]
        if number % 40 == 39:
            assert alive() - before < 15
    assert number > 80


def test_documents_come_while_the_file_is_read() -> None:
    text = Path(demo_corpus().name).read_text(encoding="utf-8").split("\n")
    taken: list[int] = []

    def spy() -> Iterator[tuple[int, str]]:
        for number, line in enumerate(text, 1):
            taken.append(number)
            yield number, line

    report = ReadLog()
    documents = assemble(conllu_sentences(spy(), "demo", report), "demo", "document", report)
    assert next(documents).id == "demo-eddystone"
    assert len(taken) < 0.2 * len(text)


def test_a_save_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def documents() -> Iterator[str]:
        yield "One."
        raise RuntimeError("the disk is gone")

    with pytest.raises(RuntimeError):
        read(documents).save(tmp_path / "corpus.jsonl")
    assert not list(tmp_path.iterdir())


def test_small_corpora_have_a_length_and_are_indexed(tmp_path: Path) -> None:
    corpus = demo_corpus()
    documents = list(corpus)
    assert len(corpus) == 88
    assert corpus[0] == documents[0]
    assert corpus[-1] == documents[-1]
    assert corpus[3:5] == tuple(documents[3:5])
    with pytest.raises(IndexError):
        corpus[88]
    assert len(demo_corpus("document")) == 11
    assert len(read(["a", 1, "b"], on_error="skip")) == 2
    drawn = read(TEXTS, sample=20, seed=1)
    assert len(drawn) == 20
    assert drawn[0].id == "list-4"


def test_documents_that_were_indexed_are_not_pickled() -> None:
    corpus = read(TEXTS)
    before = len(pickle.dumps(corpus))
    assert corpus[7].text == TEXTS[7]
    assert len(pickle.dumps(corpus)) == before
    assert pickle.loads(pickle.dumps(corpus))[7] == corpus[7]


def test_large_corpora_have_no_length(tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    path.write_text("A line of text.\n" * 300_000, encoding="utf-8")
    packed = tmp_path / "a.txt.gz"
    packed.write_bytes(gzip.compress(b"Some text."))
    for corpus in (read(path), read(packed), read(lambda: iter(TEXTS))):
        assert corpus  # asked without reading it
        with pytest.raises(
            TypeError, match=r"has no len\(\).*Iterate .*corpus\.summary\(\)\.documents"
        ):
            len(corpus)
        with pytest.raises(TypeError, match="cannot be indexed"):
            corpus[0]
    packed_corpus = read(packed)
    assert packed_corpus.summary().documents == len(packed_corpus) == 1  # now it is known
    assert len(list(read(packed))) == 1


def test_a_notebook_shows_what_is_known() -> None:
    corpus = read(["One <b>.", 3], name="<script>alert(1)</script>", on_error="skip", sample=1)
    html = corpus._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "document as given" in html
    assert "corpus.summary()" in html
    assert "words" not in html
    corpus.summary()
    html = corpus._repr_html_()
    assert "words" in html
    assert "1 document<" in html
    assert "corpus.summary()" not in html
