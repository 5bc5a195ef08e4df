"""Readers of one's own: registered, they work wherever headscope's do."""

from __future__ import annotations

import gzip
import multiprocessing
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

import headscope as hs
from headscope.errors import FileFormatError, HeadscopeWarning, InputError, UnknownName
from headscope.text.corpus import Corpus
from headscope.text.document import Document
from headscope.text.readers.read import REGISTERED, known_readers
from headscope.text.readers.reader import Lines, Reader, ReadLog, ReadOptions, broken

TABLE = "%table\nfirst\tA b. C d.\nsecond\tE f.\n"


class TableReader(Reader):
    """A name and a text in each line, after a line that says so."""

    name: ClassVar[str] = "table"
    suffixes: ClassVar[tuple[str, ...]] = (".tab",)
    expects: ClassVar[str] = "'%table', then names and texts"

    def detect(self, start: Sequence[str]) -> bool:
        return bool(start) and start[0] == "%table"

    def documents(
        self, lines: Lines, name: str, options: ReadOptions, report: ReadLog
    ) -> Iterator[Document]:
        for number, text in lines:
            if isinstance(text, FileFormatError):
                report.leave_out("documents", text)
            elif number > 1 and text:
                key, tab, rest = text.partition("\t")
                if tab:
                    yield Document.from_text(rest, key)
                else:
                    report.leave_out("documents", broken(name, number, f"{text!r}", "a tab"))


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Readers registered in a test are unknown in the next."""
    before = dict(REGISTERED)
    yield
    REGISTERED.clear()
    REGISTERED.update(before)


def texts(corpus: Corpus) -> list[str]:
    return [document.text for document in corpus]


def test_a_suffix_names_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "a.tab"
    path.write_text(TABLE, encoding="utf-8")
    assert texts(hs.read(path, unit="document")) == TABLE.strip().split("\n")  # as plain text
    hs.register_reader(TableReader)
    assert texts(hs.read(path)) == ["A b.", "C d.", "E f."]
    whole = list(hs.read(path, unit="document"))
    assert [(d.id, d.text) for d in whole] == [("first", "A b. C d."), ("second", "E f.")]
    packed = tmp_path / "b.TAB.gz"
    packed.write_bytes(gzip.compress(TABLE.encode()))
    assert texts(hs.read(packed)) == ["A b.", "C d.", "E f."]


def test_content_or_format_names_it_where_the_suffix_does_not(tmp_path: Path) -> None:
    path = tmp_path / "a.unknown"
    path.write_text(TABLE, encoding="utf-8")
    hs.register_reader(TableReader)
    assert texts(hs.read(path)) == ["A b.", "C d.", "E f."]
    other = tmp_path / "b.txt"
    other.write_text("x\tOne.\ny\tTwo.\n", encoding="utf-8")
    assert texts(hs.read(other, format="table")) == ["Two."]
    assert texts(hs.read(other, unit="document")) == ["x\tOne.", "y\tTwo."]


def test_a_folder_holds_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.tab").write_text(TABLE, encoding="utf-8")
    (tmp_path / "b.txt").write_text("Plain.", encoding="utf-8")
    assert texts(hs.read(tmp_path)) == ["Plain."]
    hs.register_reader(TableReader)
    assert texts(hs.read(tmp_path)) == ["A b.", "C d.", "E f.", "Plain."]


def test_broken_lines_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.tab"
    path.write_text(TABLE + "no tab\n", encoding="utf-8")
    hs.register_reader(TableReader)
    with pytest.raises(FileFormatError, match=r"a\.tab, line 4: 'no tab'\. Expected a tab"):
        list(hs.read(path))
    assert hs.read(path, on_error="skip").summary().skipped == {"documents": 1}


def _read_elsewhere(pickled: bytes) -> tuple[list[str], bool]:
    """In a process where nobody registered the reader."""
    corpus = pickle.loads(pickled)
    return texts(corpus), TableReader in known_readers()


def test_a_worker_reads_what_it_never_registered(tmp_path: Path) -> None:
    path = tmp_path / "a.tab"
    path.write_text(TABLE, encoding="utf-8")
    hs.register_reader(TableReader)
    pickled = pickle.dumps(hs.read(path))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_read_elsewhere, (pickled,)) == (["A b.", "C d.", "E f."], False)


def test_an_unknown_format_names_the_known() -> None:
    hs.register_reader(TableReader)
    with pytest.raises(UnknownName, match=r"tabel.*Known: .*table"):
        hs.read(__file__, format="tabel")


def test_a_class_may_be_registered_again() -> None:
    """A notebook's cell is run twice: the class is another object of the same name."""
    again = type("TableReader", (TableReader,), {"__module__": __name__})
    again.__qualname__ = "TableReader"
    hs.register_reader(TableReader)
    assert hs.register_reader(again) is again
    assert known_readers()[0] is again
    assert TableReader not in known_readers()


