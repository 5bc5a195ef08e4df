"""What a small hostile file may cost: readers are linear, have limits, and raise our errors only.

Limits are tested by what comes out, linear time by counting how long twice as much takes.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headscope.errors import FileFormatError, HeadscopeError, InputError
from headscope.text.document import Document, Mention, Unit
from headscope.text.readers.brackets import Bracket, mentions_from_brackets
from headscope.text.readers.read import read
from headscope.text.readers.reader import LONGEST_LINE
from headscope.text.readers.sentences import Surface, locate
from headscope.text.splitting import split_sentences, split_words

ROW = "{id}\t{form}\t_\tNOUN\t_\t_\t{head}\troot\t_\t{misc}\n"


def row(id_: str = "1", form: str = "x", head: str = "0", misc: str = "_") -> str:
    return ROW.format(id=id_, form=form, head=head, misc=misc)


def conllu(folder: Path, *rows: str) -> Path:
    path = folder / "a.conllu"
    path.write_text("".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ((row("1-100000000", head="_"), row()), "reaches to 100000000, beyond"),
        (
            (row("1-2", head="_"), row(), row("2-3", head="_"), row("2")),
            "overlaps the one before it",
        ),
        ((row("1-1000000000", head="_"), row()), "ID is '1-1000000000'"),
        ((row(head="9" * 5000),), "HEAD is '9999"),
        ((row("1-" + "9" * 5000, head="_"), row()), "ID is '1-999"),
    ],
)
def test_numbers_that_no_sentence_has(tmp_path: Path, rows: tuple[str, ...], problem: str) -> None:
    path = conllu(tmp_path, *rows, "\n", row())
    with pytest.raises(FileFormatError, match=problem) as caught:
        list(read(path))
    assert len(str(caught.value)) < 600
    corpus = read(path, on_error="skip")
    assert len(list(corpus)) == 1


@pytest.mark.parametrize(
    "entity", ["(e1-person-" + "9" * 5000 + ")", f"(e[{'9' * 5000}/2])", "(e1-p-²)", "(" * 500]
)
def test_entities_that_no_file_has(tmp_path: Path, entity: str) -> None:
    path = conllu(tmp_path, row(misc=f"Entity={entity}"))
    assert len(list(read(path, on_error="skip"))) == 1
    report = read(path, on_error="skip").summary()
    assert all(len(message) < 600 for message in report.messages)


def test_a_part_number_of_thousands_of_digits(tmp_path: Path) -> None:
    path = tmp_path / "a.v4_auto_conll"
    path.write_text(
        f"#begin document (x); part {'9' * 5000}\nx 0 {'9' * 5000} a NN\n", encoding="utf-8"
    )
    assert not list(read(path, on_error="skip"))
    with pytest.raises(FileFormatError, match="word number '999"):
        list(read(path))


def test_a_mention_of_more_words_than_there_are(tmp_path: Path) -> None:
    mention = {"cluster": "1", "spans": [[0, 10**15]], "head": 7}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "a b", "mentions": [mention]}), encoding="utf-8")
    with pytest.raises(FileFormatError, match="has 2 words, but a mention"):
        list(read(path))
    with pytest.raises(InputError, match="head word 9"):
        Mention("1", ((0, 3), (5, 7)), head_word=9)


def test_a_line_that_is_too_long_is_one_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n" + b"x" * (2 * LONGEST_LINE + 5) + b"\nthree\n")
    with pytest.raises(FileFormatError, match="line 2: the line has more than 16,777,216 bytes"):
        list(read(path))
    assert [document.text for document in read(path, on_error="skip")] == ["one", "three"]


def test_a_line_of_the_greatest_length_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"x" * (LONGEST_LINE - 1) + b"\ntwo")
    assert [len(document.text) for document in read(path)] == [LONGEST_LINE - 1, 3]


@pytest.mark.parametrize("line_end", [b"", b"\n"])
def test_a_bomb_is_refused(tmp_path: Path, line_end: bytes) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress((b"a" * 1023 + (line_end or b"a")) * 300_000, mtime=0))
    with pytest.raises(FileFormatError, match="unfolds to more than 200 times its size"):
        list(read(path, on_error="skip"))
    packed = tmp_path / "b.txt.gz"
    packed.write_bytes(gzip.compress(b"A sentence of text.\n" * 1000, mtime=0))
    assert len(list(read(packed))) == 1000


@pytest.mark.parametrize("line", [b"x\n", b"\n", b"{}\n"])
@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".conllu"])
def test_a_bomb_of_short_lines_is_refused_soon(tmp_path: Path, suffix: str, line: bytes) -> None:
    path = tmp_path / f"a{suffix}.gz"
    path.write_bytes(gzip.compress(line * 8_000_000, 1, mtime=0))
    started = time.process_time()
    with pytest.raises(FileFormatError, match=r"more than 4 lines a byte.* in 100,001 lines"):
        list(read(path, on_error="skip"))
    assert time.process_time() - started < 20  # hours before


def test_short_lines_that_are_text_are_read(tmp_path: Path) -> None:
    digits = "".join(
        f"{number}\n" for number in np.random.default_rng(0).integers(10, size=120_000)
    )
    (path := tmp_path / "a.txt.gz").write_bytes(gzip.compress(digits.encode(), mtime=0))
    assert sum(1 for _ in read(path)) == 120_000


MEGABYTE = 1_000_000
DEGENERATE = {
    "dots": ".",
    "quotes": '"',
    "brackets": "(",
    "apostrophes": "'",
    "digits": "7",
    "one word": "a",
    "emoji": "😀",
    "joined emoji": "👩\u200d",
    "marks": "\u0301",
    "mixed": ".\"(a'7😀 ",
    "spaces": " ",
}


@pytest.mark.parametrize("unit", ["sentence", "document"])
@pytest.mark.parametrize("what", DEGENERATE)
def test_a_megabyte_of_one_sign(tmp_path: Path, what: str, unit: Unit) -> None:
    """About a CPU second on an idle machine; dots took 20."""
    sign = DEGENERATE[what]
    path = tmp_path / "a.txt"
    path.write_text("x " + sign * (MEGABYTE // len(sign.encode())), encoding="utf-8")
    started = time.process_time()
    assert len(list(read(path, unit=unit))) >= 1
    assert time.process_time() - started < 10


def many_meta(n: int) -> str:
    ranges = [[i, i + 1] for i in range(n)]
    meta = {f"k{i}": "v" for i in range(n)}
    return json.dumps({"words": ["a"] * n, "sentences": ranges, "meta": meta})


MANY_DOCUMENTS = {
    "lines": (".txt", "x\n" * 50_000),
    "sentences": (".txt", ". " * 50_000),
    "ideographic sentences": (".txt", "東。" * 50_000),
    "paragraphs": (".txt", "a\n\n" * 50_000),
    "records": (".jsonl", '{"text":"a"}\n' * 50_000),
    "facts of each sentence": (".jsonl", many_meta(20_000)),
}


@pytest.mark.parametrize("what", MANY_DOCUMENTS)
def test_a_document_costs_microseconds(tmp_path: Path, what: str) -> None:
    suffix, content = MANY_DOCUMENTS[what]
    (path := tmp_path / f"a{suffix}").write_text(content, encoding="utf-8")
    started = time.process_time()
    n = sum(1 for _ in read(path, unit="sentence"))
    assert (time.process_time() - started) / n < 250e-6  # about 20 on an idle machine


def test_an_id_that_every_sentence_would_repeat(tmp_path: Path) -> None:
    (path := tmp_path / "a.jsonl").write_text(
        json.dumps({"text": "A. B.", "id": "x" * 500_000}), encoding="utf-8"
    )
    with pytest.raises(FileFormatError, match=r"500,000 characters: .* At most 4,096") as caught:
        list(read(path))
    assert len(str(caught.value)) < 600


def nested(n: int) -> list[Bracket]:
    opening = [Bracket(i, f"(e{i}-person-1", 1) for i in range(n)]
    return opening + [Bracket(n + i, f"e{n - 1 - i})", 1) for i in range(n)]


def parts(n: int) -> list[Bracket]:
    return [Bracket(i, "(e[1/2])", 1) for i in range(n)]


def indented(n: int) -> list[Surface]:
    return [Surface(" " * n + "z", ("z",), space_after=False)]


def divided(n: int) -> list[Bracket]:
    return [Bracket(i, f"(e[{i + 1}/{n}])", i + 1) for i in range(n)]


def document_of(n: int) -> Document:
    words = tuple("ab" for _ in range(n))
    spans = tuple((3 * i, 3 * i + 2) for i in range(n))
    sentences = tuple((i, i + 1) for i in range(n))
    mentions = tuple(Mention(str(i), ((i, i + 1),)) for i in range(n))
    return Document("d", " ".join(words), words, spans, sentences, mentions=mentions)


LINEAR: dict[str, Callable[[int], object]] = {
    "dots": lambda n: split_sentences("." * n),
    "ideographic stops": lambda n: split_sentences("。" * n),
    "blank lines": lambda n: split_sentences("a" + " \n" * n),
    "stops and quotes": lambda n: split_sentences('."' * n),
    "apostrophes": lambda n: split_words("a'" * n),
    "one long word": lambda n: split_words("a" * n),
    "unclosed entity": lambda n: mentions_from_brackets([Bracket(0, "a" * n, 1)]),
    "opened entities": lambda n: mentions_from_brackets([Bracket(0, "(a" * n, 1)]),
    "nested mentions": lambda n: mentions_from_brackets(nested(n // 10)),
    "parts that wait": lambda n: mentions_from_brackets(parts(n // 10)),
    "parts of one mention": lambda n: mentions_from_brackets(divided(n // 10)),
    "spaces before a word": lambda n: locate(
        [Surface(" " * n + "z", ("z",), False)], " " * 2 * n + "z", "", 1
    ),
    "sentences of a document": lambda n: list(document_of(n // 50).split("sentence")),
}


@pytest.mark.parametrize("what", LINEAR)
def test_time_is_linear(what: str) -> None:
    """Twice as much takes about twice as long, not four times; the least of several readings."""

    def least(n: int) -> float:
        readings = []
        for _ in range(3):
            started = time.process_time()
            LINEAR[what](n)
            readings.append(time.process_time() - started)
        return min(readings)

    n = 50_000
    assert least(8 * n) <= 8 * 3 * max(least(n), 0.005)


def test_every_reader_raises_our_errors_only(tmp_path: Path) -> None:
    for name in ("a.conllu", "a.conll", "a.v4_auto_conll", "a.jsonl", "a.txt"):
        for content in (b"\x00" * 100, b"(" * 10_000, b"[" * 100_000, b"9" * 100_000, b"\t" * 999):
            path = tmp_path / name
            path.write_bytes(content)
            with contextlib.suppress(HeadscopeError):
                list(read(path, on_error="skip"))


def test_many_paragraphs_without_sentences(tmp_path: Path) -> None:
    path = conllu(tmp_path, "# newpar\n\n" * 100_000, "# newdoc id = d\n", row())
    assert [document.part_of for document in read(path)] == ["d"]
