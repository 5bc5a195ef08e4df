"""Convert a Whisper model from CTranslate2's format into a transformers folder.

The file is little-endian: a version, the name and revision of a specification, variables, aliases.
A variable has name, shape, type and bytes; an alias has its name and the variable's. Integers are
weights divided by their scales. Unexpected content raises an error: a skipped variable would be a
weight without effect.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from headscope.errors import ModelError
from headscope.model.packaged.pinned import ConfigJson

BINARY_VERSION = 6
SPECIFICATION = ("WhisperSpec", 3)
"""Name and revision of the supported layout of variables."""
MAX_VARIABLES = 10_000
MAX_AXES = 4
TYPES: tuple[np.dtype, ...] = tuple(
    np.dtype(name) for name in ("<f4", "<i1", "<i2", "<i4", "<f2", "<u2")
)
"""By their numbers in a file; the last has the upper halves of float32 (bfloat16)."""
BFLOAT16 = 5
EXACT_GELU = 3
"""Number of Whisper's activation function."""


def read_variables(path: Path) -> tuple[str, int, dict[str, np.ndarray]]:
    """Return the name and revision of a file's specification, and its variables as floats.

    Weights stored as 8- or 16-bit integers are divided by their scales: one for each row of the
    matrix, or one for the matrix. Raises ModelError for an unknown or damaged file.
    """
    file = _File(path)
    version = file.number("I")
    if version != BINARY_VERSION:
        raise file.wrong(f"has binary version {version}; expected {BINARY_VERSION}")
    specification, revision = file.text(), file.number("I")
    stored: dict[str, np.ndarray] = {}
    for _ in range(file.count("variables")):
        name, array = file.variable()
        if name in stored:
            raise file.wrong(f"has two variables {name!r}")
        stored[name] = array
    for _ in range(file.count("aliases")):
        alias, name = file.text(), file.text()
        if alias in stored or name not in stored:
            raise file.wrong(f"has the invalid alias {alias!r} for {name!r}")
        stored[alias] = stored[name]
    if file.n_left:
        raise file.wrong("continues after its end")
    return specification, revision, dict(_real_numbers(stored, file))


class _File:
    """Bytes of a file, read from front to back with bounds checks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = memoryview(path.read_bytes())
        self._position = 0

    def wrong(self, problem: str) -> ModelError:
        return ModelError(
            f"{self._path.name} {problem} (at byte {self._position:,} of {len(self._data):,}). It "
            "is damaged, or not a CTranslate2 model that headscope reads."
        )

    @property
    def n_left(self) -> int:
        return len(self._data) - self._position

    def take(self, n: int) -> memoryview:
        if n > self.n_left:
            raise self.wrong(f"ends where {n:,} more bytes should be")
        self._position += n
        return self._data[self._position - n : self._position]

    def number(self, form: str) -> int:
        (value,) = struct.unpack(f"<{form}", self.take(struct.calcsize(form)))
        return int(value)

    def count(self, kind: str) -> int:
        n = self.number("I")
        if n > MAX_VARIABLES:
            raise self.wrong(f"states {n:,} {kind}; at most {MAX_VARIABLES:,} are read")
        return n

    def text(self) -> str:
        raw = bytes(self.take(self.number("H")))
        if not raw.endswith(b"\0") or not raw[:-1].isascii():
            raise self.wrong(f"has an invalid name: {raw[:40]!r}")
        return raw[:-1].decode("ascii")

    def variable(self) -> tuple[str, np.ndarray]:
        name = self.text()
        n_axes = self.number("B")
        if n_axes > MAX_AXES:
            raise self.wrong(f"has {name!r} with {n_axes} axes; at most {MAX_AXES} are read")
        shape = tuple(self.number("I") for _ in range(n_axes))
        kind, n_bytes = self.number("B"), self.number("I")
        if kind >= len(TYPES):
            raise self.wrong(f"has {name!r} of type {kind}; types 0 to {len(TYPES) - 1} are read")
        if math.prod(shape) * TYPES[kind].itemsize != n_bytes:
            raise self.wrong(f"has {name!r} of shape {shape} and type {kind} in {n_bytes:,} bytes")
        array = np.frombuffer(self.take(n_bytes), TYPES[kind]).reshape(shape)
        if kind == BFLOAT16:
            array = (array.astype("<u4") << 16).view("<f4")
        return name, array


def _real_numbers(
    stored: Mapping[str, np.ndarray], file: _File
) -> Iterator[tuple[str, np.ndarray]]:
    for name, array in stored.items():
        if name.endswith("_scale") and name.removesuffix("_scale") in stored:
            continue
        if array.ndim == 0:
            yield name, array
        elif array.dtype.kind == "f":
            yield name, array.astype(np.float32)
        else:
            scale = stored.get(f"{name}_scale")
            if scale is None or array.dtype.itemsize > 2 or scale.size not in (1, len(array)):
                raise file.wrong(
                    f"has {name!r} as {array.dtype} of shape {array.shape} "
                    f"with {'no scale' if scale is None else f'scales of shape {scale.shape}'}"
                )
            rows = scale.astype(np.float32).reshape(-1, *[1] * (array.ndim - 1))
            yield name, array.astype(np.float32) / rows


def _take(variables: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Remove a variable, so that the rest can be reported."""
    if name not in variables:
        raise ModelError(f"The CTranslate2 model has no {name!r}, which Whisper needs.")
    return variables.pop(name)


