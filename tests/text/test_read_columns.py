"""CoNLL-2012 and OntoGUM."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import FileFormatError, HeadscopeError
from headscope.text.document import Mention
from headscope.text.readers.read import known_readers, read, reader_for
from headscope.text.readers.sentences import locate, spaced

CONLL2012 = """\
#begin document (nw/x/00/x_0001); part 000
nw/x/00/x_0001   0   0     The   DT  (TOP(S(NP*  -  -  -  Speaker#1  *  *  -  (1
nw/x/00/x_0001   0   1     dog   NN          *)  -  -  -  Speaker#1  *  *  -  1)|(2
nw/x/00/x_0001   0   2     did   VBD    (VP*  -  -  -  Speaker#1  *  *  -  -
nw/x/00/x_0001   0   3     n't   RB         *  -  -  -  Speaker#1  *  *  -  2)
nw/x/00/x_0001   0   4   -LRB-   -LRB-         *  -  -  -  Speaker#1  *  *  -  -
nw/x/00/x_0001   0   5     bark   VB         *  -  -  -  Speaker#1  *  *  -  -
nw/x/00/x_0001   0   6   -RRB-   -RRB-         *  -  -  -  Speaker#1  *  *  -  -
nw/x/00/x_0001   0   7     .   .         *))  -  -  -  Speaker#1  *  *  -  -

nw/x/00/x_0001   0   0     It   PRP  (TOP(S(NP*  -  -  -  Speaker#1  *  *  -  (1)
nw/x/00/x_0001   0   1     slept   VBD  *  -  -  -  Speaker#1  *  *  -  -

#end document
#begin document (nw/x/00/x_0001); part 001
nw/x/00/x_0001   1   0     Yes   UH  *  -  -  -  Speaker#1  *  *  -  -

#end document
"""

ONTOGUM = """\
# begin document GUM_news_dog
0\tThe\t(1
1\tdog\t1)
2\tbarked\t_
3\t.\t_
4\tIt\t(1)
5\tslept\t_
# end document
# begin document GUM_vlog_cat
0\tMeow\t_
# end document
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_conll2012(tmp_path: Path) -> None:
    path = write(tmp_path, "a.v4_gold_conll", CONLL2012)
    assert reader_for(path, known_readers()).name == "conll2012"
    first, second = read(path, unit="document")
    assert first.id == "nw/x/00/x_0001"
    assert first.text == "The dog didn't (bark). It slept"
    assert first.words[4] == "("
    assert first.xpos is not None
    assert first.xpos[:3] == ("DT", "NN", "VBD")
    assert first.upos is first.parents is first.relations is None
    assert first.sentences == ((0, 8), (8, 10))
    assert first.mentions == (
        Mention("1", ((0, 2),)),
        Mention("2", ((1, 4),)),
        Mention("1", ((8, 9),)),
    )
    assert first.meta == {"genre": "nw"}
    assert (second.id, second.text) == ("nw/x/00/x_0001/1", "Yes")
    assert [d.text for d in read(path, unit="sentence")] == [
        "The dog didn't (bark).",
        "It slept",
        "Yes",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0   3     n't", "0   4     n't", r"line 5: word number '4' .* word number 3"),
        ("nw/x/00/x_0001   0   3     n't   RB", "x", "line 5: word number '-'"),
        ("#end document\n#begin", "#fin\n#begin", "line 14: '#fin'. Expected '#begin document"),
    ],
)
def test_broken_conll2012(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = write(tmp_path, "a.conll", CONLL2012.replace(old, new))
    with pytest.raises(FileFormatError, match=message):
        list(read(path, unit="document"))
    assert sum(read(path, on_error="skip", unit="document").summary().skipped.values()) >= 1


def test_unbalanced_coreference_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", CONLL2012.replace("1)|(2", "1)").replace("-  (1)", "-  1)"))
    with pytest.raises(FileFormatError, match=r"line 5: '2\)' .* has no opening bracket"):
        list(read(path, unit="document"))
    corpus = read(path, on_error="skip", unit="document")
    assert corpus.summary().skipped == {"mentions": 2}
    assert corpus.summary().mentions == 1


def test_ontogum(tmp_path: Path) -> None:
    path = write(tmp_path, "a.ontogum.conll", ONTOGUM)
    assert reader_for(path, known_readers()).name == "ontogum"
    first, second = read(path, unit="document")
    assert (first.id, first.text) == ("GUM_news_dog", "The dog barked. It slept")
    assert first.sentences == ()
    assert first.mentions == (Mention("1", ((0, 2),)), Mention("1", ((4, 5),)))
    assert first.meta == {"genre": "news"}
    assert second.words == ("Meow",)
    assert [d.text for d in read(path, unit="sentence")][:2] == ["The dog barked.", "It slept"]


def test_broken_ontogum(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", ONTOGUM.replace("2\tbarked", "7\tbarked"))
    with pytest.raises(FileFormatError, match=r"line 4: .* three columns .* beginning with 2"):
        list(read(path, unit="document"))
    corpus = read(path, on_error="skip", unit="document")
    assert [d.id for d in corpus] == ["GUM_vlog_cat"]
    assert corpus.summary().skipped == {"documents": 1}


def conllu(*documents: tuple[str, str]) -> str:
    blocks = []
    for name, text in documents:
        lines = [f"# newdoc id = {name}"]
        for sentence in text.split(" / "):
            lines += [
                f"{i}\t{w}\t_\tX\t_\t_\t{0 if i == 1 else 1}\tdep\t_\tEntity=(9-x)"
                for i, w in enumerate(sentence.split(), 1)
            ]
            lines.append("")
        blocks.append("\n".join(lines))
    return "\n".join(blocks) + "\n"


def test_joining_ontogum_to_trees(tmp_path: Path) -> None:
    coreference = write(tmp_path, "a.conll", ONTOGUM)
    trees = write(
        tmp_path,
        "a.conllu",
        conllu(("GUM_vlog_cat", "Meow"), ("GUM_news_dog", "The dog barked . / It slept")),
    )
    cat, dog = read(trees, coreference=coreference, unit="document")
    assert cat.mentions == ()
    assert dog.mentions == (Mention("1", ((0, 2),)), Mention("1", ((4, 5),)))
    assert dog.parents is not None
    pieces = list(read(trees, coreference=coreference, unit="sentence"))
    assert [(p.text, len(p.mentions)) for p in pieces] == [
        ("Meow", 0),
        ("The dog barked .", 1),
        ("It slept", 1),
    ]


def test_joining_what_does_not_fit(tmp_path: Path) -> None:
    coreference = write(tmp_path, "a.conll", ONTOGUM.replace("0\tMeow", "0\t"))
    trees = write(
        tmp_path,
        "a.conllu",
        conllu(("GUM_vlog_cat", "|"), ("GUM_news_dog", "The cat barked . It slept"), ("z", "a")),
    )
    with pytest.raises(FileFormatError, match=r"word 1 is \('dog',\) against \('cat',\)"):
        list(read(trees, coreference=coreference, unit="document"))
    corpus = read(trees, coreference=coreference, on_error="skip", unit="document")
    assert [d.id for d in corpus] == ["GUM_vlog_cat"]  # an empty word stands for any
    assert corpus.summary().skipped == {"documents": 2}
    assert "has no document 'z'" in corpus.summary().messages[1]


def test_columns_of_no_known_format(tmp_path: Path) -> None:
    path = write(tmp_path, "a.conll", "EU NNP B-ORG\nrejects VBZ O\n")
    with pytest.raises(
        FileFormatError,
        match=r"ends in 'conll', but its format is unknown: it begins with 'EU NNP B-ORG'",
    ):
        list(read(path, unit="document"))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("He said , `` no '' .", "He said, ``no''."),
        ('" Yes , " ( she ) said : " 5 % of $ 3 . "', '"Yes," (she) said: "5% of $3."'),
        ("It 's the dogs ' , is n't it ?", "It's the dogs ', isn't it?"),
    ],
)
def test_spacing(words: str, text: str) -> None:
    assert locate(spaced(words.split()), None, "x", 1)[0] == text


@pytest.mark.filterwarnings("ignore:(?s).*The rest of the file is left out")
@settings(deadline=None)
@given(
    junk=st.lists(
        st.one_of(
            st.binary(max_size=20),
            st.sampled_from(
                [*CONLL2012.encode().splitlines(True), *ONTOGUM.encode().splitlines(True)]
            ),
        )
    ),
    kind=st.sampled_from(["conll2012", "ontogum"]),
)
def test_hostile_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, junk: list[bytes], kind: str
) -> None:
    path = tmp_path_factory.mktemp("junk") / "a.conll"
    path.write_bytes(b"".join(junk))
    for on_error in ("raise", "skip"):
        with contextlib.suppress(HeadscopeError):
            list(read(path, format=kind, on_error=on_error, unit="document"))  # type: ignore[arg-type]
