from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.errors import FileFormatError, HeadscopeError
from headscope.text.document import NO_PARENT, ROOT, Document, Mention
from headscope.text.readers.read import read


def rows(*lines: str) -> str:
    return "\n".join(line.replace(" ", "\t") for line in lines) + "\n"


GERMAN = (
    "# newdoc id = zug\n# global.Entity = eid-etype-head\n# meta::genre = travel\n# newpar\n"
    "# sent_id = zug-1\n# text = Er geht zum Zug, oder?\n"
    + rows(
        "1 Er er PRON PPER _ 2 nsubj _ Entity=(e1-person-1)",
        "2 geht gehen VERB VVFIN _ 0 root _ _",
        "3-4 zum _ _ _ _ _ _ _ _",
        "3 zu zu ADP APPR _ 5 case _ _",
        "4 dem der DET ART _ 5 det _ Entity=(e2-object-2",
        "5 Zug Zug NOUN NN _ 2 obl _ Entity=e2)|SpaceAfter=No",
        "6 , , PUNCT $, _ 7 punct _ _",
        "7 oder oder CCONJ KON _ 2 discourse _ SpaceAfter=No",
        "7.1 geht gehen VERB VVFIN _ _ _ 0:root _",
        "8 ? ? PUNCT $. _ 2 punct _ _",
    )
    + "\n# sent_id = zug-2\n# text = Don't!\n"
    + rows(
        "1-2 Don't _ _ _ _ _ _ _ SpaceAfter=No",
        "1 Do do AUX VB _ 0 root _ _",
        "2 n't not PART RB _ 1 advmod _ _",
        "3 ! ! PUNCT . _ 1 punct _ _",
    )
    + "\n# newpar\n# sent_id = zug-3\n# text = Er kam.\n"
    + rows(
        "1 Er er PRON PPER _ 2 nsubj _ Entity=(e1-person-1)",
        "2 kam kommen VERB VVFIN _ 0 root _ SpaceAfter=No",
        "3 . . PUNCT $. _ 2 punct _ _",
    )
    + "\n# newdoc\n# text = Ja.\n"
    + rows("1 Ja ja INTJ ITJ _ 0 root _ SpaceAfter=No", "2 . . PUNCT $. _ 1 punct _ _")
    + "\n"
)


@pytest.fixture
def german(tmp_path: Path) -> Path:
    path = tmp_path / "zug.conllu"
    path.write_text(GERMAN, encoding="utf-8")
    return path


def test_every_part_of_a_document(german: Path) -> None:
    first, second = read(german, unit="document")
    assert first.id == "zug"
    assert first.text == "Er geht zum Zug, oder? Don't!\n\nEr kam."
    assert first.words == (
        *("Er", "geht", "zu", "dem", "Zug", ",", "oder", "?"),
        *("Do", "n't", "!"),
        *("Er", "kam", "."),
    )
    assert first.spans[:6] == ((0, 2), (3, 7), (8, 11), (8, 11), (12, 15), (15, 16))
    assert [first.text[a:b] for a, b in first.spans[8:11]] == ["Do", "n't", "!"]
    assert first.sentences == ((0, 8), (8, 11), (11, 14))
    assert first.paragraphs == ((0, 11), (11, 14))
    assert first.parents == (1, ROOT, 4, 4, 1, 6, 1, 1, ROOT, 8, 8, 12, ROOT, 12)
    assert first.relations is not None
    assert first.relations[:4] == ("nsubj", "root", "case", "det")
    assert first.upos is not None
    assert first.upos[3] == "DET"
    assert first.xpos is not None
    assert first.xpos[3] == "ART"
    assert first.meta == {"genre": "travel"}
    assert first.mentions == (
        Mention("e1", ((0, 1),), "person", 0),
        Mention("e2", ((3, 5),), "object", 4),
        Mention("e1", ((11, 12),), "person", 11),
    )
    assert [len(mentions) for mentions in first.clusters().values()] == [2, 1]
    assert second.id == "zug-2"
    assert second.text == "Ja."
    assert second.meta == {}
    assert second.features is None


