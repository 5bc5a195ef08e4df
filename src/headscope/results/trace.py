"""A trace: everything one input did in every attention head, as plain arrays.

No torch, no model: a trace can be saved, sent to someone and opened years later. Each
attention of the model is a `Block`, an xarray dataset with named axes; a model with one
stack has one block (`self`), an encoder-decoder has three (`encoder`, `decoder`,
`cross`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import xarray as xr

from headscope.errors import HeadscopeWarning, InputError, UnknownName
from headscope.notebook import facts_table
from headscope.results.predictions import Predictions
from headscope.surface.trace_methods import TraceMethods
from headscope.text.tokens import Tokens

if TYPE_CHECKING:
    import os

    from headscope.attention import Block as BlockName

DIMENSIONS = {
    "attention": ("layer", "head", "query", "key"),
    "scores": ("layer", "head", "query", "key"),
    "queries": ("layer", "head", "query", "neuron"),
    "keys": ("layer", "group", "key", "neuron"),
    "values": ("layer", "group", "key", "value_neuron"),
    "outputs": ("layer", "head", "query", "value_neuron"),
}
"""The axes of a block's variables."""
STACK_OF_QUERIES = {"self": "self", "encoder": "encoder", "decoder": "decoder", "cross": "decoder"}
STACK_OF_KEYS = {"self": "self", "encoder": "encoder", "decoder": "decoder", "cross": "encoder"}

MOST_OF_A_ROW = 1.01
"""Rows that sum to more are reported; rounding in half precision stays below."""


@dataclass(frozen=True, eq=False)
class Block:
    """One attention of the model: its weights, vectors and tokens.

    `data` is an `xarray.Dataset`; the properties name its variables. `head` counts query
    heads; its coordinate `group_of_head` says which keys and values a head reads.
    """

    name: BlockName
    data: xr.Dataset
    query_tokens: Tokens
    key_tokens: Tokens
    is_causal: bool

    @property
    def attention(self) -> xr.DataArray:
        """`layer head query key`, after the softmax; rows sum to 1."""
        return self.data["attention"]

    @property
    def queries(self) -> xr.DataArray:
        """`layer head query neuron`, after norms and rotary embedding."""
        return self._vectors("queries")

    @property
    def keys(self) -> xr.DataArray:
        """`layer group key neuron`, likewise."""
        return self._vectors("keys")

    @property
    def values(self) -> xr.DataArray:
        """`layer group key value_neuron`."""
        return self._vectors("values")

    @property
    def outputs(self) -> xr.DataArray:
        """`layer head query value_neuron`: what each head adds, before the output projection."""
        return self._vectors("outputs")

    @property
    def scores(self) -> xr.DataArray:
        """`layer head query key`: what the softmax was taken of, masked keys at -inf.

        Recorded only where scores are more than `scale · q·k`; otherwise computed here.
        """
        if "scores" in self.data:
            return self.data["scores"]
        keys = self.keys.isel(group=self.data["group_of_head"])
        scores = xr.dot(self.queries, keys, dim="neuron") * self.data["scale"]
        masked: xr.DataArray = scores.where(self._visible(), -np.inf)
        return masked

    def _visible(self) -> xr.DataArray:
        n_queries, n_keys = self.data.sizes["query"], self.data.sizes["key"]
        seen = np.ones((n_queries, n_keys), dtype=bool)
        if self.is_causal:
            seen = np.tril(seen, n_keys - n_queries)
        return xr.DataArray(seen, dims=("query", "key"))

    def _vectors(self, name: str) -> xr.DataArray:
        if name not in self.data:
            raise InputError(
                f"This trace has no {name}: it was made without vectors, from bare attention, "
                "or of a family whose vectors the tap does not see (see `headscope models NAME`)."
            )
        return self.data[name]


