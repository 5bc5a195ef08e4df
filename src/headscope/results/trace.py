"""A trace: everything one input did in every attention head, as plain arrays.

No torch, no model: a trace can be saved, sent to someone and opened years later. Each
attention of the model is a `Block`, an xarray dataset with named axes; a model with one
stack has one block (`self`), an encoder-decoder has three (`encoder`, `decoder`,
`cross`), and a further tower is `text`, `vision` or `audio`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import xarray as xr

from headscope.attention import key_stack, query_stack
from headscope.errors import InputError, UnknownName
from headscope.notebook import facts_table
from headscope.results.arrays import looks_causal, named_blocks
from headscope.results.head_effects import HeadEffects
from headscope.results.media import Media
from headscope.results.predictions import Predictions
from headscope.surface.trace_methods import TraceMethods
from headscope.text.tokens import Tokens

if TYPE_CHECKING:
    import os

    from headscope.attention import Block as BlockName

DIMENSIONS = {
    "attention": ("layer", "head", "query", "key"),
    "scores": ("layer", "head", "query", "key"),
    "sinks": ("layer", "head", "query"),
    "queries": ("layer", "head", "query", "neuron"),
    "keys": ("layer", "group", "key", "neuron"),
    "values": ("layer", "group", "key", "value_neuron"),
    "outputs": ("layer", "head", "query", "value_neuron"),
}
"""The axes of a block's variables."""


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

        The softmax of these over the keys, with `sinks` as one key more where the model has
        them, is the attention. Recorded only where scores are more than `scale · q·k` under a
        mask that all heads share; otherwise computed here, under the mask the model used. In a
        row of padding every key is masked; its scores are the logarithms of its attention.
        """
        if "scores" in self.data:
            return self._with_padding(self.data["scores"])
        if "visible" not in self.data:
            raise InputError(
                "This trace has no scores: it was made with scores=False or without vectors, from "
                "bare attention, or of a family that does more to its attention than a softmax."
            )
        keys = self.keys.isel(group=self.data["group_of_head"])
        dots = xr.dot(self.queries.fillna(0), keys.fillna(0), dim="neuron")  # small heads: NaN
        scores = (dots * self.data["scale"]).where(self.data["visible"], -np.inf)
        known = scores.where(self.attention.notnull())
        return self._with_padding(known.transpose(*DIMENSIONS["scores"]))

    def _with_padding(self, scores: xr.DataArray) -> xr.DataArray:
        with np.errstate(divide="ignore"):
            logarithms = np.log(self.attention)
        filled: xr.DataArray = scores.where((scores > -np.inf).any("key"), logarithms)
        return filled

    @property
    def sinks(self) -> xr.DataArray | None:
        """`layer head query`: the score of the sink, which takes part in the softmax and is no
        key; None in models without.
        """
        return self.data.get("sinks")

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
        stack_tokens: the token sequence of each stack (`self`, or `encoder` and `decoder`;
            `attention.query_stack` and `attention.key_stack` say which a block uses).
        stack_hidden: the residual stream of each stack, `state query unit`: state 0 is the
            embedding, state `l + 1` what layer `l` left behind.
        about: what was traced with what: model, family, edits, versions, truncation.
        media: the images and the recording that were traced, as the model got them.
        predictions: the model's likeliest answers, edits included: next tokens at every
            position, tokens at masks, or labels; None for a plain encoder.
        effects: the prediction without each head, of a trace made with `effects=True`.
    """

    blocks: Mapping[str, Block]
    stack_tokens: Mapping[str, Tokens]
    stack_hidden: Mapping[str, xr.DataArray] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    predictions: Predictions | None = None
    effects: HeadEffects | None = None
    media: Media = field(default_factory=Media, kw_only=True)
    origin: object | None = field(default=None, repr=False, kw_only=True)
    """What it was made by, while the model is at hand; neither saved nor pickled."""

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "origin": None}

    def __setstate__(self, state: Mapping[str, object]) -> None:
        vars(self).update(state)

    @property
    def main(self) -> Block:
        """The attention of the text itself: the only block, or the encoder's."""
        return next(iter(self.blocks.values()))

    @property
    def text(self) -> Tokens:
        """The main token sequence with offsets, words, segments and flags."""
        return self.main.query_tokens

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
    def scores(self) -> xr.DataArray:
        """`layer head query key` of the main block: what the softmax was taken of."""
        return self.main.scores

    @property
    def hidden(self) -> xr.DataArray:
        """`state query unit`: the residual stream of the main stack between layers."""
        stack = query_stack(self.main.name, self.stack_tokens)
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
        """The decoder's attention to the encoder (encoder-decoders), or the text's to what a
        tower made of an image.
        """
        return self._block("cross")

    @property
    def vision(self) -> Block:
        """The attention among the patches of an image, in models that also read text."""
        return self._block("vision")

    @property
    def audio(self) -> Block:
        """The attention among the frames of a sound, in models that also read text."""
        return self._block("audio")

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
                words[query_stack(name, words)],
                words[key_stack(name, words)],
                block.is_causal,
            )
        return Trace(blocks, words, {}, {**self.about, "unit": "word"}, media=self.media)

    def with_tokens(self, tokens: Mapping[str, Tokens], media: Media | None = None) -> Trace:
        """The same attention over other token sequences, of the same lengths.

        Args:
            tokens: by stack; stacks that are not named keep theirs.
            media: the images and the recording that their pieces are of.
        """
        stacks = {**self.stack_tokens, **tokens}
        blocks = {
            name: replace(
                block,
                query_tokens=stacks[query_stack(name, stacks)],
                key_tokens=stacks[key_stack(name, stacks)],
            )
            for name, block in self.blocks.items()
        }
        return replace(self, blocks=blocks, stack_tokens=stacks, media=media or self.media)

    @classmethod
    def from_arrays(
        cls,
        attention: object,
        tokens: Sequence[str] | Tokens | Mapping[str, Sequence[str] | Tokens],
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
                (or of `1 head query key`, as transformers returns them); or what
                `generate(output_attentions=True)` returns, such arrays for every step. Several
                blocks by name: `{"encoder": …, "decoder": …, "cross": …}`.
            tokens: one string per position; for several blocks, those of each stack by name
                (`cross` is from the decoder's tokens to the encoder's).
            special: which tokens are special; none by default.
            segments: 0 for the first text, 1 for the second.
            words: the number of each token's word, -1 for none; by default a word each.
            is_causal: by default read off the zeros above the diagonal.
            name: what to call it in views and reports.

        Raises:
            InputError: shapes that disagree, or weights below 0: scores before the softmax.
        """
        if not isinstance(tokens, Mapping | Tokens):
            tokens = Tokens.of(tokens, special=special, segments=segments, words=words)
        elif special is not None or segments is not None or words is not None:
            raise InputError("special, segments and words go with tokens that are bare strings.")
        arrays, stacks = named_blocks(attention, tokens)
        sequences = {
            stack: one if isinstance(one, Tokens) else Tokens.of(one)
            for stack, one in stacks.items()
        }
        blocks = {
            block: Block(
                cast("BlockName", block),
                attention_dataset(weights, np.arange(len(weights))),
                sequences[query_stack(block, sequences)],
                sequences[key_stack(block, sequences)],
                block != "cross" and (looks_causal(weights) if is_causal is None else is_causal),
            )
            for block, weights in arrays.items()
        }
        return cls(blocks, sequences, {}, {"model": name, "source": "arrays"})

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
            ("media", self._media_shown()),
            ("vectors", "yes" if "queries" in self.main.data else "no"),
            ("text", self._shown(200)),
        ]
        return facts_table("Trace", facts)

    def _media_shown(self) -> str | None:
        images, sound = self.media.images, self.media.sound
        sizes = [f"image of {image.shape[1]} × {image.shape[0]} pixels" for image in images]
        return (
            ", ".join(sizes + [f"{self.media.seconds:.1f} s of sound"] * (sound is not None))
            or None
        )

    def _shown(self, most: int) -> str:
        text = " / ".join(self.text.texts)
        return text if len(text) <= most else text[: most - 1] + "…"


def attention_dataset(weights: np.ndarray, layers: Sequence[int] | np.ndarray) -> xr.Dataset:
    """A block's dataset with attention alone (`layer head query key`)."""
    return xr.Dataset(
        {"attention": (DIMENSIONS["attention"], weights)},
        coords={"layer": np.asarray(layers), "head": np.arange(weights.shape[1])},
    )


def word_matrix(tokens: Tokens, *, mean: bool) -> np.ndarray:
    """`word token`: 1 (or 1/length, for `mean`) where a token belongs to a word."""
    words = tokens.word_groups()
    matrix = np.zeros((len(words), len(tokens)))
    for row, members in enumerate(words):
        matrix[row, members] = 1 / len(members) if mean else 1
    return matrix