def test_units(german: Path) -> None:
    paragraphs = list(read(german, unit="paragraph"))
    assert [d.id for d in paragraphs] == ["zug-p1", "zug-p2", "zug-2-p1"]
    assert [d.part_of for d in paragraphs] == ["zug", "zug", "zug-2"]
    sentences = list(read(german, unit="sentence"))
    assert [d.id for d in sentences] == ["zug-1", "zug-2", "zug-3", "zug-2-1"]
    assert [d.text for d in sentences] == ["Er geht zum Zug, oder?", "Don't!", "Er kam.", "Ja."]
    assert sentences[2].mentions == (Mention("e1", ((0, 1),), "person", 0),)
    assert sentences[0].meta == {"genre": "travel"}


def test_reading_by_sentence_is_cutting_the_document(german: Path) -> None:
    whole = [
        part for document in read(german, unit="document") for part in document.split("sentence")
    ]
    for a, b in zip(whole, read(german, unit="sentence"), strict=True):
        assert (a.text, a.spans, a.parents, a.mentions) == (b.text, b.spans, b.parents, b.mentions)


def test_sentences_outside_documents_stand_for_themselves(tmp_path: Path) -> None:
    one = rows("1 Ja ja INTJ _ _ 0 root _ _")
    (tmp_path / "a.conllu").write_text(f"{one}\n{one}\n", encoding="utf-8")
    assert [d.id for d in read(tmp_path / "a.conllu", unit="document")] == ["a-1", "a-2"]
    (tmp_path / "b.conllu").write_text(
        f"# newpar\n{one}\n{one}\n# newpar id = x\n{one}\n", encoding="utf-8"
    )
    assert [(d.id, len(d)) for d in read(tmp_path / "b.conllu", unit="document")] == [
        ("b-p1", 2),
        ("x", 1),
    ]
    assert [len(d) for d in read(tmp_path / "b.conllu", unit="sentence")] == [1, 1, 1]


@pytest.mark.parametrize("end", ["\n\n", "\n", ""])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("compressed", [False, True])
def test_ends_marks_and_compression_make_no_difference(
    german: Path, tmp_path: Path, end: str, newline: str, bom: str, compressed: bool
) -> None:
    text = (bom + GERMAN.rstrip("\n") + end).replace("\n", newline)
    path = tmp_path / ("other.conllu.gz" if compressed else "other.conllu")
    data = text.encode()
    path.write_bytes(gzip.compress(data) if compressed else data)
    assert [(d.text, d.parents, d.mentions) for d in read(path, unit="document")] == [
        (d.text, d.parents, d.mentions) for d in read(german, unit="document")
    ]


GOOD = rows("1 Ja ja INTJ _ _ 0 root _ _")


@pytest.mark.parametrize(
    ("bad", "line", "message"),
    [
        (rows("1 Ja ja INTJ _ _ 0 root _"), 3, r"9 columns .* Expected ten columns"),
        ("1 Ja ja INTJ _ _ 0 root _ _\n", 3, r"1 columns in '1 Ja ja"),
        (rows("2 Ja ja INTJ _ _ 0 root _ _"), 3, r"ID is '2'. Expected 1, a range from it \(1-2\)"),
        (rows("x Ja ja INTJ _ _ 0 root _ _"), 3, r"ID is 'x'"),
        (rows("1-3 Ja _ _ _ _ _ _ _ _", "1 Ja ja INTJ _ _ 0 root _ _"), 3, r"reaches to 3"),
        (rows("1 Ja ja INTJ _ _ x root _ _"), 3, r"HEAD is 'x'. Expected a word's number"),
        (rows("1 Ja ja INTJ _ _ 7 root _ _"), 3, r"parent of word 1 is word 7, but there are 1"),
        (rows("1 Ja ja INTJ _ _ 1 root _ _"), 3, r"parent of word 1 is word 1, the word itself"),
        (
            rows("1 Ja ja INTJ _ _ 2 dep _ _", "2 ja ja INTJ _ _ 1 dep _ _"),
            3,
            "has no root, expected exactly one",
        ),
        (
            rows("1 Ja ja INTJ _ _ 0 root _ _", "2 ja ja INTJ _ _ 0 root _ _"),
            3,
            r"2 roots \(words \[1, 2\]\)",
        ),
        (
            rows("1 a a X _ _ 0 root _ _", "2 b b X _ _ 3 dep _ _", "3 c c X _ _ 2 dep _ _"),
            3,
            r"has a cycle: following the parents from word 2 never reaches .*\[2, 3\]",
        ),
        (
            rows("1 Ja ja INTJ _ _ 0 root _ _", "2 ja ja INTJ _ _ _ dep _ _"),
            3,
            "word 2 has no HEAD, others have one",
        ),
        ("# sent_id = s\n# text = Nein\n" + GOOD, 5, "text continues with 'Nein', the words with"),
        ("# sent_id = s\n# text = Ja ja\n" + GOOD, 5, "goes on after the last word with ' ja'"),
    ],
)
def test_a_broken_sentence_is_pointed_at_or_skipped(
    tmp_path: Path, bad: str, line: int, message: str
) -> None:
    path = tmp_path / "broken.conllu"
    path.write_text(f"{GOOD}\n{bad}\n{GOOD}\n", encoding="utf-8")
    with pytest.raises(FileFormatError, match=message) as caught:
        list(read(path, unit="document"))
    assert f"{path}, line {line}:" in str(caught.value)
    assert 'on_error="skip"' in str(caught.value)
    corpus = read(path, on_error="skip", unit="document")
    assert [d.text for d in corpus] == ["Ja", "Ja"]
    assert corpus.summary().skipped == {"sentences": 1}
    assert f"line {line}:" in corpus.summary().messages[0]


