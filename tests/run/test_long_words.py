"""Words of too many tokens are left out of every metric, as queries and as keys."""

from __future__ import annotations

import numpy as np
import pytest

import headscope as hs
from headscope.errors import InputError
from headscope.text.document import Document
from headscope.text.tokens import overlong

URL = "https://example.org/" + "".join(f"{n * 7919 % 997}a-b/" for n in range(99))[:462]
PLAIN = Document.from_words(
    ["Dogs", "bark", "loudly", "at", "the", "old", "cat", "."],
    "plain",
    parents=[1, -1, 1, 6, 6, 6, 1, 1],
    relations=["nsubj", "root", "advmod", "case", "det", "amod", "obl", "punct"],
)
WITH_URL = Document.from_words(
    ["Dogs", "read", URL, "there", "every", "day", "."],
    "url",
    parents=[1, -1, 1, 2, 5, 1, 1],
    relations=["nsubj", "root", "obj", "advmod", "det", "obl", "punct"],
)


def test_the_url() -> None:
    assert len(URL) == 482


def test_text_without_spaces_is_counted_in_tokens() -> None:
    text = "ab " + "x" * 50 + " cd"
    offsets = [(0, 2), *((n, n + 1) for n in range(3, 53)), (54, 56)]
    assert overlong(text, offsets, 40).tolist() == [-1, *[0] * 50, -1]
    assert overlong(text, offsets, 50).max() == overlong(text, offsets, None).max() == -1
    assert overlong(text[3:], [(0, 1), *((n, n + 1) for n in range(1, 50))], 40)[0] == -1
    thai = "ก" * 50
    assert overlong(thai, [(n, n + 1) for n in range(50)], 40).max() == -1


@pytest.mark.packaged
@pytest.mark.parametrize("compiled", [False, True])
def test_every_number_is_that_of_the_other_tokens(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled:
        pytest.importorskip("numba")
        monkeypatch.setattr("headscope.run.analyze.COMPILED_FROM", 0)
    model = hs.load("minilm")
    names = ["null_share", "distance", "entropy", "dep_alignment", "class_share", "dep_accuracy"]
    names += ["tokens_per_document", "row_entropy", "js"]
    result = hs.analyze(model, [WITH_URL], names, workers=1)
    assert ", 1 word of over 40 tokens left out" in result.summary
    trace = model.trace(WITH_URL.text, vectors=False)
    weights = trace.attention.values.astype(np.float64)
    special = np.array(trace.text.special)
    start, end = WITH_URL.spans[2]
    inside = np.array([start <= a and b <= end and a < b for a, b in trace.text.offsets])
    assert inside.sum() > 200
    kept = np.flatnonzero(~inside)
    text = [i for i in kept if not special[i]]
    null = [i for i in kept if special[i]]
    region = weights[:, :, text][..., text]
    to_null = weights[:, :, text][..., null].sum((-1, -2))
    total = region.sum((-1, -2))
    np.testing.assert_allclose(result["null_share"], to_null / (to_null + total), rtol=1e-4)
    places = np.arange(len(text))  # left-out tokens take no place
    distances = np.abs(np.subtract.outer(places, places))
    expected = (region * distances).sum((-1, -2)) / total
    np.testing.assert_allclose(result["distance"], expected, rtol=1e-4)
    whole = weights[:, :, kept][..., kept]
    rows = whole / whole.sum(-1, keepdims=True)
    expected = -(rows * np.log(rows)).sum(-1).mean(-1)
    np.testing.assert_allclose(result["row_entropy"], expected, rtol=1e-4, atol=1e-6)
    first = result["class_share"].sel(key_class="first")
    expected = whole[..., 0].sum(-1) / whole.sum((-1, -2))
    np.testing.assert_allclose(first.transpose("layer", "head"), expected, rtol=1e-4)
    a, b = whole[0, 0], whole[3, 5]
    middle = (a + b) / 2
    terms = (a * np.log(a) + b * np.log(b)) / 2 - middle * np.log(middle)
    expected = terms.sum() / len(kept)
    found = result["js"].sel(layer_a=0, head_a=0, layer_b=3, head_b=5)
    assert float(found) == pytest.approx(expected, rel=1e-3)
    assert float(result["tokens_per_document"]) == len(text)
    # Neither the URL nor its dependent (there) is a case.
    assert float(result["accuracy_count"].max()) == len(WITH_URL) - 2


@pytest.mark.packaged
def test_a_url_does_not_outweigh_the_corpus() -> None:
    model = hs.load("minilm")
    shares = {}
    for limit in (None, 40):
        alone, both = (
            hs.analyze(model, documents, ["distance"], workers=1, max_word_tokens=limit)
            for documents in ([WITH_URL], [WITH_URL] + [PLAIN.within(f"d{n}") for n in range(100)])
        )
        sums = [float(r.states["self"]["distance"]["numerator"].sum()) for r in (alone, both)]
        shares[limit] = sums[0] / sums[1]
    n_tokens = [len(WITH_URL) - 1, len(WITH_URL) - 1 + 100 * len(PLAIN)]
    assert shares[None] > 0.3
    assert shares[40] <= 1.5 * n_tokens[0] / n_tokens[1]  # its share of the counted tokens


def test_the_option_is_checked() -> None:
    with pytest.raises(InputError, match="max_word_tokens"):
        hs.analyze("minilm", ["A text."], max_word_tokens=0)
