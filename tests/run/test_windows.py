"""Windows: long documents in overlapping pieces, each token a query once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import headscope as hs
from headscope.errors import InputError
from headscope.metrics.core.layer_data import has_numba
from headscope.model.model import Model
from headscope.run import analyze as analyze_module
from headscope.run.batches import offsets_by
from headscope.text.document import Document
from headscope.text.segments import COUNTED, windows

TEXT = " ".join(["the cat sat on the mat", "a dog and the cat", "the end of a dog"] * 6)


@pytest.mark.parametrize("n_tokens", [3, 8, 15, 40])
def test_every_word_counts_once(n_tokens: int) -> None:
    text = "one two three four five six seven eight nine ten eleven twelve thirteen"
    document = Document.from_text(text, "d")
    words = lambda some: [(a, b) for a, b in Document.from_text(some, "x").spans]  # noqa: E731
    pieces = list(windows(document, words, n_tokens))
    counted = []
    for piece in pieces:
        assert len(piece) <= n_tokens
        start, stop = map(int, piece.meta.get(COUNTED, f"0:{len(text)}").split(":"))
        counted += [
            w for w, (a, _) in zip(piece.words, piece.spans, strict=True) if start <= a < stop
        ]
        assert piece.part_of == (None if len(pieces) == 1 else "d")
    assert tuple(counted) == document.words


def test_a_word_longer_than_a_window_is_one_window() -> None:
    document = Document.from_text("a bbbb c", "d")
    letters = lambda some: [(n, n + 1) for n in range(len(some))]  # noqa: E731
    assert [piece.text for piece in windows(document, letters, 3)] == ["a", "bbbb", "c"]


@pytest.mark.parametrize("name", ["tiny_bert", "tiny_llama"])
@pytest.mark.parametrize("is_compiled", [False, True], ids=["torch", "compiled"])
def test_sums_are_over_counted_queries(
    name: str, is_compiled: bool, request: pytest.FixtureRequest, monkeypatch
) -> None:
    if is_compiled and not has_numba():
        pytest.skip("numba is not installed")
    model: Model = request.getfixturevalue(name)
    make_plan = analyze_module.make_plan
    monkeypatch.setattr(
        analyze_module,
        "make_plan",
        lambda *args: replace(make_plan(*args), is_compiled=is_compiled, is_fused=is_compiled),
    )
    metrics = ["null_share", "distance", "offset_share", "duplicate_token", "tokens_per_document"]
    found = hs.analyze(model, [TEXT], metrics, windows=20, workers=1)
    sums = {metric: np.zeros(2) for metric in metrics}
    document = next(iter(hs.read([TEXT])))
    tokenizer = model.require_tokenizer()
    special = tokenizer.num_special_tokens_to_add(pair=False)
    pieces = list(windows(document, offsets_by(tokenizer), 20, special=special))
    n_tokens = 0
    for piece in pieces:
        trace = model.trace(piece.text)
        tokens, a = trace.text, trace.attention.values[1, 2]
        start, stop = map(int, piece.meta[COUNTED].split(":"))
        is_causal = name == "tiny_llama"
        for i, (at, _) in enumerate(tokens.offsets):
            if tokens.special[i] or not start <= at < stop:
                continue
            n_tokens += 1
            keys = range(i + 1) if is_causal else range(len(tokens))
            null = [j for j in keys if (j == 0 if is_causal else tokens.special[j])]
            rest = [j for j in keys if j not in null]
            sums["null_share"] += a[i, null].sum(), a[i].sum()
            sums["distance"] += sum(a[i, j] * abs(i - j) for j in rest), a[i, rest].sum()
            if i:
                sums["offset_share"] += a[i, i - 1], a[i].sum()
            real = [j for j in range(i) if not tokens.special[j]]
            same = [j for j in real if tokens.ids[j] == tokens.ids[i]]
            if same:
                sums["duplicate_token"] += a[i, same].sum(), a[i].sum()
    for metric in ("null_share", "distance", "duplicate_token"):
        value = float(found[metric].sel(layer=1, head=2))
        assert value == pytest.approx(sums[metric][0] / sums[metric][1], rel=1e-4), metric
    if name == "tiny_llama":  # special tokens of an encoder are queries of this metric too
        value = float(found["offset_share"].sel(layer=1, head=2, offset=-1))
        assert value == pytest.approx(sums["offset_share"][0] / sums["offset_share"][1], rel=1e-4)
    assert float(found["tokens_per_document"]) * len(pieces) == pytest.approx(n_tokens)
    assert "window of 20 tokens" in found.summary


def test_windows_of_a_document_are_one_document_in_intervals(tiny_bert: Model) -> None:
    texts = [{"id": f"d{n}", "text": f"{TEXT} the mat {n}"} for n in range(6)]
    windowed = hs.analyze(tiny_bert, hs.read(texts), ["null_share"], windows=20, workers=1)
    assert float(windowed["null_share_n_eff"].max()) <= 6 + 1e-6


def test_words_rows_and_heads_are_counted_in_one_window(tiny_llama: Model) -> None:
    document = next(iter(hs.read([TEXT])))
    n = len(document)
    parents = (*range(1, n), -1)
    sentences = ((0, n),)
    document = replace(document, sentences=sentences, parents=parents, relations=("det",) * n)
    metrics = ["js", "dep_accuracy", "dep_offset", "head_samples", "tokens_per_document"]
    found = hs.analyze(tiny_llama, [document], metrics, windows=20, workers=1)
    assert float(found["tokens_per_document_count"]) > 3
    n_tokens = round(float(found["tokens_per_document"] * found["tokens_per_document_count"]))
    assert float(found["js_count"]) == n_tokens
    assert n / 2 < float(found["cases"].sel(relation="all")) <= n
    rows = found.states["self"]["head_samples"]["sums"].values[..., 6]
    assert (rows == n_tokens).all()


def test_what_would_count_twice_is_refused(tiny_bert: Model, tiny_llama: Model) -> None:
    with pytest.raises(InputError, match="importance would count the overlap of windows twice"):
        hs.importance(tiny_llama, [TEXT], windows=20)
    with pytest.raises(InputError, match="leaves no room"):
        hs.analyze(tiny_bert, [TEXT], ["null_share"], windows=1)