def convert_whisper(source: Path, folder: Path) -> None:
    """Convert `model.bin`, beside its `config.json` and `tokenizer.json`, into a folder."""
    from safetensors.numpy import save_file

    specification, revision, variables = read_variables(source)
    if (specification, revision) != SPECIFICATION:
        raise ModelError(
            f"{source.name} is laid out by {specification} {revision}; "
            f"{SPECIFICATION[0]} {SPECIFICATION[1]} is converted."
        )
    config = _config(variables)
    tensors = _tensors(variables, config)
    if variables:
        raise ModelError(
            f"{source.name} has {len(variables)} variables that transformers' Whisper has no place "
            f"for, for example {min(variables)!r}."
        )
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _write_settings(source.parent, folder, config)


def _config(variables: dict[str, np.ndarray]) -> ConfigJson:
    """Return the configuration from the shapes of weights, after checking the other settings."""
    for name, expected in (
        ("decoder/activation", EXACT_GELU),
        ("decoder/alibi", 0),
        ("decoder/pre_norm", 1),
        ("decoder/scale_embeddings", 0),
        ("decoder/start_from_zero_embedding", 0),
    ):
        if (value := int(_take(variables, name))) != expected:
            raise ModelError(f"{name} is {value} in the CTranslate2 model; Whisper has {expected}.")
    for name in ("decoder/alignment_heads", "decoder/alignment_layer"):
        _take(variables, name)  # only CTranslate2's runtime uses these
    n_words, width = variables["decoder/embeddings/weight"].shape
    n_layers = {
        side: len({m[1] for name in variables if (m := re.match(rf"{side}/layer_(\d+)/", name))})
        for side in ("encoder", "decoder")
    }
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "vocab_size": int(n_words),
        "num_mel_bins": int(variables["encoder/conv1/weight"].shape[1]),
        "d_model": int(width),
        **{f"{side}_layers": n for side, n in n_layers.items()},
        **{f"{x}_attention_heads": int(_take(variables, f"{x}/num_heads")) for x in n_layers},
        **{f"{x}_ffn_dim": len(variables[f"{x}/layer_0/ffn/linear_0/bias"]) for x in n_layers},
        "max_source_positions": len(variables["encoder/position_encodings/encodings"]),
        "max_target_positions": len(variables["decoder/position_encodings/encodings"]),
        "activation_function": "gelu",
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }


