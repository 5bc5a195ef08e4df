"""Documents that sentences and paragraphs belong to, and what results say about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import headscope as hs
from headscope.errors import InputError
from headscope.model.model import Model
from headscope.reporting.report import build_report
from headscope.run.merge import merge
from headscope.text.document import Document
from headscope.text.readers.read import BLOCKS
from tests.run.corpora import make_documents

WORD = "1\tWord\tword\tNOUN\tNN\t_\t0\troot\t_\t_\n\n"
SIZE = BLOCKS["sentence"]


def treebank(path: Path, n: int, *comments: Callable[[int], str]) -> Path:
    """Write n sentences of one word, with comments that depend on their number."""
    sentences = [
        "".join(comment(number) for comment in comments) + f"# sent_id = s{number}\n" + WORD
        for number in range(n)
    ]
    path.write_text("".join(sentences), encoding="utf-8")
    return path


def parents(corpus: hs.Corpus) -> list[str | None]:
    return [document.part_of for document in corpus]


def said(corpus: hs.Corpus) -> str:
    from headscope.run.options import Settings
    from headscope.run.plan import survey

    return survey(corpus, Settings()).independence


def test_a_treebank_without_documents_is_read_in_blocks(tmp_path: Path) -> None:
    path = treebank(tmp_path / "bank.conllu", 2 * SIZE + 3)
    corpus = hs.read(path)
    starts = [f"block of s{number}" for number in (0, SIZE, 2 * SIZE)]
    assert parents(corpus) == [starts[number // SIZE] for number in range(2 * SIZE + 3)]
    assert said(corpus) == (
        f"blocks of {SIZE} sentences are taken as independent: the file marks no documents"
    )
    assert said(corpus.by("document")).endswith("each of its texts is taken as independent")


def test_marked_documents_stay_and_are_not_mentioned(tmp_path: Path) -> None:
    path = treebank(tmp_path / "bank.conllu", 6, lambda n: f"# newdoc id = d{n}\n" * (n % 3 == 0))
    corpus = hs.read(path)
    assert parents(corpus) == ["d0"] * 3 + ["d3"] * 3
    assert said(corpus) == ""
    assert said(hs.demo_corpus()) == ""
    loose = treebank(tmp_path / "late.conllu", 4, lambda n: "# newdoc id = d\n" * (n == 2))
    assert parents(hs.read(loose)) == ["block of s0"] * 2 + ["d"] * 2


def test_blocks_do_not_cross_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("One. Two.\n\nThree.\n")
    corpus = hs.read(tmp_path)
    assert parents(corpus) == ["block of a-1-1"] * 3 + ["block of b-1-1"] * 3
    assert "blocks of" in said(corpus)
    as_paragraphs = hs.read(tmp_path, layout="paragraph")
    assert parents(as_paragraphs)[:3] == ["a-1", "a-1", "a-2"]
    assert said(as_paragraphs) == "paragraphs are taken as independent (layout='paragraph')"
    assert said(hs.read(tmp_path, layout="file")) == ""


def rule(document: Document) -> str:
    """Name of the document by the first letter of the id."""
    return document.id[0]


@pytest.mark.parametrize(
    ("documents", "expected", "words"),
    [
        (2, ["block of s0", "block of s0", "block of s2"], "blocks of 2 sentences"),
        ("each", [None] * 3, "sentences are taken as independent (documents='each')"),
        ("source", ["x", "x", "y"], "same value of 'source'"),
        ("genre", ["news"] * 3, "same value of 'genre'"),
        (rule, ["s"] * 3, "same value of the rule 'rule'"),
    ],
)
def test_documents_as_requested(
    tmp_path: Path, documents: object, expected: list[str | None], words: str
) -> None:
    opening = "# newdoc id = d\n# meta::genre = news\n"
    path = treebank(
        tmp_path / "bank.conllu",
        3,
        lambda n: opening * (n == 0),
        lambda n: f"# source = {'xxy'[n]}\n",
    )
    corpus = hs.read(path, documents=documents)  # type: ignore[arg-type]
    assert parents(corpus) == expected
    assert words in said(corpus)


def test_a_comment_names_whole_documents_too(tmp_path: Path) -> None:
    path = treebank(tmp_path / "bank.conllu", 4, lambda n: f"# source = {'xxyx'[n]}\n")
    whole = hs.read(path, unit="document", documents="source")
    assert [document.text for document in whole] == ["Word Word", "Word", "Word"]
    assert parents(whole) == ["x", "y", "x"]


def test_a_field_of_records() -> None:
    records = [{"text": "One.", "author": "a"}, {"text": "Two.", "author": "b"}]
    assert parents(hs.read(records, documents="author")) == ["a", "b"]
    with pytest.raises(InputError, match=r"'editor' is None for .*metadata: author"):
        list(hs.read(records, documents="editor"))
    with pytest.raises(InputError, match="documents"):
        hs.read(records, documents=0)
    with pytest.raises(InputError, match="documents"):
        hs.read(records, documents=1.5)  # type: ignore[arg-type]


def test_the_other_content_stays() -> None:
    (document,) = make_documents(1)
    moved = document.within("book")
    assert moved.part_of == "book"
    assert moved.within(document.part_of) == document


def test_results_say_it_and_merge_it(tmp_path: Path) -> None:
    model = hs.load("minilm")
    loose, marked = tmp_path / "loose.txt", tmp_path / "marked.jsonl"
    loose.write_text("".join(f"Number {n} is here. It waits.\n\n" for n in range(9)))
    hs.demo_corpus().sample(9).save(marked)
    options = {"metrics": ["distance", "tokens_per_document"], "workers": 1}
    first, second = (hs.analyze(model, path, **options) for path in (loose, marked))
    sentence = f"blocks of {SIZE} sentences are taken as independent: the file marks no documents"
    assert first.provenance["corpus"]["independence"] == sentence
    assert "independence" not in second.provenance["corpus"]
    assert second.independence == ""
    for text in (first.summary, repr(first), first.title, merge(second, first).summary):
        assert sentence in text
    assert "independent" not in second.summary
    first.save(tmp_path / "result.nc")
    assert hs.open(tmp_path / "result.nc").independence == sentence
    note = first.significant("distance", against=2.0).caution
    assert sentence in note
    report = build_report([first])
    opening = report["findings"][0]["paragraphs"][0]["sentences"][0]
    assert f"Intervals and tests: {sentence}." in str(opening)
    captions = [figure["caption"] for part in report["sections"] for figure in part["figures"]]
    with_intervals = [caption for caption in captions if "interval" in str(caption)]
    assert with_intervals
    assert all(sentence in str(caption) for caption in with_intervals)


def test_effects_on_the_loss_say_it(tiny_llama: Model, tmp_path: Path) -> None:
    loose = tmp_path / "loose.txt"
    loose.write_text("".join(f"the cat sat on {'the ' * n}mat.\n\n" for n in range(6)))
    sentence = f"blocks of {SIZE} sentences are taken as independent: the file marks no documents"
    effects = hs.effects(tiny_llama, hs.read(loose), heads=[(0, 0)])
    assert effects.attrs["holds"] == sentence
    checked = hs.check_importance(tiny_llama, hs.read(loose), heads=[(0, 0)])
    assert checked.attrs["independence"] == sentence
    assert "holds" not in hs.effects(tiny_llama, hs.demo_corpus().sample(4), heads=[(0, 0)]).attrs


def test_copies_are_reported() -> None:
    text = "The cat sat on the mat."
    copies = [text] * 3 + [f"Number {n} is another text." for n in range(9)]
    expected = "2 of 12 texts are copies or near-copies of others, yet taken as independent"
    assert said(hs.read(copies)) == expected
    assert said(hs.read([*copies, *(f"And {n} more such texts." for n in range(9))])) == ""  # few
    assert said(hs.read(["Yes."] * 12)) == ""  # short texts are equal by chance
    words = tuple(text[:-1].split())
    within = [replace(Document.from_words(words, id=f"s{n}"), part_of="one") for n in range(12)]
    assert said(hs.read(within)) == ""  # refrains of one document


def test_near_copies_are_reported() -> None:
    start = "The committee met on Monday to discuss the plans for a bridge over the river in"
    places = [f"{start} {place}." for place in ("York", "Bonn", "Lima", "Oslo")]
    others = [f"In {n} a farmer sold {n + 2} cows to the {n * 7}th of his sons." for n in range(8)]
    assert said(hs.read([*places, *others])).startswith("3 of 12 texts are copies or near-copies")
    assert said(hs.read([*places[:2], *others])) == ""  # a tenth may be
    assert said(hs.read(others)) == ""
    assert said(hs.demo_corpus("sentence")) == ""
