"""Weights of a graph in fewer bytes: 16-bit floats, 8-bit blocks, or a GGUF file's own blocks.

The graph turns them back into float32, so the page computes as the model does. New 4-bit weights
are not offered: they change which key gets most attention in 9 % of the rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from headscope.errors import MissingExtra, ModelError
from headscope.model.packaged.pinned import PACKAGED

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


class Blocks(NamedTuple):
    """A matrix `row column` in blocks of 32 columns: `scale · code + minimum`."""

    name: str
    weights: np.ndarray
    """`row column`, float32."""
    codes: np.ndarray
    """`row block 32`; 8-bit codes count from 128."""
    scales: np.ndarray
    minima: np.ndarray | None
    """None for 8-bit blocks, which have none."""


def pack(
    proto: onnx.ModelProto, storage: Storage, blocks: Iterable[Blocks] = ()
) -> onnx.ModelProto:
    """Return the graph with its large weights packed; `blocks` are those of a GGUF file."""
    import onnx

    packed = onnx.ModelProto()
    packed.CopyFrom(proto)
    graph = packed.graph
    if storage == "gguf":
        _keep_blocks(packed, blocks)
    elif storage != "float32":
        weights, nodes = list(graph.initializer), list(graph.node)
        del graph.initializer[:], graph.node[:]
        for weight in weights:
            is_large = weight.data_type == onnx.TensorProto.FLOAT and _size(weight) >= MIN_SIZE
            array = onnx.numpy_helper.to_array(weight) if is_large else None
            if array is None or float(np.abs(array).max()) > MAX_HALF:
                graph.initializer.append(weight)
            elif storage == "int8" and array.shape[-1] % BLOCK == 0:
                graph.node.extend(_as_int8(graph, weight.name, array))
            else:
                half = _add(graph, f"{weight.name}.half", array.astype(np.float16))
                graph.node.append(_cast(half, weight.name))
        graph.node.extend(nodes)
    return packed


def _size(weight: onnx.TensorProto) -> int:
    return int(np.prod(weight.dims))


def _add(graph: onnx.GraphProto, name: str, array: np.ndarray) -> str:
    import onnx

    graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
    return name


def _cast(source: str, target: str) -> onnx.NodeProto:
    import onnx

    return onnx.helper.make_node("Cast", [source], [target], to=onnx.TensorProto.FLOAT)


def _as_int8(graph: onnx.GraphProto, name: str, array: np.ndarray) -> list[onnx.NodeProto]:
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


def gguf_of(name: str) -> Path | None:
    """Return the GGUF file of a packaged model with this title, if it is installed."""
    for packaged in PACKAGED.values():
        if packaged.form == "gguf" and packaged.title == name and packaged.is_installed():
            return next(iter(packaged.verified_files().values()))
    return None


def read_blocks(path: Path) -> Iterator[Blocks]:
    """Yield the Q4_1 and Q8_0 matrices of a Llama's GGUF file, with rows as in transformers."""
    try:
        import gguf
    except ImportError:
        raise MissingExtra.of("gguf", "demo", "Keeping the blocks of a GGUF model") from None
    reader = gguf.GGUFReader(path)
    counts = ("attn_q", "head_count"), ("attn_k", "head_count_kv")
    heads = {key: reader.fields[f"llama.attention.{name}"].contents() for key, name in counts}
    for tensor in reader.tensors:
        kind = tensor.tensor_type.name
        if kind not in ("Q4_1", "Q8_0"):
            continue
        n_columns, n_rows = tensor.shape.tolist()
        raw = tensor.data.reshape(n_rows, n_columns // BLOCK, -1)
        scales = raw[..., :2].copy().view(np.float16)[..., 0]
        minima = None
        if kind == "Q4_1":
            minima = raw[..., 2:4].copy().view(np.float16)[..., 0]
            codes = np.concatenate([raw[..., 4:] & 15, raw[..., 4:] >> 4], -1)
        else:
            codes = (raw[..., 2:].view(np.int8).astype(np.int16) + 128).astype(np.uint8)
        weights = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        order = np.arange(n_rows)
        short = tensor.name.split(".")[2] if tensor.name.startswith("blk.") else ""
        if short in heads:  # see `convert_gguf`: halves of a head are interleaved
            order = order.reshape(heads[short], -1, 2).swapaxes(1, 2).ravel()
        if minima is None or np.all(scales != 0):
            least = None if minima is None else minima[order]
            weights = weights.reshape(n_rows, n_columns)[order]
            yield Blocks(tensor.name, weights, codes[order], scales[order], least)


def _keep_blocks(packed: onnx.ModelProto, blocks: Iterable[Blocks]) -> None:
    """Replace the weights that equal a matrix of blocks, or its transpose, by the blocks.

    Products become MatMulNBits; rows of an embedding are gathered, then unpacked.
    """
    import onnx

    make, graph = onnx.helper.make_node, packed.graph
    by_hash = {}
    for each in blocks:
        by_hash[_hash(each.weights)] = by_hash[_hash(each.weights.T)] = each
    found: dict[str, Blocks] = {}
    for weight in list(graph.initializer):
        if _size(weight) >= MIN_SIZE and weight.data_type == onnx.TensorProto.FLOAT:
            match = by_hash.get(_hash(onnx.numpy_helper.to_array(weight)))
            if match is not None:
                found[weight.name] = match
                graph.initializer.remove(weight)
    nodes = list(graph.node)
    del graph.node[:]
    for each in {id(each): each for each in found.values()}.values():
        graph.node.extend(_stored(graph, each))
    _add(graph, "blocks.middle", np.array(128, dtype=np.float32))
    _add(graph, "blocks.last", np.array([-1], dtype=np.int64))
    _add(graph, "blocks.rows", np.array([0, 0, -1], dtype=np.int64))
    for node in nodes:
        matched = [found[name] for name in node.input if name in found]
        if not matched:
            graph.node.append(node)
            continue
        each, output = matched[0], node.output[0]
        name = each.name
        if node.op_type == "Transpose":
            found[output] = each
        elif node.op_type == "MatMul":
            zero = [] if each.minima is None else [f"{name}.zero"]
            inputs = [node.input[0], f"{name}.codes", f"{name}.scale", *zero]
            n_rows, n_columns = each.weights.shape
            options = {"K": n_columns, "N": n_rows, "bits": 4 if zero else 8, "block_size": BLOCK}
            product = make("MatMulNBits", inputs, [output], domain="com.microsoft", **options)
            graph.node.append(product)
        elif node.op_type == "Gather" and each.minima is None:
            graph.node.extend(
                [
                    make("Gather", [f"{name}.codes", node.input[1]], [f"{output}.codes"]),
                    make("Gather", [f"{name}.half", node.input[1]], [f"{output}.half"]),
                    _cast(f"{output}.codes", f"{output}.whole"),
                    _cast(f"{output}.half", f"{output}.scale"),
                    make("Sub", [f"{output}.whole", "blocks.middle"], [f"{output}.centered"]),
                    make("Unsqueeze", [f"{output}.scale", "blocks.last"], [f"{output}.steps"]),
                    make("Mul", [f"{output}.centered", f"{output}.steps"], [f"{output}.blocks"]),
                    make("Reshape", [f"{output}.blocks", "blocks.rows"], [output]),
                ]
            )
        else:
            raise ModelError(f"{node.op_type} reads {name}, whose blocks cannot be kept there.")
    packed.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))


def _stored(graph: onnx.GraphProto, blocks: Blocks) -> list[onnx.NodeProto]:
    """Add the parts of a matrix; a 4-bit block has the zero point −minimum/scale."""
    import onnx

    name, _, codes, scales, minima = blocks
    make = onnx.helper.make_node
    nodes = [_cast(_add(graph, f"{name}.half", scales), f"{name}.scale")]
    if minima is None:
        _add(graph, f"{name}.codes", codes)
        return nodes
    _add(graph, f"{name}.codes", codes[..., 0::2] | (codes[..., 1::2] << 4))
    return [
        *nodes,
        _cast(_add(graph, f"{name}.minima", minima), f"{name}.minimum"),
        make("Div", [f"{name}.minimum", f"{name}.scale"], [f"{name}.ratio"]),
        make("Neg", [f"{name}.ratio"], [f"{name}.zero"]),
    ]


def _hash(array: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=16).digest()
