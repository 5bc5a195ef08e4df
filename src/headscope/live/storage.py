"""Weights of a graph in fewer bytes: 16-bit floats, 8-bit blocks, or a GGUF file's own blocks.

The graph turns them back into float32, so the page computes as the model does. New 4-bit weights
are not offered: they change which key gets most attention in 9 % of the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import onnx

Storage = Literal["float32", "float16", "int8", "gguf"]
NAMES: dict[Storage, str] = {
    "float32": "32-bit floats",
    "float16": "16-bit floats",
    "int8": "8-bit blocks of 32",
    "gguf": "4-bit and 8-bit blocks of the model's file",
}
MIN_SIZE = 2048
"""Smaller tensors (biases, norms) stay as they are."""
BLOCK = 32
MAX_HALF = 65504.0


def pack(proto: onnx.ModelProto, storage: Storage) -> onnx.ModelProto:
    """Return the graph with its large weights packed."""
    import onnx

    packed = onnx.ModelProto()
    packed.CopyFrom(proto)
    if storage == "float32":
        return packed
    graph = packed.graph
    weights = list(graph.initializer)
    del graph.initializer[:]
    nodes: list[onnx.NodeProto] = []
    for weight in weights:
        is_large = weight.data_type == onnx.TensorProto.FLOAT and np.prod(weight.dims) >= MIN_SIZE
        array = onnx.numpy_helper.to_array(weight) if is_large else None
        if array is None or float(np.abs(array).max()) > MAX_HALF:
            graph.initializer.append(weight)
        elif storage == "int8" and array.shape[-1] % BLOCK == 0:
            nodes += _as_blocks(graph, weight.name, array)
        else:
            nodes += _as_halves(graph, weight.name, array)
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])
    return packed


def _add(graph: onnx.GraphProto, name: str, array: np.ndarray) -> str:
    import onnx

    graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
    return name


def _cast(source: str, target: str) -> onnx.NodeProto:
    import onnx

    return onnx.helper.make_node("Cast", [source], [target], to=onnx.TensorProto.FLOAT)


def _as_halves(graph: onnx.GraphProto, name: str, array: np.ndarray) -> list[onnx.NodeProto]:
    return [_cast(_add(graph, f"{name}.half", array.astype(np.float16)), name)]


def _as_blocks(graph: onnx.GraphProto, name: str, array: np.ndarray) -> list[onnx.NodeProto]:
    """Store each 32 numbers of the last axis as int8 with one 16-bit scale."""
    import onnx

    blocks = array.reshape(-1, BLOCK)
    scales = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
    safe = np.where(scales > 0, scales, 1).astype(np.float32)
    codes = np.clip(np.rint(blocks / safe), -127, 127).astype(np.int8)
    make = onnx.helper.make_node
    _add(graph, f"{name}.codes", codes)
    _add(graph, f"{name}.scales", scales)
    _add(graph, f"{name}.shape", np.array(array.shape, dtype=np.int64))
    return [
        _cast(f"{name}.codes", f"{name}.whole"),
        _cast(f"{name}.scales", f"{name}.step"),
        make("Mul", [f"{name}.whole", f"{name}.step"], [f"{name}.flat"]),
        make("Reshape", [f"{name}.flat", f"{name}.shape"], [name]),
    ]
