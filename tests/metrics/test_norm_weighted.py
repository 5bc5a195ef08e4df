"""Every metric over norms is the metric of norm-weighted attention, made by a slow reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.errors import InputError, UnknownName
from headscope.results.trace import Trace
from tests.metrics.test_measure_is_analyze import OF_ATTENTION, make_document
from tests.run.corpora import make_documents

if TYPE_CHECKING:
    from headscope.model.model import Model


def slow_weights(trace: Trace, matrix: dict[int, np.ndarray]) -> np.ndarray:
    """`layer head query key` by loops: a[i,j]·‖v_j W‖, over its row's sum. `matrix` is by layer
    the whole output projection, `head·neuron unit`.
    """
    attention = trace.attention.values.astype(np.float64)
    values = trace.values.values.astype(np.float64)
    groups = trace.main.data["group_of_head"].values
    size = values.shape[-1]
    moved = np.zeros_like(attention)
    for layer, head in np.ndindex(*attention.shape[:2]):
        slice_ = matrix[layer][head * size : (head + 1) * size]
        for key in range(attention.shape[3]):
            length = np.sqrt(((values[layer, groups[head], key] @ slice_) ** 2).sum())
            moved[layer, head, :, key] = attention[layer, head, :, key] * length
    return moved / moved.sum(-1, keepdims=True)


def _matrix(model: Model, name: str) -> dict[int, np.ndarray]:
    modules = dict(model.module.named_modules())
    return {
        layer: modules[name.format(layer)].weight.detach().double().numpy().T
        for layer in range(model.info.n_layers)
    }


@pytest.mark.parametrize(
    ("fixture", "name"),
    [
        ("tiny_llama", "model.layers.{}.self_attn.o_proj"),
        ("tiny_bert", "bert.encoder.layer.{}.attention.output.dense"),
        ("minilm", "encoder.layer.{}.attention.output.dense"),
        ("smollm2", "model.layers.{}.self_attn.o_proj"),
    ],
)
def test_weights_equal_loops(fixture: str, name: str, request: pytest.FixtureRequest) -> None:
    model: Model = request.getfixturevalue(fixture)
    trace = model.trace("the cat sat on the mat", norms=True)
    slow = slow_weights(trace, _matrix(model, name))
    np.testing.assert_allclose(trace.norm_weighted().attention, slow, atol=1e-5)


@pytest.mark.parametrize("rows", [128, 4], ids=["whole", "rows"])
@pytest.mark.parametrize("fixture", ["tiny_llama", "tiny_bert"])
def test_every_metric_over_norms(
    fixture: str, rows: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """analyze(over="norm") = measure(over="norm") = the metric of the weighted attention."""
    monkeypatch.setattr("headscope.run.analyze.ROWS", rows)
    model: Model = request.getfixturevalue(fixture)
    document = make_document()
    trace = model.trace(document.text, norms=True)
    run = hs.analyze(model, [document], OF_ATTENTION, over="norm", max_tokens=None)
    one = trace.measure(OF_ATTENTION, document=document, over="norm")
    again = trace.norm_weighted().measure(OF_ATTENTION, document=document)
    plain = hs.analyze(model, [document], OF_ATTENTION, max_tokens=None)
    differs = []
    for name, values in again.dataset.data_vars.items():
        if values.dtype.kind != "f":
            continue
        np.testing.assert_allclose(one.dataset[name], values, atol=1e-6, err_msg=str(name))
        if name in run.dataset and run.dataset[name].shape == values.shape:
            np.testing.assert_allclose(
                run.dataset[name], values, atol=2e-5, rtol=1e-4, err_msg=str(name)
            )
            if not np.allclose(plain.dataset[name], values, equal_nan=True):
                differs.append(str(name))
    assert {"null_share", "distance", "entropy"} <= set(differs)
    assert run["distance"].attrs["over"] == one["distance"].attrs["over"] == "norm"
    assert again["distance"].attrs["over"] == again.over == "norm"
    assert "over" not in plain["distance"].attrs
    assert run.provenance["settings"]["over"] == "norm"
    with pytest.raises(InputError):
        hs.merge(plain, run)


def test_a_trace_is_weighted_once(tiny_bert: Model) -> None:
    once = tiny_bert.trace("the cat sat on the mat", norms=True).norm_weighted()
    np.testing.assert_array_equal(once.norm_weighted().attention, once.attention)
    np.testing.assert_array_equal(
        once.measure("distance", over="norm")["distance"], once.measure("distance")["distance"]
    )


def test_merged_results_and_groups_still_say_norm(tiny_bert: Model) -> None:
    first, second = make_documents(8), make_documents(6, 1, first=8)
    parts = [
        hs.analyze(tiny_bert, of, ["distance", "entropy"], over="norm", by="genre")
        for of in (first, second)
    ]
    whole = hs.analyze(
        tiny_bert, [*first, *second], ["distance", "entropy"], over="norm", by="genre"
    )
    merged = hs.merge(*parts)
    for name, array in whole.dataset.data_vars.items():
        assert merged.dataset[name].attrs.get("over") == array.attrs.get("over"), name
    assert whole["distance_mean"].attrs["over"] == "norm"
    assert whole["correlation"].attrs["over"] == "norm"
    assert "over" not in whole["tokens_per_document"].attrs
    assert "over" not in whole["tokens_per_document_interval"].attrs
    assert merged.group("news")["distance"].attrs["over"] == "norm"
    assert merged.groups["news"]["self"]["distance"].attrs["over"] == "norm"
    assert merged.figure("distance").axes[0].get_title() == "Mean distance, by norm"


def test_rows_without_length_are_counted(tiny_llama: Model) -> None:
    import copy

    module = copy.deepcopy(tiny_llama.module)
    with torch.no_grad():
        module.model.layers[0].self_attn.o_proj.weight[:, : tiny_llama.info.head_size] = 0
    model = hs.load(module, tiny_llama.tokenizer)
    result = hs.analyze(model, ["the cat sat"], ["null_share"], over="norm")
    n = len(model.trace("the cat sat").tokens)
    assert result.provenance["counts"]["rows_without_length"] == n


def test_what_cannot_be_over_norms(tiny_llama: Model) -> None:
    with pytest.raises(UnknownName, match="Unknown kind of attention 'norms'"):
        hs.analyze(tiny_llama, ["the cat"], over="norms")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="is a gradient with respect to attention"):
        hs.importance(tiny_llama, ["the cat"], over="norm")
    with pytest.raises(InputError, match="norms=True"):
        tiny_llama.trace("the cat").norm_weighted()


@pytest.mark.packaged
def test_is_null_attention_a_no_op(minilm: Model) -> None:
    texts = list(hs.demo_corpus("sentence"))[:40]
    plain, norm = (hs.analyze(minilm, texts, ["null_share"], over=o) for o in ("attention", "norm"))
    assert float(norm["null_share"].mean()) < 0.35 * float(plain["null_share"].mean())