@dataclass(frozen=True, eq=False)
class Trace(TraceMethods):
    """One input through one model. `trace.attention` is what most people want.

    Attributes:
        blocks: the model's attentions by name.
        stack_tokens: the token sequence of each stack (`self`, or `encoder` and `decoder`).
        stack_hidden: the residual stream of each stack, `state query unit`: state 0 is the
            embedding, state `l + 1` what layer `l` left behind.
        about: what was traced with what: model, family, edits, versions, truncation.
        predictions: the model's likeliest answers, edits included: next tokens at every
            position, tokens at masks, or labels; None for a plain encoder.
    """

    blocks: Mapping[str, Block]
    stack_tokens: Mapping[str, Tokens]
    stack_hidden: Mapping[str, xr.DataArray] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    predictions: Predictions | None = None

    @property
    def main(self) -> Block:
        """The attention of the text itself: the only block, or the encoder's."""
        return next(iter(self.blocks.values()))

    @property
    def text(self) -> Tokens:
        """The main token sequence with offsets, words, segments and flags."""
        return self.stack_tokens[STACK_OF_QUERIES[self.main.name]]

    @property
    def tokens(self) -> tuple[str, ...]:
        """The main token sequence, as people read it."""
        return self.text.tokens

    @property
    def attention(self) -> xr.DataArray:
        """`layer head query key` of the main block."""
        return self.main.attention

    @property
    def queries(self) -> xr.DataArray:
        """`layer head query neuron` of the main block."""
        return self.main.queries

    @property
    def keys(self) -> xr.DataArray:
        """`layer group key neuron` of the main block."""
        return self.main.keys

    @property
    def values(self) -> xr.DataArray:
        """`layer group key value_neuron` of the main block."""
        return self.main.values

    @property
    def outputs(self) -> xr.DataArray:
        """`layer head query value_neuron` of the main block."""
        return self.main.outputs

    @property
    def hidden(self) -> xr.DataArray:
        """`state query unit`: the residual stream of the main stack between layers."""
        stack = STACK_OF_QUERIES[self.main.name]
        if stack not in self.stack_hidden:
            raise InputError("This trace has no hidden states: it was made without vectors.")
        return self.stack_hidden[stack]

    @property
    def encoder(self) -> Block:
        """The encoder's self-attention (encoder-decoders)."""
        return self._block("encoder")

    @property
    def decoder(self) -> Block:
        """The decoder's self-attention (encoder-decoders)."""
        return self._block("decoder")

    @property
    def cross(self) -> Block:
        """The decoder's attention to the encoder (encoder-decoders)."""
        return self._block("cross")

    def _block(self, name: str) -> Block:
        if name not in self.blocks:
            raise UnknownName.of("block", name, self.blocks)
        return self.blocks[name]

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that have attention: all of them, except in hybrid models."""
        return tuple(int(x) for x in self.attention["layer"].values)

    @property
    def n_heads(self) -> int:
        """Heads of a layer; where layers differ, of the one with most."""
        return self.attention.sizes["head"]

    def by_word(self) -> Trace:
        """The trace with words instead of tokens: attention *to* a word is the sum over
        its tokens, attention *from* it the mean (Clark et al. 2019, section 4.1).

        Rows still sum to 1. Tokens outside words (special tokens) stay. Vectors have no
        word form and are dropped.
        """
        words = {stack: tokens.by_word() for stack, tokens in self.stack_tokens.items()}
        blocks = {}
        for name, block in self.blocks.items():
            rows = word_matrix(block.query_tokens, mean=True)
            columns = word_matrix(block.key_tokens, mean=False)
            collapsed = rows @ block.attention.values.astype(np.float64) @ columns.T
            data = attention_dataset(collapsed.astype(np.float32), block.attention["layer"].values)
            blocks[name] = Block(
                block.name,
                data,
                words[STACK_OF_QUERIES[name]],
                words[STACK_OF_KEYS[name]],
                block.is_causal,
            )
        return Trace(blocks, words, {}, {**self.about, "unit": "word"})

    @classmethod
    def from_arrays(
        cls,
        attention: object,
        tokens: Sequence[str] | Tokens,
        *,
        special: Sequence[bool] | None = None,
        segments: Sequence[int] | None = None,
        words: Sequence[int] | None = None,
        is_causal: bool | None = None,
        name: str = "attention",
    ) -> Trace:
        """A trace of attention computed elsewhere (NumPy, TensorFlow, JAX, a saved run).

        Args:
            attention: `layer head query key`, or a sequence of `head query key` arrays
                (or of `1 head query key`, as transformers returns them).
            tokens: one string per position.
            special: which tokens are special; none by default.
            segments: 0 for the first text, 1 for the second.
            words: the number of each token's word, -1 for none; by default a word each.
            is_causal: by default read off the zeros above the diagonal.
            name: what to call it in views and reports.

        Raises:
            InputError: shapes that disagree, or weights below 0: scores before the softmax.
        """
        weights = stacked_attention(attention)
        if not isinstance(tokens, Tokens):
            tokens = Tokens.of(tokens, special=special, segments=segments, words=words)
        n_queries, n_keys = weights.shape[2:]
        if n_queries != n_keys or n_keys != len(tokens):
            raise InputError(
                f"Attention is {n_queries} queries × {n_keys} keys, but there are "
                f"{len(tokens)} tokens. All three must agree."
            )
        _check_rows(weights)
        if is_causal is None:
            is_causal = looks_causal(weights)
        data = attention_dataset(weights, np.arange(len(weights)))
        block = Block("self", data, tokens, tokens, is_causal)
        return cls({"self": block}, {"self": tokens}, {}, {"model": name, "source": "arrays"})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to one netCDF file, which `headscope.open` (or xarray) reads."""
        from headscope.results.trace_file import save_trace

        save_trace(self, path)

    def __repr__(self) -> str:
        blocks = "" if len(self.blocks) == 1 else f", blocks {', '.join(self.blocks)}"
        return (
            f"<Trace of {self.about.get('model', '?')}: {len(self.layers)} layers × "
            f"{self.n_heads} heads, {len(self.tokens)} tokens{blocks}: {self._shown(40)!r}>"
        )

    def _repr_html_(self) -> str:
        facts = [
            ("model", self.about.get("model", "?")),
            ("size", f"{len(self.layers)} layers × {self.n_heads} heads"),
            ("tokens", len(self.tokens)),
            ("blocks", ", ".join(self.blocks) if len(self.blocks) > 1 else None),
            ("vectors", "yes" if "queries" in self.main.data else "no"),
            ("text", self._shown(200)),
        ]
        return facts_table("Trace", facts)

    def _shown(self, most: int) -> str:
        text = " / ".join(self.text.texts)
        return text if len(text) <= most else text[: most - 1] + "…"


