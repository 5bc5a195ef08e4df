"""Readers take what they are given, or say what is wrong with it."""

from __future__ import annotations

import gzip
import json
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headscope.errors import HeadscopeError
from headscope.text.readers.read import read
from headscope.text.readers.records import document_from_dict
from tests.fuzz.hostile import NASTY, damaged, fuzz, texts
from tests.fuzz.watch import watch

CONLLU = (resources.files("headscope.text") / "demo.conllu").read_bytes()
CONLLU = CONLLU[: CONLLU.index(b"\n\n", 5000) + 2]
CONLL2012 = b"""#begin document (bc/x/00/x_0000); part 000
bc/x/00/x_0000 0 0 Mary NNP (TOP(S(NP*) - - - sp - (0)
bc/x/00/x_0000 0 1 saw VBD (VP* see 01 1 sp - -
bc/x/00/x_0000 0 2 her PRP$ (NP(NP* - - - sp - (1(0)
bc/x/00/x_0000 0 3 dog NN *)) - - - sp - 1)
bc/x/00/x_0000 0 4 . . *)) - - - sp - -

#end document
"""
ONTOGUM = b"""# begin document GUM_x_y
0\tMary\t(1)
1\tsaw\t_
2\ther\t(1)|(2
3\tdog\t2)
4\t.\t_
# end document
"""
DICTS = [
    {"id": "a", "text": "The cat sat.", "genre": "news"},
    {
        "words": ["The", "cat"],
        "text": "The cat",
        "spans": [[0, 3], [4, 7]],
        "upos": ["DET", "NOUN"],
        "parents": [1, -1],
        "relations": ["det", "root"],
        "sentences": [[0, 2]],
        "mentions": [{"cluster": "1", "spans": [[0, 2]], "head": 1}],
        "meta": {"x": "y"},
    },
]
JSONL = "\n".join(json.dumps(item) for item in DICTS).encode()
PLAIN = "First line.\nSecond — “line”.\n\nA paragraph\nof two lines.\n".encode()
FILES = {
    "a.conllu": CONLLU,
    "a.conll": CONLL2012,
    "b.conll": ONTOGUM,
    "a.jsonl": JSONL,
    "a.txt": PLAIN,
}
UNITS = st.sampled_from(("sentence", "paragraph", "document"))
ON_ERROR = st.sampled_from(("raise", "skip"))


def read_through(name: str, data: bytes, **options: Any) -> str:
    """Read a file as everything does that reads one, and check what comes out of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        n = 0
        try:
            corpus = read(path, **options)
            for document in corpus:
                n += 1
                document.digest()
                assert len(document.words) == len(document.spans)
                for start, end in document.spans:
                    assert 0 <= start <= end <= len(document.text)
                assert document_from_dict(json.loads(json.dumps(document.to_dict()))) == document
            if n:
                assert corpus.summary().documents == n
        except HeadscopeError:
            return "refused"  # what it says is tested where it is raised
        return "read" if n else "empty"


@pytest.mark.parametrize("name", FILES)
def test_the_originals_are_read(name: str) -> None:
    assert read_through(name, FILES[name]) == "read"


@pytest.mark.parametrize("name", FILES)
def test_damaged_files(name: str) -> None:
    @fuzz("damaged corpora")
    @given(data=damaged(FILES[name]), unit=UNITS, on_error=ON_ERROR)
    def run(data: bytes, unit: str, on_error: str) -> None:
        watch("damaged corpora", read_through, name, data, unit=unit, on_error=on_error)

    run()


@fuzz("bytes as corpora")
@given(st.sampled_from(list(FILES)), st.binary(max_size=300), UNITS, ON_ERROR)
def test_random_bytes(name: str, data: bytes, unit: str, on_error: str) -> None:
    watch("bytes as corpora", read_through, name, data, unit=unit, on_error=on_error)


@fuzz("broken compression")
@given(st.data(), st.sampled_from(list(FILES)), ON_ERROR)
def test_broken_compression(data: st.DataObject, name: str, on_error: str) -> None:
    packed = gzip.compress(FILES[name], mtime=0)
    hostile = data.draw(damaged(packed, most=2))
    watch("broken compression", read_through, f"{name}.gz", hostile, on_error=on_error)


@fuzz("the wrong format")
@given(
    st.sampled_from([name for name in FILES if name != "a.txt"]),
    st.sampled_from(("conllu", "conll2012", "ontogum", "jsonl", "plain")),
    UNITS,
)
def test_the_wrong_format(name: str, kind: str, unit: str) -> None:
    watch(
        "the wrong format", read_through, name, FILES[name], format=kind, unit=unit, on_error="skip"
    )


KEYS = ("text", "words", "spans", "upos", "parents", "relations", "sentences", "paragraphs")
KEYS += ("mentions", "meta", "id", "part_of", "lemmas", "features", "cluster", "head", "kind")
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 9),
        st.sampled_from((10**30, -(10**30))),
        st.floats(),
        texts(10),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(st.sampled_from(KEYS), st.sampled_from(NASTY)), inner, max_size=4
        ),
    ),
    max_leaves=8,
)


@st.composite
def hostile_items(draw: st.DrawFn) -> Any:
    """A dict that is right but for a few of its values; or anything."""
    if draw(st.booleans()):
        return draw(VALUES)
    item: dict[str, Any] = dict(draw(st.sampled_from(DICTS)))
    for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)):
        item[key] = draw(VALUES)
    return item


def read_item(item: Any, **options: Any) -> str:
    try:
        for document in read([item], **options):
            document.digest()
            json.dumps(document.to_dict())
    except HeadscopeError:
        return "refused"  # what it says is tested where it is raised
    return "read"


@fuzz("hostile items")
@given(hostile_items(), UNITS, ON_ERROR)
def test_hostile_items(item: Any, unit: str, on_error: str) -> None:
    watch("hostile items", read_item, item, unit=unit, on_error=on_error)
