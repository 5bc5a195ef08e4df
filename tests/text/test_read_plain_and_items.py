from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import FileFormatError, HeadscopeError, InputError, UnknownName
from headscope.text.document import ROOT, Document, Mention
from headscope.text.readers.read import known_readers, read, reader_for
from headscope.text.readers.records import document_from_dict

LINES = "One line.\nAnother one!\n\n"
BLOCKS = "First\nparagraph here.\n\n\nSecond one.\n"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def format_of(path: Path) -> str:
    return reader_for(path, known_readers()).name


def test_a_document_per_line_or_paragraph_or_file(tmp_path: Path) -> None:
    lines, blocks = write(tmp_path, "a.txt", LINES), write(tmp_path, "b.txt", BLOCKS)
    whole_lines = [(d.id, d.text) for d in read(lines, unit="document")]
    assert whole_lines == [("a-1", "One line."), ("a-2", "Another one!")]
    whole_blocks = [d.text for d in read(blocks, unit="document")]
    assert whole_blocks == ["First paragraph here.", "Second one."]
    assert [d.text for d in read(blocks, layout="line", unit="document")] == [
        "First",
        "paragraph here.",
        "Second one.",
    ]
    (whole,) = read(blocks, layout="file", unit="document")
    assert whole.text == "First paragraph here.\n\nSecond one."
    assert whole.paragraphs == ((0, 4), (4, 7))
    assert [d.text for d in read(blocks, layout="file", unit="paragraph")] == [
        "First paragraph here.",
        "Second one.",
    ]
    assert [d.text for d in read(["A b. C d."], unit="sentence")] == ["A b.", "C d."]


def test_words_of_raw_text(tmp_path: Path) -> None:
    (document, _) = read(write(tmp_path, "a.txt", LINES), unit="document")
    assert document.words == ("One", "line", ".")
    assert document.sentences == document.paragraphs == ()
    assert document.upos is document.parents is None


def test_windows_ends_mark_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfOne\r\nTwo"))
    assert [d.text for d in read(path)] == ["One", "Two"]


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "u.txt").write_bytes("Zwei".encode("utf-16"))
    with pytest.raises(FileFormatError, match=r"u.txt is UTF-16 .* Expected UTF-8"):
        list(read(tmp_path / "u.txt"))
    (tmp_path / "z.txt.gz").write_bytes(gzip.compress(b"One\nTwo\n" * 1000)[:40])
    with pytest.raises(FileFormatError, match="compression breaks off"):
        list(read(tmp_path / "z.txt.gz"))
    (tmp_path / "l.txt").write_bytes(b"good\nb\xe9d\ngood\n")
    with pytest.raises(FileFormatError, match="line 2: byte 0xe9 at position 1 is not UTF-8"):
        list(read(tmp_path / "l.txt"))
    corpus = read(tmp_path / "l.txt", on_error="skip")
    assert len(list(corpus)) == 2
    assert corpus.summary().skipped == {"lines": 1}


@pytest.mark.parametrize("name", ["e.txt", "e.conllu", "e.jsonl", "e.whatever"])
@pytest.mark.parametrize("content", ["", "\n \n\n"])
def test_empty_files(tmp_path: Path, name: str, content: str) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(FileFormatError, match=f"{name} has no documents: it is empty"):
        list(read(path))
    assert read(path, on_error="skip").summary().skipped == {"files": 1}


def test_folders_and_paths(tmp_path: Path) -> None:
    write(tmp_path, "b.txt", "Bee")
    write(tmp_path, "a.jsonl", '{"text": "Ay"}')
    write(tmp_path, "README.md", "no corpus")
    assert [d.text for d in read(tmp_path)] == ["Ay", "Bee"]
    assert [d.text for d in read([tmp_path / "b.txt", tmp_path / "a.jsonl"])] == ["Bee", "Ay"]
    write(tmp_path, "c.txt", "")
    assert read(tmp_path, on_error="skip").summary().skipped == {"files": 1}
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty has no files ending in \.conll12, .*\.txt, conll"):
        read(tmp_path / "empty")
    with pytest.raises(
        InputError, match=r"No file or folder 'Hello world.'. To measure a text itself"
    ):
        read("Hello world.")


def test_formats_are_told_by_content(tmp_path: Path) -> None:
    assert format_of(write(tmp_path, "a", '{"text": "x"}\n')) == "jsonl"
    assert format_of(write(tmp_path, "b", "1\ta\t_\tX\t_\t_\t0\troot\t_\t_\n")) == "conllu"
    assert format_of(write(tmp_path, "c", "just text")) == "plain"


def test_unknown_options_name_the_known(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "x")
    for options in ({"unit": "line"}, {"format": "conll"}, {"layout": "x"}, {"on_error": "x"}):
        with pytest.raises(UnknownName, match="Known: "):
            read(path, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="sample should be a whole number from 1 on, not 0"):
        read(path, sample=0)
    with pytest.raises(InputError, match="joins a file onto a file"):
        read(["x"], coreference=path)
    for wrong in (3, {"text": "x"}, b"x", None):
        with pytest.raises(InputError, match=f"Cannot read a corpus from {type(wrong).__name__}"):
            read(wrong)  # type: ignore[arg-type]