def attention_dataset(weights: np.ndarray, layers: Sequence[int] | np.ndarray) -> xr.Dataset:
    """A block's dataset with attention alone (`layer head query key`)."""
    return xr.Dataset(
        {"attention": (DIMENSIONS["attention"], weights)},
        coords={"layer": np.asarray(layers), "head": np.arange(weights.shape[1])},
    )


def looks_causal(weights: np.ndarray) -> bool:
    """Is attention (`layer head query key`) to later tokens 0 everywhere?"""
    return weights.shape[-1] > 1 and not np.triu(np.nan_to_num(weights), 1).any()


def stacked_attention(attention: object) -> np.ndarray:
    """`layer head query key` from whatever holds it, or an error that names the axes."""
    if isinstance(attention, Sequence):
        layers = [_squeezed(_numpy(layer), index) for index, layer in enumerate(attention)]
        if not layers:
            raise InputError("There is no attention: the sequence of layers is empty.")
        shapes = {layer.shape for layer in layers}
        if len(shapes) > 1:
            raise InputError(f"Layers differ in shape (head, query, key): {sorted(shapes)}.")
        weights = np.stack(layers)
    else:
        weights = _numpy(attention)
    if weights.ndim != 4:
        raise InputError(
            f"Attention has {weights.ndim} axes {weights.shape}; expected four: "
            "layer, head, query, key."
        )
    if 0 in weights.shape:
        raise InputError(f"Attention (layer, head, query, key) is empty: {weights.shape}.")
    return weights


def _numpy(array: Any) -> np.ndarray:
    for name in ("detach", "cpu"):  # a torch tensor, without importing torch
        array = getattr(array, name, lambda array=array: array)()
    if "bfloat16" in str(getattr(array, "dtype", "")):  # which NumPy does not know
        array = array.float() if hasattr(array, "float") else array.astype("float32")
    try:
        weights = np.asarray(array)
    except ValueError as error:  # rows of different length
        raise InputError(f"Attention should be one array of numbers: {error}") from error
    if not np.issubdtype(weights.dtype, np.number) or np.iscomplexobj(weights):
        raise InputError(f"Attention should be numbers, not {weights.dtype}.")
    return weights if weights.dtype == np.float64 else weights.astype(np.float32)


def _check_rows(weights: np.ndarray) -> None:
    """Refuse weights below 0; warn of rows that sum to more than 1. NaN is a missing weight."""
    lowest = np.nanmin(weights, initial=0)
    if lowest < 0:
        raise InputError(
            f"Attention has weights down to {lowest:.4g}; expected 0 to 1, after the softmax. "
            "Take the softmax over the keys first."
        )
    highest = np.nansum(weights, axis=-1, dtype=np.float64).max()
    if highest > MOST_OF_A_ROW:
        warnings.warn(
            f"Attention has rows that sum to {highest:.4g}; expected 1, after the softmax. They "
            "are taken as they are.",
            HeadscopeWarning,
            stacklevel=3,
        )


def _squeezed(layer: np.ndarray, index: int) -> np.ndarray:
    if layer.ndim == 4 and layer.shape[0] == 1:
        return cast("np.ndarray", layer[0])
    if layer.ndim != 3:
        raise InputError(
            f"Layer {index} of the attention has shape {layer.shape}; expected (head, query, "
            "key), or a batch of one: (1, head, query, key)."
        )
    return layer


def word_matrix(tokens: Tokens, *, mean: bool) -> np.ndarray:
    """`word token`: 1 (or 1/length, for `mean`) where a token belongs to a word."""
    words = tokens.word_groups()
    matrix = np.zeros((len(words), len(tokens)))
    for row, members in enumerate(words):
        matrix[row, members] = 1 / len(members) if mean else 1
    return matrix
