"""Our CoNLL-U reader beside the `conllu` package: the same words, tags and trees."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import conllu
import pytest

from headscope.text.document import Document
from headscope.text.readers.read import read

TREEBANKS = [
    "ud_ewt/en_ewt-ud-dev.conllu",
    "gum/en_gum-dev.conllu",
    pytest.param("gum/en_gum-train.conllu", marks=pytest.mark.long),
]
HARD = """\
# sent_id = hard-1
# text = Vámonos al mar a las 10 000
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\tV\tMood=Imp|Number=Plur\t0\troot\t0:root\t_
2\tnos\tnosotros\tPRON\t_\tCase=Acc\t1\tobj\t1:obj\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\t_\t_\t5\tcase\t5:case\t_
4\tel\tel\tDET\t_\tDefinite=Def\t5\tdet\t5:det\t_
5\tmar\tmar\tNOUN\t_\t_\t1\tobl\t1:obl\t_
5.1\tir\tir\tVERB\t_\t_\t_\t_\t1:conj\t_
6\ta\ta\tADP\t_\t_\t8\tcase\t8:case\t_
7\tlas\tel\tDET\t_\t_\t8\tdet\t8:det\t_
8\t10 000\t10 000\tNUM\t_\tNumType=Card\t1\tobl:tmod\t1:obl\tSpaceAfter=No

"""


def in_columns(document: Document) -> list[tuple[object, ...]]:
    """Form, lemma, tags, relation, features and parent (0 for the root) of each word. A column that
    says nothing in a sentence is None.
    """
    assert document.parents is not None
    columns = (document.words, document.lemmas, document.upos, document.xpos)
    columns += (document.relations, document.features)
    nothing = ("_",) * len(document.words)
    parents = tuple(parent + 1 for parent in document.parents)
    return list(zip(*(column or nothing for column in columns), parents, strict=True))


def peers_columns(sentence: conllu.models.TokenList) -> list[tuple[object, ...]]:
    def text(value: object) -> str:
        return "_" if value is None else str(value)

    def features(value: object) -> str:
        return "|".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "_"

    return [
        (
            *(text(token[name]) for name in ("form", "lemma", "upos", "xpos", "deprel")),
            features(token["feats"]),
            token["head"],
        )
        for token in sentence
        if isinstance(token["id"], int)
    ]


def assert_same(path: Path) -> int:
    ours = list(read(path, unit="sentence"))
    with path.open(encoding="utf-8") as file:
        theirs = list(conllu.parse_incr(file))
    assert len(ours) == len(theirs)
    for document, sentence in zip(ours, theirs, strict=True):
        assert in_columns(document) == peers_columns(sentence)
        if "text" in sentence.metadata:
            assert document.text == sentence.metadata["text"]
    return sum(len(document.words) for document in ours)


@pytest.mark.parametrize("name", TREEBANKS)
def test_a_treebank(name: str, data_folder: Path) -> None:
    assert assert_same(data_folder / name) > 25_000


def test_the_bundled_corpus_and_multiword_tokens(tmp_path: Path) -> None:
    demo = (resources.files("headscope.text") / "demo.conllu").read_text(encoding="utf-8")
    path = tmp_path / "a.conllu"
    path.write_text(demo.rstrip("\n") + "\n\n" + HARD, encoding="utf-8")
    assert assert_same(path) > 1_000
