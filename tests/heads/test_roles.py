"""Roles on one text: by hand, on real weights, and how often chance shows them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies.roles import sharpened

import headscope as hs
from headscope.heads.cards import make_card
from headscope.heads.head_map import map_heads
from headscope.heads.roles import (
    NAMES,
    NO_ROLE,
    ROLE_VARIABLES,
    ROLES,
    TOKEN_ROLES,
    RoleThresholds,
    corpus_roles,
    name_roles,
    role_places,
    role_sentence,
    role_shares,
)
from headscope.model.load import randomized
from headscope.page.evidence import make_evidence
from headscope.page.selection import first_look, widest_difference
from headscope.reporting.report import build_report
from headscope.results.trace import Trace
from headscope.run.analyze import analyze
from tests.run.corpora import make_corpus

TOKENS = ["[CLS]", "the", "cat", "saw", "the", "cat", "saw", ".", "[SEP]"]
SPECIAL = [token.startswith("[") for token in TOKENS]
N = len(TOKENS)
PARAGRAPH = (
    "The doctor asked the nurse a question about the patient. She looked at the chart, thought for "
    "a while, and then said that the fever had gone down. The doctor thanked her and went to the "
    "next room, where"
)


def rows(*targets: int) -> np.ndarray:
    """A head that pays 0.9 to one key from each query, and the rest evenly."""
    weights = np.full((N, N), 0.1 / N)
    weights[np.arange(N), targets] += 0.9
    return weights


HEADS = {
    "previous_token": rows(0, 0, 1, 2, 3, 4, 5, 6, 7),
    "next_token": rows(1, 2, 3, 4, 5, 6, 7, 8, 8),
    "current_token": rows(*range(N)),
    "duplicate_token": rows(0, 4, 5, 6, 1, 2, 3, 0, 0),
    "first_token": rows(*[0] * N),
    "special_token": rows(*[8] * N),
    "punctuation": rows(*[7] * N),
    "broad": np.full((N, N), 1 / N),
    "": rows(3, 5, 3, 1, 3, 3, 1, 2, 2),
}


def test_by_hand() -> None:
    weights = np.stack(list(HEADS.values()))[None]
    roles = Trace.from_arrays(weights, TOKENS, special=SPECIAL).roles()
    assert roles["role"].values[0].tolist() == list(HEADS)
    assert roles["queries"].values[0].tolist() == [6, 7, 7, 6, 7, 7, 7, 9, 0]
    shares = roles["share"].values[0]
    np.testing.assert_allclose(shares[:3], 0.9 + 0.1 / N)
    assert shares[7] == pytest.approx(1.0)
    assert np.isnan(shares[8])


def test_after_an_earlier_equal_token() -> None:
    tokens = list("abcdabcd")
    weights = np.tril(np.full((8, 8), 0.01))
    weights[np.arange(4, 8), np.arange(1, 5)] = 1.0
    weights /= weights.sum(-1, keepdims=True)
    roles = Trace.from_arrays(weights[None, None], tokens).roles()
    assert roles["role"].item() == "induction"
    assert roles["queries"].item() == 4


def test_a_previous_token_head_on_a_list_is_no_induction_head() -> None:
    """In A B A the previous token follows an equal one."""
    tokens = [token for fruit in "abcdefgh" for token in (fruit, ",")]
    weights = np.eye(16, k=-1)
    weights[0, 0] = 1.0
    roles = Trace.from_arrays(weights[None, None], tokens, is_causal=True).roles()
    assert roles["role"].item() == "previous_token"


def by_kind(weights: np.ndarray, places: np.ndarray, kinds: list[str]) -> tuple[float, int]:
    """The mean over kinds of tokens of their mean attention to a place, slowly; and the kinds."""
    means: dict[str, list[float]] = {}
    for query, kind in enumerate(kinds):
        if places[query].any():
            means.setdefault(kind, []).append(float(weights[query, places[query]].sum()))
    return float(np.mean([np.mean(values) for values in means.values()])), len(means)


def test_each_repeated_token_has_one_vote() -> None:
    """The commas of a list do not decide, and one kind of token shows nothing."""
    words = list("a,b,c,d,e,f,g,h,a,b,c")
    generator = np.random.default_rng(2)
    weights = np.tril(generator.random((2, 3, len(words), len(words))) ** 8 + 1e-9)
    comma = np.array([word == "," for word in words])
    weights[0, 0, comma] = 1e-9
    items = np.outer(comma, ~comma & (np.arange(len(words)) > 0))
    weights[0, 0][np.tril(items, -3)] = 1.0  # commas attend to the items before them
    weights /= weights.sum(-1, keepdims=True)
    trace = Trace.from_arrays(weights, words, is_causal=True)
    place = role_places(trace.main)["induction"]
    shares = role_shares(trace.main)
    for layer, head in np.ndindex(2, 3):
        expected, n_kinds = by_kind(weights[layer, head], place, words)
        assert n_kinds == 4
        assert shares.share("induction")[layer, head] == pytest.approx(expected)
    assert weights[0, 0][place].sum() / place.any(1).sum() > 0.5  # the mean over queries
    assert not shares.has("induction")[0, 0]
    alone = Trace.from_arrays(weights[..., :16, :16], words[:16], is_causal=True)
    assert role_shares(alone.main).queries[NAMES.index("induction")] == 0


def test_the_first_key_counts_for_no_content_role() -> None:
    trace = Trace.from_arrays(np.full((1, 1, 4, 4), 0.25), ["the", "cat", "the", "cat"])
    places = role_places(trace.main)
    assert not any(
        places[role][:, 0].any() for role in (*TOKEN_ROLES, "previous_token", "current_token")
    )
    assert places["duplicate_token"].any(-1).tolist() == [True, True, False, True]


def test_few_queries_show_nothing() -> None:
    weights = np.eye(3)[[0, 0, 1]][None, None]
    assert Trace.from_arrays(weights, list("abc")).roles()["role"].item() == ""


def test_heads_of_cross_attention_and_missing_heads() -> None:
    rng = np.random.default_rng(0)
    attention = {
        "encoder": rng.dirichlet(np.ones(5), size=(1, 2, 5)),
        "decoder": rng.dirichlet(np.ones(4), size=(1, 2, 4)),
        "cross": rng.dirichlet(np.ones(5) / 9, size=(1, 2, 4)),
    }
    stacks = {"encoder": list("abcde"), "decoder": list("wxyz")}
    trace = Trace.from_arrays(attention, stacks)
    for block in trace.blocks:
        assert set(trace.roles(block)["role"].values.ravel()) <= {*ROLES, ""}
    missing = np.stack([np.full((3, 3), np.nan), np.full((3, 3), 1 / 3)])[None]
    roles = Trace.from_arrays(missing, list("abc")).roles()
    assert roles["role"].values[0, 0] == ""


@pytest.mark.packaged
@pytest.mark.parametrize(
    ("alias", "texts", "n_written", "expected"),
    [
        (
            "minilm",
            ("The cat sat on the mat.", "The cat lay on the rug."),
            0,
            (2, 9, "cat → cat"),
        ),
        pytest.param("smollm2", (PARAGRAPH,), 12, (16, 0, "doctor → next"), marks=pytest.mark.long),
    ],
)
def test_pages_open_on_the_head_that_shows_most(
    alias: str, texts: tuple[str, ...], n_written: int, expected: tuple[int, int, str]
) -> None:
    trace = hs.load(alias).trace(*texts, generate=n_written, vectors=False)
    look = first_look(trace.main)
    assert (look.layer, look.head) == expected[:2]
    assert look.query is not None
    key = int(trace.attention.values[look.layer, look.head, look.query].argmax())
    shown = f"{trace.tokens[look.query].strip()} → {trace.tokens[key].strip()}"
    assert shown == expected[2]


@pytest.mark.packaged
def test_random_weights_show_no_content_roles() -> None:
    """At most one head in a hundred, also where random heads are as sharp as trained ones."""
    texts = [document.text for document in hs.demo_corpus()][:12]
    model = randomized(hs.load("minilm"), seed=3)
    count = named = 0
    for first, second in zip(texts[::2], texts[1::2], strict=True):
        trace = model.trace(first, second, vectors=False)
        for power in (1, 16, 256):
            roles = sharpened(trace, power).roles()["role"].values
            count += roles.size
            named += int(np.isin(roles.astype(str), TOKEN_ROLES).sum())
    assert count == 6 * 3 * 72
    assert named / count <= 0.01


def test_roles_over_a_corpus(encoder_results: list[Any]) -> None:
    analysis = next(result for result in encoder_results if "offset_share" in result)
    roles = corpus_roles(analysis.dataset)
    assert roles is not None
    assert roles.attrs["source"] == "corpus"
    rest = analysis["class_share"].sel(key_class="first").values
    found = roles["role"].values
    assert (rest[found == "first_token"] >= 0.5).all()
    assert corpus_roles(analysis.dataset.drop_vars("offset_share")) is None


def test_one_taxonomy_in_map_card_page_and_report(tiny_bert: hs.Model) -> None:
    """A head has one role, wherever it is named."""
    corpus = make_corpus(8)
    result = analyze(tiny_bert, corpus)
    roles = corpus_roles(result.dataset)
    assert roles is not None
    loose = corpus_roles(result.dataset, RoleThresholds(share=0.1, times_uniform=0.0, queries=1))
    assert loose is not None
    assert (loose["role"] != "").any()
    trace = tiny_bert.trace("the cat sat on the mat")
    evidence = make_evidence(result, trace)
    content = build_report([result])
    (figure,) = (f for s in content["sections"] for f in s["figures"] if f["id"] == "heads")
    named = map_heads(analyze(tiny_bert, corpus, [*ROLE_VARIABLES, "js"]), starts=1).data
    names = {
        (int(point["layer"]), int(point["head"])): str(point["role"].item())
        for point in (named.isel(at=i) for i in range(named.sizes["at"]))
    }
    for card in content["cards"][0]:
        layer, head = card["layer"], card["head"]
        role = str(roles["role"].values[layer, head])
        share = float(roles["share"].values[layer, head])
        sentence = role_sentence(role, share, f"over {result.n_documents:,} documents")
        assert sentence in card["summary"]
        assert evidence.part["cards"][f"L{layer}H{head}"]["sentences"][0] == sentence
        assert make_card(result, layer, head).role == role
        assert figure["roles"][0][layer][head] == role
        assert names[layer, head] == (ROLES[role].name if role else NO_ROLE)


def test_python_and_the_page_have_the_same_roles() -> None:
    """`web/src/paint/roles.ts` repeats names and colors."""
    page = (Path(__file__).parents[2] / "web/src/paint/roles.ts").read_text(encoding="utf-8")
    rows = re.findall(r'\["(\w+)", "[^"]*", "[^"]*", "([^"]+)", "(#\w+)"', page)
    shown = {role: (name, color) for role, name, color in rows if role != "unnamed"}
    assert shown == {role: (look.name, look.color) for role, look in ROLES.items()}


def test_a_comparison_opens_where_the_two_differ_most(tiny_llama: hs.Model) -> None:
    whole = tiny_llama.trace("the cat sat")
    with tiny_llama.edit(hs.ablate(0, 1)):
        edited = tiny_llama.trace("the cat sat")
    look = widest_difference(whole.main, edited.main)
    assert look is not None
    assert look.layer == 1  # L0 H1 itself is off: that it differs is no news
    apart = np.abs(whole.attention.values[1] - edited.attention.values[1]).sum(-1)
    # Sentence and ranking are about one row: the head that opens is its first one.
    assert (look.head, look.query) == np.unravel_index(apart.argmax(), apart.shape)
    asked = widest_difference(whole.main, edited.main, 1)
    assert asked is not None
    assert (asked.head, asked.query) == (apart[:, 1].argmax(), 1)
    assert widest_difference(whole.main, whole.main) is None
    assert name_roles(edited.main)["role"].values[0, 1] == ""