def test_the_sentence_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.conllu"
    path.write_text("# sent_id = s-9\n" + rows("1 a a X _ _ 9 dep _ _") + "\n", encoding="utf-8")
    with pytest.raises(FileFormatError, match="sentence 's-9': the parent of word 1 is word 9"):
        list(read(path, unit="document"))


def test_what_a_skipped_sentence_opens_is_opened_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "broken.conllu"
    bad = rows("1 a a X _ _ 9 dep _ _")
    path.write_text(
        f"# newdoc id = one\n{GOOD}\n# newdoc id = two\n# meta::genre = g\n{bad}\n{GOOD}\n",
        encoding="utf-8",
    )
    documents = list(read(path, on_error="skip", unit="document"))
    assert [(d.id, len(d), dict(d.meta)) for d in documents] == [
        ("one", 1, {}),
        ("two", 1, {"genre": "g"}),
    ]


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "bytes.conllu"
    path.write_bytes(GOOD.encode() + b"\n1\tJ\xff\tja\n\n" + GOOD.encode())
    with pytest.raises(FileFormatError, match=r"line 3: byte 0xff at position 3 is not UTF-8"):
        list(read(path, unit="document"))
    corpus = read(path, on_error="skip", unit="document")
    assert len(list(corpus)) == 2
    assert corpus.summary().skipped == {"sentences": 1}


def test_heads_may_be_unknown(tmp_path: Path) -> None:
    path = tmp_path / "tags.conllu"
    path.write_text(
        f"# newdoc\n{GOOD}\n" + rows("1 Ja ja INTJ _ _ _ _ _ _", "2 so so ADV _ _ _ _ _ _") + "\n",
        encoding="utf-8",
    )
    (document,) = read(path, unit="document")
    assert document.parents == (ROOT, NO_PARENT, NO_PARENT)
    assert [d.parents for d in read(path, unit="sentence")] == [(ROOT,), None]


def test_the_text_may_have_other_spaces_than_the_words_say(tmp_path: Path) -> None:
    path = tmp_path / "spaces.conllu"
    path.write_text(
        "# text = 10 000\u00a0km  weit\n"
        + "1\t10 000\t_\tNUM\t_\t_\t2\tnummod\t_\t_\n2\tkm\t_\tNOUN\t_\t_\t3\tobl\t_\t_\n"
        + "3\tweit\t_\tADV\t_\t_\t0\troot\t_\t_\n",
        encoding="utf-8",
    )
    (document,) = read(path, unit="document")
    assert document.text == "10 000\u00a0km  weit"
    assert [document.text[a:b] for a, b in document.spans] == ["10 000", "km", "weit"]


def test_entities_need_their_id_first(tmp_path: Path) -> None:
    path = tmp_path / "old.conllu"
    path.write_text(f"# global.Entity = etype-eid\n{GOOD}\n", encoding="utf-8")
    with pytest.raises(FileFormatError, match=r"global.Entity begins with 'etype'"):
        list(read(path, unit="document"))


def to_conllu(document: Document) -> str:
    """A plain writer, the inverse of the reader for documents without contractions."""
    lines = [f"# newdoc id = {document.id}"]
    for start, stop in document.sentences:
        assert document.parents is not None
        assert document.upos is not None
        if any(start == p for p, _ in document.paragraphs):
            lines.append("# newpar")
        for word in range(start, stop):
            last = word + 1 == stop
            gap = last or document.spans[word][1] < document.spans[word + 1][0]
            head = document.parents[word]
            lines.append(
                f"{word - start + 1}\t{document.words[word]}\t_\t{document.upos[word]}\t_\t_\t"
                f"{0 if head == ROOT else head - start + 1}\tdep\t_\t"
                f"{'_' if gap else 'SpaceAfter=No'}"
            )
        lines.append("")
    return "\n".join(lines) + "\n"


