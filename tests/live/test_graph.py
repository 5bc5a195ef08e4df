"""The exported graph is the model: attention, outputs, vectors, heads off, cells set."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

import headscope as hs
from headscope.errors import MissingExtra, ModelError
from headscope.live.graph import Graph, compare, export, random_input, session
from headscope.model.model import Model
from tests.conftest import word_piece_tokenizer
from tests.families.shrink import seeded, tiny
from tests.families.zoo import COMMON, ENCODER_DECODERS, OTHERS, build
from tests.model import media_zoo

Export = Callable[[Model], Graph]
FAMILIES = ["tiny_bert", "tiny_classifier", "tiny_gpt2", "tiny_llama"]
KINDS = {"tiny_bert": "mask", "tiny_classifier": "label", "tiny_gpt2": "next", "tiny_llama": "next"}


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Model:
    found: Model = request.getfixturevalue(request.param)
    assert KINDS[request.param] == export_of(request)(found).kind
    return found


def export_of(request: pytest.FixtureRequest) -> Export:
    made: Export = request.getfixturevalue("exported")
    return made


def ids_of(n: int) -> Tensor:
    return torch.randint(5, 40, (1, n), generator=torch.Generator().manual_seed(n))


def run(graph: Graph, ids: Tensor, *off: tuple[int, int] | None, **more: np.ndarray) -> Any:
    """Outputs of the graph by name, with the logits of all positions."""
    running = session(graph.proto.SerializeToString())
    names = [output.name for output in running.get_outputs()]
    inputs = graph.inputs({"input_ids": ids}, off or (None,), range(ids.shape[1])) | more
    return dict(zip(names, running.run(names, inputs), strict=True))


def logits(model: Model, ids: Tensor) -> np.ndarray:
    found: np.ndarray = model.run({"input_ids": ids})["logits"].numpy()
    return found


@pytest.mark.parametrize("n", [1, 2, 13, 40])
def test_the_graph_returns_what_the_model_computes(model: Model, exported: Export, n: int) -> None:
    maps: list[Tensor] = []
    expected = model.run(
        {"input_ids": ids_of(n)}, lambda attention: maps.append(attention.weights.clone())
    )
    found = run(exported(model), ids_of(n))
    assert np.abs(found["attention"][0] - torch.cat(maps).numpy()).max() < 1e-5
    np.testing.assert_allclose(found["output"], expected["logits"].numpy(), rtol=0, atol=2e-5)


def test_a_closed_gate_is_an_ablated_head(model: Model, exported: Export) -> None:
    ids = ids_of(9)
    heads = [(layer, head) for layer in range(2) for head in (0, 3)]
    found = run(exported(model), ids, None, *heads)
    for row, (layer, head) in enumerate(heads, 1):
        with model.edit(hs.ablate(layer, head)):
            expected = logits(model, ids)
        np.testing.assert_allclose(found["output"][row], expected[0], rtol=0, atol=2e-5)
        assert np.abs(found["output"][row] - found["output"][0]).max() > 1e-4  # it acts
    # Rows of a batch do not know of one another.
    assert np.abs(found["output"][0] - run(exported(model), ids)["output"][0]).max() < 1e-5


def test_cells_are_set_as_set_attention_does(model: Model, exported: Export) -> None:
    ids = ids_of(9)
    cells = np.array([[0, 1, 5, 2], [1, 3, 8, 0], [1, 3, 8, 4]])
    weights = np.array([0.7, 0.2, 0.2], dtype=np.float32)
    edits = [
        hs.set_attention(0, 1, query=5, key=2, weight=0.7),
        hs.set_attention(1, 3, query=8, key=[0, 4], weight=0.2),
    ]
    maps: list[Tensor] = []
    with model.edit(*edits):
        expected = model.run(
            {"input_ids": ids}, lambda attention: maps.append(attention.weights.clone())
        )["logits"].numpy()
    found = run(exported(model), ids, cell=cells, cell_weight=weights)
    assert found["attention"][0, 0, 1, 5, 2] == pytest.approx(0.7)
    assert np.abs(found["attention"][0] - torch.cat(maps).numpy()).max() < 1e-5
    np.testing.assert_allclose(found["output"], expected, rtol=0, atol=2e-5)
    none = run(
        exported(model), ids, cell=cells[:0], cell_weight=weights[:0]
    )  # an empty list sets nothing
    np.testing.assert_allclose(none["output"], logits(model, ids), rtol=0, atol=2e-5)


def test_vectors_are_those_of_the_tap(model: Model, exported: Export) -> None:
    ids = ids_of(7)
    expected: dict[str, list[Tensor]] = {"queries": [], "keys": [], "values": []}

    def read(attention: Any) -> None:
        for name, tensors in expected.items():
            tensors.append(getattr(attention, name).clone())

    model.run({"input_ids": ids}, read)
    found = run(exported(model), ids)
    assert exported(model).vectors == {"self": tuple(expected)}
    for name, tensors in expected.items():
        assert np.abs(found[name][0] - torch.cat(tensors).numpy()).max() < 1e-5


def test_the_graph_does_not_name_the_exporting_machine(model: Model, exported: Export) -> None:
    data = exported(model).proto.SerializeToString()
    for word in (b"site-packages", b"headscope", b"stack_trace", b'File "', sys.prefix.encode()):
        assert word not in data
    assert not any(node.metadata_props for node in exported(model).proto.graph.node)


@pytest.mark.parametrize("name", ["t5", "vit"])
def test_every_block_and_images_are_exported(name: str, exported: Export) -> None:
    model = hs.load(build(next(f for f in ENCODER_DECODERS + OTHERS if f.name == name)))
    graph = exported(model)
    one = random_input(model, 7, seed=3)
    off = [None, *((row, 1) for row in range(len(graph.sites)))]
    rows = range(4) if name == "t5" else ()
    running = session(graph.proto.SerializeToString())
    names = ["output", *graph.maps]
    found = running.run(names, graph.inputs(one, off, rows))
    for row, head in enumerate(off):
        edits = (
            []
            if head is None
            else [hs.ablate(graph.sites[head[0]].layer, 1, block=graph.sites[head[0]].block)]
        )
        maps: dict[str, list[Tensor]] = {block: [] for block in graph.blocks}
        with model.edit(*edits) if edits else nullcontext():
            expected = model.run(one, lambda a, maps=maps: maps[a.block].append(a.weights.clone()))
        logits = expected["logits" if name == "t5" else "last_hidden_state"]
        np.testing.assert_allclose(found[0][row], logits[0].numpy(), rtol=0, atol=5e-5)
        assert row == 0 or np.abs(found[0][row] - found[0][0]).max() > 1e-4  # it acts
        for place, block in enumerate(graph.blocks):
            wanted = torch.cat(maps[block]).numpy()
            for layer, weights in enumerate(wanted):
                for h, one_head in enumerate(weights):
                    if one_head.any():  # the tap's map of an ablated head is 0
                        assert np.abs(found[1 + place][row, layer, h] - one_head).max() < 1e-5


def test_text_beside_an_image_is_refused() -> None:
    with pytest.raises(ModelError, match="reads input_ids and pixel_values, not text or images"):
        export(media_zoo.clip())


def test_experts_and_lists_of_ends_are_exported() -> None:
    small = tiny("mixtral", "MixtralForCausalLM").module
    small.config.eos_token_id = [2, 3]  # as Llama 3 has them
    before = small.get_experts_implementation()
    assert not export(hs.load(small)).error.exceeds(1e-5)
    assert small.get_experts_implementation() == before


def test_an_edited_model_is_refused(tiny_bert: Model) -> None:
    with tiny_bert.edit(hs.ablate(0, 0)), pytest.raises(ModelError, match="is being edited"):
        export(tiny_bert)


def test_a_score_is_refused() -> None:
    module = BertForSequenceClassification(BertConfig(**COMMON | {"num_labels": 1}))
    with pytest.raises(ModelError, match="a score, which has no probability"):
        export(hs.load(module.eval(), word_piece_tokenizer()))


def test_another_precision_is_refused() -> None:
    module = BertForMaskedLM(BertConfig(**COMMON)).eval().to(torch.bfloat16)
    with pytest.raises(ModelError, match="bfloat16 on cpu, not as float32"):
        export(hs.load(module, word_piece_tokenizer()))


def hooked(change: Callable[[Tensor], Tensor]) -> Model:
    """A BERT whose logits are changed."""
    module = seeded(BertForMaskedLM(BertConfig(**COMMON))).eval()
    module.cls.register_forward_hook(lambda _module, _args, logits: change(logits))
    return hs.load(module, word_piece_tokenizer())


def test_a_graph_that_differs_is_refused_with_the_number() -> None:
    def drift(logits: Tensor) -> Tensor:
        return logits * 1.01 if torch.compiler.is_exporting() else logits

    with pytest.raises(ModelError, match=r"differs from the model: .* 1e-02 \(output\)"):
        export(hooked(drift))


@torch.library.custom_op("headscope_tests::same", mutates_args=())
def same(x: Tensor) -> Tensor:
    return x.clone()


@same.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(ModelError, match=r"cannot be exported: operator headscope_tests\.same"):
        export(hooked(same))


def test_a_missing_extra_is_named(tiny_bert: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(MissingExtra, match=r"needs onnxscript.*headscope\[live\]"):
        export(tiny_bert)


def test_damage_is_measured(tiny_gpt2: Model, exported: Export) -> None:
    import onnx

    graph = exported(tiny_gpt2)
    damaged = onnx.ModelProto()
    damaged.CopyFrom(graph.proto)
    weight = max(damaged.graph.initializer, key=lambda x: np.prod(x.dims))
    array = onnx.numpy_helper.to_array(weight).copy()
    array[..., 0] += 0.5
    weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
    error = compare(tiny_gpt2, graph, damaged.SerializeToString())
    assert error.output > 1e-2
    assert graph.error.output < 1e-5