ANNOTATED: dict[str, Any] = {
    "id": "x",
    "text": "He slept. He did.",
    "words": ["He", "slept", ".", "He", "did", "."],
    "sentences": [[0, 3], [3, 6]],
    "parents": [1, -1, 1, 4, -1, None],
    "upos": ["PRON", "VERB", "PUNCT", "PRON", "VERB", "PUNCT"],
    "mentions": [{"cluster": 1, "spans": [[0, 1]]}, {"cluster": 1, "spans": [[3, 4]], "head": 3}],
    "genre": "fiction",
    "label": 3,
    "embedding": [0.1],
}


def test_json_lines(tmp_path: Path) -> None:
    lines = [json.dumps(ANNOTATED), "", '"A bare string"', '{"words": ["a", "b"]}', '{"text": "t"}']
    path = write(tmp_path, "a.jsonl", "\n".join(lines))
    first, second, third, fourth = read(path, unit="document")
    assert first.id == "x"
    assert first.spans == ((0, 2), (3, 8), (8, 9), (10, 12), (13, 16), (16, 17))
    assert first.parents == (1, ROOT, 1, 4, ROOT, -2)
    assert first.mentions == (Mention("1", ((0, 1),)), Mention("1", ((3, 4),), head_word=3))
    assert first.meta == {"genre": "fiction", "label": "3"}
    assert (second.id, second.text) == ("a-3", "A bare string")
    assert (third.text, third.spans) == ("a b", ((0, 1), (2, 3)))
    assert fourth.words == ("t",)
    assert [d.text for d in read(path, unit="sentence")][:2] == ["He slept.", "He did."]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "x"', r"line 2: not JSON \(.*\): '.*'. Expected one JSON object per line"),
        ('{"body": "x"}', r"line 2: neither 'text' nor 'words' among \['body'\]"),
        ('{"text": 3}', "'text' is int '3', not a string"),
        ("[1]", "found list"),
        ('{"words": ["a", 3]}', r"'words' is .* which cannot be read as words"),
        ('{"words": "ab"}', "'words' is 'ab', which cannot be read as words"),
        ('{"words": ["a", "b"], "text": "a c"}', r"words \['a', 'b'\] … are not those of the text"),
        ('{"words": ["a"], "parents": [7]}', "the parent of word 1 is word 8"),
        ('{"words": ["a"], "spans": [[0, 1]]}', "'spans' without a text"),
        ('{"words": ["a"], "mentions": [{"cluster": 1}]}', "cannot be read as mentions"),
        ('{"words": ["a"], "sentences": [[0]]}', "cannot be read as sentences"),
        ('{"words": ["a"], "upos": ["X", "Y"]}', "has 1 words, but 2 upos"),
        ('{"text": "\\ud800"}', "half a surrogate pair"),
    ],
)
def test_broken_json_lines(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path, "a.jsonl", f'{{"text": "x"}}\n{line}\n{{"text": "y"}}\n')
    with pytest.raises(FileFormatError, match=message) as caught:
        list(read(path))
    assert "a.jsonl, line 2" in str(caught.value)
    corpus = read(path, on_error="skip")
    assert [d.text for d in corpus] == ["x", "y"]
    assert corpus.summary().skipped == {"documents": 1}


class Dataset:
    """Like a Hugging Face dataset: re-iterable, made of dicts."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield {"sentence": "One.", "label": 1, "idx": 0}
        yield {"sentence": "Two.", "label": 0, "idx": 1}


def test_iterables() -> None:
    assert [d.text for d in read(["a", {"text": "b"}, Document("c", "c", ("c",), ((0, 1),))])] == [
        "a",
        "b",
        "c",
    ]
    corpus = read(Dataset(), text_key="sentence")
    assert [(d.text, d.meta["label"]) for d in corpus] == [("One.", "1"), ("Two.", "0")]
    assert len(list(corpus)) == len(list(corpus)) == 2
    assert [d.id for d in corpus] == ["Dataset-0", "Dataset-1"]
    fresh = read(lambda: (text for text in ("a", "b")))
    assert len(list(fresh)) == len(list(fresh)) == 2
    with pytest.raises(InputError, match="A generator can be read only once"):
        read(text for text in ("a", "b"))
    with pytest.raises(FileFormatError, match="list, item 1: found int '3'"):
        list(read(["a", 3]))
    assert read(["a", 3], on_error="skip").summary().skipped == {"documents": 1}


def test_words_without_text_are_joined_by_spaces() -> None:
    assert document_from_dict({"words": ["do", "n't", "."]}).text == "do n't ."


@pytest.mark.filterwarnings("ignore:(?s).*The rest of the file is left out")
@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=20),
            st.sampled_from([b"\n", b'{"text": "a"}\n', b'{"words": ["a"]}\n', b"[[", b'"']),
        )
    )
)
def test_hostile_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, junk: list[bytes]
) -> None:
    folder = tmp_path_factory.mktemp("junk")
    for name in ("a.txt", "a.jsonl", "a"):
        (folder / name).write_bytes(b"".join(junk))
        for on_error in ("raise", "skip"):
            try:
                for document in read(folder / name, on_error=on_error):
                    assert all(
                        document.text[a:b] == w
                        for (a, b), w in zip(document.spans, document.words, strict=True)
                    )
            except HeadscopeError:
                pass