def made(**attributes: object) -> type[Reader]:
    return type("Mine", (TableReader,), {"name": "mine", "suffixes": (".mine",), **attributes})


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"name": "conllu"}, r"Mine is named 'conllu', and so is ConlluReader of headscope"),
        ({"name": ""}, "Mine has an empty name"),
        ({"name": 3}, "Mine lacks name"),
        ({"suffixes": ".mine"}, r"Mine\.suffixes is '\.mine': expected a tuple of strings"),
        ({"suffixes": (".Mine",)}, r"the suffix '\.Mine': expected the end .* in lower case"),
        ({"suffixes": ("",)}, "the suffix ''"),
        ({"suffixes": (".mine.gz",)}, r"leave '\.gz' out"),
        (
            {"suffixes": (".txt",)},
            r"ending in '\.txt', and so does PlainReader \('plain'\)\. PlainReader has no `detect`",
        ),
        (
            {"suffixes": (".conllu",), "detect": Reader.detect},
            r"'\.conllu', and so does ConlluReader .*Mine has no `detect`.*format='mine'",
        ),
        ({"name": "table"}, "Mine is named 'table', and so is TableReader of"),
    ],
)
def test_a_bad_registration_says_why(attributes: dict[str, object], message: str) -> None:
    hs.register_reader(TableReader)
    before = known_readers()
    with pytest.raises(InputError, match=message):
        hs.register_reader(made(**attributes))
    assert known_readers() == before


def test_what_is_no_reader_is_refused() -> None:
    with pytest.raises(InputError, match=r"derived from headscope\.Reader, not <class 'dict'>"):
        hs.register_reader(dict)  # type: ignore[type-var]
    with pytest.raises(InputError, match="Unfinished lacks name, documents"):
        hs.register_reader(type("Unfinished", (Reader,), {}))


def test_readers_that_share_a_suffix_look_at_the_content(tmp_path: Path) -> None:
    hs.register_reader(made(suffixes=(".conllu",)))
    (tmp_path / "a.conllu").write_text(TABLE, encoding="utf-8")
    (tmp_path / "b.conllu").write_text("1\tHi\t_\tX\t_\t_\t0\troot\t_\t_\n\n", encoding="utf-8")
    (tmp_path / "c.conllu").write_text("neither\n", encoding="utf-8")
    assert texts(hs.read(tmp_path / "a.conllu")) == ["A b.", "C d.", "E f."]
    assert texts(hs.read(tmp_path / "b.conllu")) == ["Hi"]
    with pytest.raises(
        FileFormatError,
        match=r"ends in '\.conllu', but its format is unknown: it begins with 'neither'.*"
        r"mine: '%table', then names",
    ):
        list(hs.read(tmp_path / "c.conllu"))


def test_the_longest_suffix_decides(tmp_path: Path) -> None:
    hs.register_reader(made(suffixes=(".mine.txt",)))
    (tmp_path / "a.mine.txt").write_text(TABLE, encoding="utf-8")
    (tmp_path / "b.txt").write_text("Plain.\n", encoding="utf-8")
    assert texts(hs.read(tmp_path)) == ["A b.", "C d.", "E f.", "Plain."]


def _raises(lines: Lines, name: str, options: ReadOptions, report: ReadLog) -> Iterator[Document]:
    for number, text in lines:
        if number == 3:
            {}[text]
        yield Document.from_text(str(text), f"{name}-{number}")


def _builds(lines: Lines, name: str, options: ReadOptions, report: ReadLog) -> Iterator[Document]:
    for _, text in lines:
        yield Document.from_words([str(text)], parents=[0 if text == "bad" else -1])


def _returns_text(
    lines: Lines, name: str, options: ReadOptions, report: ReadLog
) -> Iterator[object]:
    yield from (text for _, text in lines)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (_raises, r"a\.mine, line 3: the reader 'mine' failed: KeyError\('bad'\)\. Repair"),
        (_builds, r"a\.mine, line 3: the reader 'mine' failed: Sentence 0 .* the word itself\."),
        (_returns_text, r"a\.mine, line 1: .* returned str, not headscope\.Document"),
    ],
)
def test_an_error_in_a_reader_names_file_and_line_and_obeys_on_error(
    tmp_path: Path, documents: object, message: str
) -> None:
    path = tmp_path / "a.mine"
    path.write_text("one\ntwo\nbad\nfour\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("Plain.", encoding="utf-8")
    hs.register_reader(made(documents=lambda self, *arguments: documents(*arguments)))  # type: ignore[operator]
    with pytest.raises(FileFormatError, match=message):
        list(hs.read(path))
    corpus = hs.read(tmp_path, on_error="skip")
    with pytest.warns(HeadscopeWarning, match=r"a\.mine, line \d: .* The rest of the file is left"):
        assert texts(corpus)[-1] == "Plain."
    with pytest.warns(HeadscopeWarning, match="The rest of the file is left out"):
        assert corpus.summary().skipped == {"files": 1}


def test_an_error_before_the_first_line_names_no_line(tmp_path: Path) -> None:
    def fails(lines: object, *arguments: object) -> None:
        raise KeyError("early")

    path = tmp_path / "a.mine"
    path.write_text("one\n", encoding="utf-8")
    hs.register_reader(made(documents=lambda self, *arguments: fails(*arguments)))
    with pytest.raises(FileFormatError, match=r"a\.mine: the reader 'mine' failed: .* the file,"):
        list(hs.read(path))