def _tensors(variables: dict[str, np.ndarray], config: ConfigJson) -> dict[str, np.ndarray]:
    tensors: dict[str, np.ndarray] = {}

    def move(source: str, target: str, names: Mapping[str, str]) -> None:
        for theirs, ours in names.items():
            tensors[f"model.{target}.{ours}"] = _take(variables, f"{source}/{theirs}")

    linear = {"weight": "weight", "bias": "bias"}
    norm = {"gamma": "weight", "beta": "bias"}
    for convolution in ("conv1", "conv2"):
        move(f"encoder/{convolution}", f"encoder.{convolution}", linear)
    move("decoder/embeddings", "decoder.embed_tokens", {"weight": "weight"})
    projection = _take(variables, "decoder/projection/weight")
    if not np.array_equal(projection, tensors["model.decoder.embed_tokens.weight"]):
        raise ModelError("The CTranslate2 model's output projection is not its embedding.")
    for side in ("encoder", "decoder"):
        move(f"{side}/position_encodings", f"{side}.embed_positions", {"encodings": "weight"})
        move(f"{side}/layer_norm", f"{side}.layer_norm", norm)
        for layer in range(config[f"{side}_layers"]):
            theirs, ours = f"{side}/layer_{layer}", f"{side}.layers.{layer}"
            move(f"{theirs}/ffn/layer_norm", f"{ours}.final_layer_norm", norm)
            move(f"{theirs}/ffn/linear_0", f"{ours}.fc1", linear)
            move(f"{theirs}/ffn/linear_1", f"{ours}.fc2", linear)
            attentions: dict[str, tuple[str, tuple[str, ...]]] = {
                "self_attention": ("self_attn", ("qkv", "o"))
            }
            if side == "decoder":
                attentions["attention"] = ("encoder_attn", ("q", "kv", "o"))
            for their_name, (our_name, fused) in attentions.items():
                move(f"{theirs}/{their_name}/layer_norm", f"{ours}.{our_name}_layer_norm", norm)
                for number, letters in enumerate(fused):
                    source = f"{theirs}/{their_name}/linear_{number}"
                    weights, biases = (
                        np.split(_take(variables, f"{source}/{kind}"), len(letters))
                        for kind in ("weight", "bias")
                    )
                    for letter, weight, bias in zip(letters, weights, biases, strict=True):
                        name = "out_proj" if letter == "o" else f"{letter}_proj"
                        target = f"model.{ours}.{our_name}.{name}"
                        tensors[f"{target}.weight"] = weight
                        if letter != "k":
                            tensors[f"{target}.bias"] = bias
                        elif bias.any():
                            raise ModelError(f"{source} has a bias on its keys, unlike Whisper.")
    return {name: np.ascontiguousarray(array) for name, array in tensors.items()}


def _write_settings(source: Path, folder: Path, config: ConfigJson) -> None:
    ours = json.loads((source / "config.json").read_text(encoding="utf-8"))
    tokenizer = (source / "tokenizer.json").read_text(encoding="utf-8")
    numbers = {token["content"]: token["id"] for token in json.loads(tokenizer)["added_tokens"]}
    end, start = numbers["<|endoftext|>"], numbers["<|startoftranscript|>"]
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), end)
    special["decoder_start_token_id"] = start
    generation = special | {
        "alignment_heads": ours["alignment_heads"],
        "suppress_tokens": ours["suppress_ids"],
        "begin_suppress_tokens": ours["suppress_ids_begin"],
        "no_timestamps_token_id": numbers["<|notimestamps|>"],
        "prev_sot_token_id": numbers["<|startofprev|>"],
        "is_multilingual": False,
        "return_timestamps": False,
        "max_initial_timestamp_index": 50,
    }
    files: dict[str, ConfigJson] = {
        "config.json": config | special,
        "generation_config.json": generation,
        "tokenizer_config.json": {
            "tokenizer_class": "WhisperTokenizer",
            **dict.fromkeys(("bos_token", "eos_token", "pad_token", "unk_token"), "<|endoftext|>"),
            "extra_special_tokens": list(numbers),
            "model_max_length": config["max_target_positions"],
            "clean_up_tokenization_spaces": False,
        },
        "preprocessor_config.json": {
            "feature_extractor_type": "WhisperFeatureExtractor",
            "processor_class": "WhisperProcessor",
            "feature_size": config["num_mel_bins"],
            "sampling_rate": 16_000,
            "hop_length": 160,
            "n_fft": 400,
            "chunk_length": 30,
            "padding_value": 0.0,
            "padding_side": "right",
            "return_attention_mask": False,
        },
    }
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