@st.composite
def documents(draw: st.DrawFn) -> Document:
    text, words, spans, heads, sentences, paragraphs = "", [], [], [], [], [0]
    forms = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=4)
    for number in range(draw(st.integers(1, 4))):
        n = draw(st.integers(1, 5))
        first = len(words)
        if number:
            if draw(st.booleans()):
                text += "\n\n"
                paragraphs.append(first)
            else:
                text += " "
        root = draw(st.integers(0, n - 1))
        for i in range(n):
            form = draw(forms)
            words.append(form)
            spans.append((len(text), len(text) + len(form)))
            text += form
            if i + 1 < n and draw(st.booleans()):
                text += " "
            # Always towards the root, so that there is no cycle.
            toward = draw(st.integers(min(i + 1, root), max(i - 1, root))) if i != root else 0
            heads.append(ROOT if i == root else first + toward)
        sentences.append((first, len(words)))
    return Document(
        "doc",
        text,
        tuple(words),
        tuple(spans),
        tuple(sentences),
        tuple(zip(paragraphs, [*paragraphs[1:], len(words)], strict=True)),
        upos=("X",) * len(words),
        parents=tuple(heads),
        relations=("dep",) * len(words),
    )


@settings(deadline=None)
@given(document=documents())
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, document: Document) -> None:
    path = tmp_path_factory.mktemp("round") / "a.conllu"
    path.write_text(to_conllu(document), encoding="utf-8", newline="\n")
    assert list(read(path, unit="document")) == [document]


@pytest.mark.filterwarnings("ignore:(?s).*The rest of the file is left out")
@settings(deadline=None)
@given(
    junk=st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from([b"\n", b"\n\n", b"\t", b"# newdoc\n", b"1-2\t", GOOD.encode()]),
        )
    )
)
def test_hostile_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, junk: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("junk") / "a.conllu"
    path.write_bytes(b"".join(junk))
    for on_error in ("raise", "skip"):
        try:
            for document in read(path, on_error=on_error, unit="document"):
                assert len(document.spans) == len(document.words)
        except HeadscopeError:
            pass


def test_comments_of_their_own_belong_to_the_next_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.conllu"
    path.write_text(
        f"# newdoc id = one\n# meta::genre = news\n\n# sent_id = lost\n\n{GOOD}\n"
        f"# newdoc id = none\n# meta::genre = poem\n# meta::year = 1900\n\n"
        f"# newdoc id = two\n# meta::genre = blog\n\n# newpar\n\n{GOOD}\n{GOOD}\n",
        encoding="utf-8",
    )
    documents = list(read(path, unit="document"))
    assert [(d.id, dict(d.meta), len(d.sentences)) for d in documents] == [
        ("one", {"genre": "news"}, 1),
        ("two", {"genre": "blog"}, 2),
    ]


def test_zero_pronouns_are_no_words(tmp_path: Path) -> None:
    """As in CorefUD's Spanish: the dropped subject is an empty node with a mention."""
    path = tmp_path / "es.conllu"
    path.write_text(
        "# newdoc id = d\n# global.Entity = eid-etype-head-other\n# text = Ana canta. Baila.\n"
        + rows(
            "1 Ana Ana PROPN _ _ 2 nsubj _ Entity=(e1-person-1-)",
            "2 canta cantar VERB _ _ 0 root _ SpaceAfter=No",
            "3 . . PUNCT _ _ 2 punct _ _",
            "3.1 _ _ PRON _ _ _ _ 4:nsubj Entity=(e1-person-1-)",
            "4 Baila bailar VERB _ _ 2 parataxis _ SpaceAfter=No|Entity=(e2-event-1-)",
            "5 . . PUNCT _ _ 4 punct _ _",
        )
        + "\n",
        encoding="utf-8",
    )
    (document,) = read(path, unit="document")
    assert document.words == ("Ana", "canta", ".", "Baila", ".")
    assert [(m.cluster, m.spans) for m in document.mentions] == [
        ("e1", ((0, 1),)),
        ("e2", ((3, 4),)),
    ]
