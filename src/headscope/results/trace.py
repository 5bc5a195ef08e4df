"""Trace: attention, vectors and predictions of one input, as plain arrays without torch.

Each attention block is an xarray dataset with named axes. A model with one stack has one block
(`self`), an encoder-decoder has three (`encoder`, `decoder`, `cross`), and a further tower is
`text`, `vision` or `audio`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import xarray as xr

from headscope.attention import key_stack, query_stack
from headscope.errors import InputError, UnknownName
from headscope.notebook import facts_table
from headscope.results.effect_data import HeadEffects
from headscope.results.from_arrays import looks_causal, named_blocks
from headscope.results.media import Media
from headscope.results.predictions import Predictions
from headscope.text.tokens import Tokens

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from headscope.attention import BlockName
    from headscope.batch import NullKeys
    from headscope.metrics.core.contract import Metric
    from headscope.metrics.core.labels import Tagset
    from headscope.model.tracing import Origin
    from headscope.page.payload import Question, Step
    from headscope.page.widget import Explorer
    from headscope.results.result import Result
    from headscope.run.options import Over
    from headscope.text.document import Document

NEEDS_MODEL = (
    "These traces do not know their model (they were opened from a file, or made of arrays), so it "
    "cannot be run again. Trace the text once more with model.trace(text), then call explore()."
)
DIMENSIONS = {
    "attention": ("layer", "head", "query", "key"),
    "scores": ("layer", "head", "query", "key"),
    "sink_logits": ("layer", "head", "query"),
    "queries": ("layer", "head", "query", "neuron"),
    "keys": ("layer", "group", "key", "neuron"),
    "values": ("layer", "group", "key", "value_neuron"),
    "outputs": ("layer", "head", "query", "value_neuron"),
    "top_keys": ("layer", "head", "query", "rank"),
    "top_weights": ("layer", "head", "query", "rank"),
    "rest": ("layer", "head", "query"),
}
"""Axes of a block's variables. A trace with `keep="top"` has the last three for `attention`."""


@dataclass(frozen=True, eq=False)
class Block:
    """Attention block of a model: weights, vectors and tokens.

    `data` is an `xarray.Dataset`; the properties name its variables. `head` counts query
    heads; the coordinate `group_of_head` maps heads to their keys and values.
    """

    name: BlockName
    data: xr.Dataset
    query_tokens: Tokens
    key_tokens: Tokens
    is_causal: bool

    @property
    def attention(self) -> xr.DataArray:
        """`layer head query key`, after the softmax; rows sum to 1."""
        if self.n_top is not None:
            raise InputError(
                f"This trace keeps the {self.n_top} strongest keys of each row and the sum of the "
                "rest: `trace.top` has them. What needs whole matrices needs keep='all'."
            )
        return self.data["attention"]

    @property
    def sizes(self) -> Mapping[str, int]:
        """Number of layers, heads, queries and keys."""
        lengths = {"query": len(self.query_tokens), "key": len(self.key_tokens)}
        return {name: self.data.sizes[name] for name in ("layer", "head")} | lengths

    @property
    def n_top(self) -> int | None:
        """Kept keys of each row; None if whole rows are kept."""
        return self.data.sizes.get("rank")

    def head_weights(self, row: int, head: int, queries: slice = slice(None)) -> np.ndarray:
        """Return `query key` of one head; 0 for keys that are not kept, NaN for a missing head."""
        if self.n_top is None:
            array = self.attention.transpose(*DIMENSIONS["attention"])
            return np.asarray(array[row, head, queries].values)
        keys, weights = (
            self.data[name].transpose(*DIMENSIONS[name])[row, head, queries].values
            for name in ("top_keys", "top_weights")
        )
        whole = np.zeros((len(keys), self.sizes["key"] + 1), dtype=np.float32)
        np.put_along_axis(whole, keys.astype(np.int64), weights, axis=1)  # -1: the last column
        whole[np.isnan(weights).all(1)] = np.nan
        return whole[:, :-1]

    @property
    def queries(self) -> xr.DataArray:
        """`layer head query neuron`, after norms and rotary embedding."""
        return self._vectors("queries")

    @property
    def keys(self) -> xr.DataArray:
        """`layer group key neuron`, after norms and rotary embedding."""
        return self._vectors("keys")

    @property
    def values(self) -> xr.DataArray:
        """`layer group key value_neuron`."""
        return self._vectors("values")

    @property
    def outputs(self) -> xr.DataArray:
        """`layer head query value_neuron`: head outputs before the output projection."""
        return self._vectors("outputs")

    @property
    def scores(self) -> xr.DataArray:
        """`layer head query key`: inputs of the softmax, masked keys at -inf.

        The softmax over the keys, with `sink_logits` as one more key if the model has them, is
        the attention. Scores are recorded if they are more than `scale · q·k` under a mask that
        all heads share, and computed here otherwise. In a row of padding every key is masked; its
        scores are the logarithms of its attention.
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
        defined = scores.where(self.attention.notnull())
        return self._with_padding(defined.transpose(*DIMENSIONS["scores"]))

    def _with_padding(self, scores: xr.DataArray) -> xr.DataArray:
        with np.errstate(divide="ignore"):
            logarithms = np.log(self.attention)
        filled: xr.DataArray = scores.where((scores > -np.inf).any("key"), logarithms)
        return filled

    @property
    def sink_logits(self) -> xr.DataArray | None:
        """`layer head query`: learned sink logit in the softmax; None in models without."""
        return self.data.get("sink_logits")

    def _vectors(self, name: str) -> xr.DataArray:
        if name not in self.data:
            raise InputError(
                f"This trace has no {name}: it was made without vectors, from bare attention, "
                "or of a family whose vectors the tap does not see (see `headscope models NAME`)."
            )
        return self.data[name]


@dataclass(frozen=True, eq=False)
class Trace:
    """One input through one model. `trace.attention` has the weights.

    Attributes:
        blocks: attention blocks by name.
        stack_tokens: token sequence of each stack (`self`, or `encoder` and `decoder`;
            `attention.query_stack` and `attention.key_stack` give those of a block).
        stack_hidden: residual stream of each stack, `state query unit`: state 0 is the
            embedding, state `l + 1` the output of layer `l`.
        provenance: model, family, edits, library versions and truncation of the trace.
        media: images and recording as the model received them.
        predictions: top predictions with the edits: next tokens at every position, tokens at
            masks, or labels; None for a plain encoder.
        effects: prediction without each head, of a trace made with `effects=True`.
    """

    blocks: Mapping[str, Block]
    stack_tokens: Mapping[str, Tokens]
    stack_hidden: Mapping[str, xr.DataArray] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    predictions: Predictions | None = None
    effects: HeadEffects | None = None
    media: Media = field(default_factory=Media, kw_only=True)
    origin: Origin | None = field(default=None, repr=False, kw_only=True)
    """Model and inputs of the trace, while in memory; neither saved nor pickled."""

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "origin": None}

    def __setstate__(self, state: Mapping[str, object]) -> None:
        vars(self).update(state)

    @property
    def main(self) -> Block:
        """Main attention block: the only one, or the encoder's."""
        return next(iter(self.blocks.values()))

    @property
    def text(self) -> Tokens:
        """Main token sequence with offsets, words, segments and flags."""
        return self.main.query_tokens

    @property
    def tokens(self) -> tuple[str, ...]:
        """Main token sequence, as displayed."""
        return self.text.tokens

    @property
    def attention(self) -> xr.DataArray:
        """`layer head query key` of the main block."""
        return self.main.attention

    @property
    def top(self) -> xr.Dataset:
        """Strongest keys of each row of the main block, for a trace with `keep="top"`.

        `top_keys` (-1 for none) and `top_weights` are `layer head query rank`; `rest` is the sum of
        all other weights of the row.
        """
        if self.main.n_top is None:
            raise InputError("This trace keeps whole rows: use trace.attention.")
        return self.main.data[["top_keys", "top_weights", "rest"]]

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
        """`layer head query key` of the main block: inputs of the softmax."""
        return self.main.scores

    @property
    def hidden(self) -> xr.DataArray:
        """`state query unit`: residual stream of the main stack between layers."""
        stack = query_stack(self.main.name, self.stack_tokens)
        if stack not in self.stack_hidden:
            raise InputError("This trace has no hidden states: it was made without vectors.")
        return self.stack_hidden[stack]

    @property
    def encoder(self) -> Block:
        """Self-attention of the encoder (encoder-decoders)."""
        return self._block("encoder")

    @property
    def decoder(self) -> Block:
        """Self-attention of the decoder (encoder-decoders)."""
        return self._block("decoder")

    @property
    def cross(self) -> Block:
        """Attention of the decoder to the encoder, or of a text to the output of a tower."""
        return self._block("cross")

    @property
    def vision(self) -> Block:
        """Attention among the patches of an image, in models that also read text."""
        return self._block("vision")

    @property
    def audio(self) -> Block:
        """Attention among the frames of a recording, in models that also read text."""
        return self._block("audio")

    def _block(self, name: str) -> Block:
        UnknownName.check("block", name, self.blocks)
        return self.blocks[name]

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers with attention: all layers, except in hybrid models."""
        return tuple(int(x) for x in self.main.data["layer"].values)

    @property
    def n_heads(self) -> int:
        """Heads of a layer; the maximum if layers differ."""
        return self.main.sizes["head"]

    def by_word(self) -> Trace:
        """Return the trace with words instead of tokens (Clark et al. 2019, section 4.1).

        Attention *to* a word is the sum over its tokens, attention *from* it the mean. Rows still
        sum to 1. Tokens outside words (special tokens) stay. Vectors are dropped.
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
        return Trace(blocks, words, {}, {**self.provenance, "unit": "word"}, media=self.media)

    def with_tokens(self, tokens: Mapping[str, Tokens], media: Media | None = None) -> Trace:
        """Return the same attention over other token sequences of the same lengths, by stack.

        Other stacks keep their tokens. `media` are the images and recording of media tokens.
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
        """Return a trace of attention computed elsewhere (NumPy, TensorFlow, JAX, a saved run).

        Args:
            attention: `layer head query key`, or a sequence of `head query key` arrays
                (or of `1 head query key`, as transformers returns them); or such arrays for every
                step, as `generate(output_attentions=True)` returns them; or an activation cache of
                TransformerLens, with its `hook_pattern`s. A batch axis of one is dropped. Several
                blocks by name: `{"encoder": …, "decoder": …, "cross": …}`.
            tokens: one string per position; for several blocks, by stack (`cross` is from the
                decoder's tokens to the encoder's).
            special: flags of special tokens; none by default.
            segments: 0 for the first text, 1 for the second.
            words: word number of each token, -1 for none; by default one word per token.
            is_causal: by default inferred from the zeros above the diagonal.
            name: name in views and reports.

        Raises:
            InputError: shapes disagree, or weights are below 0 (scores before the softmax).
        """
        if not isinstance(tokens, Mapping | Tokens):
            tokens = Tokens.of(tokens, special=special, segments=segments, words=words)
        elif special is not None or segments is not None or words is not None:
            raise InputError("special, segments and words need tokens that are bare strings.")
        arrays, stacks = named_blocks(attention, tokens)
        sequences = {
            stack: texts if isinstance(texts, Tokens) else Tokens.of(texts)
            for stack, texts in stacks.items()
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
        """Write the trace to one netCDF file, readable by `headscope.open` and xarray."""
        from headscope.results.files import save_trace

        save_trace(self, path)

    def __repr__(self) -> str:
        blocks = "" if len(self.blocks) == 1 else f", blocks {', '.join(self.blocks)}"
        return (
            f"<Trace of {self.provenance.get('model', '?')}: {len(self.layers)} layers × "
            f"{self.n_heads} heads, {len(self.tokens)} tokens{blocks}: {self._shortened(40)!r}>"
        )

    def _repr_html_(self) -> str:
        media = [f"image of {i.shape[1]} × {i.shape[0]} pixels" for i in self.media.images]
        media += [f"{self.media.seconds:.1f} s of sound"] * (self.media.sound is not None)
        facts = [
            ("model", self.provenance.get("model", "?")),
            ("size", f"{len(self.layers)} layers × {self.n_heads} heads"),
            ("tokens", len(self.tokens)),
            ("blocks", ", ".join(self.blocks) if len(self.blocks) > 1 else None),
            ("media", ", ".join(media) or None),
            ("vectors", "yes" if "queries" in self.main.data else "no"),
            ("text", self._shortened(200)),
        ]
        return facts_table("Trace", facts)

    def _shortened(self, most: int) -> str:
        text = " / ".join(self.text.texts)
        return text if len(text) <= most else text[: most - 1] + "…"

    def explore(
        self,
        other: Trace | None = None,
        *,
        view: Literal["all", "model", "head", "neuron"] = "all",
        block: str | None = None,
        layer: int | None = None,
        heads: int | Sequence[int] | None = None,
        queries: int | Sequence[int] | None = None,
        neurons: bool | Sequence[int] | None = None,
        titles: Sequence[str] | None = None,
        theme: str = "auto",
        height: int = 680,
        over: Over = "attention",
        evidence: Result | Iterable[Result] | None = None,
    ) -> Explorer:
        """Open the explorer in a notebook: the text, all heads, one head, its effect.

        The widget's `selection` is the reader's selection, and can be set. `.save("page.html")`
        writes a file that works offline. While the kernel runs, the page can ablate heads, measure
        effects and explain scores. Without a kernel, the notebook shows the offline page.

        Args:
            other: second trace to compare with, side by side.
            view: `head` opens the lines of one head, `neuron` its queries and keys.
            block: `self`, or `encoder`, `decoder`, `cross` of an encoder-decoder.
            layer: layer to open; by default that of the head with the clearest role.
            heads: head to open; of several the first.
            queries: position of the token to pin; of several the first.
            neurons: whether to include queries, keys and values (two bytes a number), or the
                layers to include; by default the layer of the opening head.
            titles: title of each trace; by default its text or its edits.
            theme: `auto` (as the notebook), `light` or `dark`.
            height: height in pixels.
            over: `attention`, or `norm` for norm-weighted attention of a trace made with
                `norms=True`.
            evidence: results of corpus runs of the model, for roles and cards of its heads.

        Raises:
            MissingExtra: anywidget is not installed.
            InputError: the trace lacks a named part, or its weights are not attention.
        """
        from headscope.page.replies import replies_for
        from headscope.page.widget import explore

        chosen = {"view": view, "block": block, "layer": layer, "heads": heads}
        more = {"queries": queries, "theme": theme}
        traces, selection = _selected(self, other, over, **chosen, **more)
        return explore(
            replies_for(traces),
            selection=selection,
            neurons=neurons,
            titles=titles,
            evidence=evidence,
            height=height,
        )

    def save_page(
        self,
        path: str | os.PathLike[str],
        other: Trace | None = None,
        *,
        view: Literal["all", "model", "head", "neuron"] = "all",
        block: str | None = None,
        layer: int | None = None,
        heads: int | Sequence[int] | None = None,
        queries: int | Sequence[int] | None = None,
        neurons: bool | Sequence[int] | None = None,
        titles: Sequence[str] | None = None,
        theme: str = "auto",
        story: Sequence[Step] = (),
        exercise: Sequence[Question] = (),
        evidence: Result | Iterable[Result] | None = None,
        effects: bool = False,
        over: Over = "attention",
        live: bool = False,
    ) -> None:
        """Write the explorer as one HTML file that works offline.

            trace.save_page("page.html", effects=True, story=[
                ("This head is an attention sink.", {"layer": 3, "head": 0}),
                ("This one attends back from the pronoun.", {"layer": 9, "head": 3, "word": 8}),
            ])

        `headscope.save_page` puts several traces into one page. The arguments are those of
        `explore`, with `path`, the file to write, and five more:

        - `story`: captions, each with its selection: `layer`, `head`, `block`, `word`, `key`,
          `tab` (lines, matrix, neurons, evidence, effect), `color`, `role`, `off` and so on; or a
          URL fragment copied from a page. `neurons` includes the layers of the story by default.
        - `exercise`: questions of “Your turn” (see `headscope.save_page`).
        - `effects`: store the effect of each head, which needs the model (see `with_effects`).
        - `live`: put the model into the page too, if it is small enough (see `save_live`).
        """
        from headscope.page.save_page import save_page

        chosen = {"view": view, "block": block, "layer": layer, "heads": heads}
        more = {"queries": queries, "theme": theme}
        traces, selection = _selected(self, other, over, **chosen, **more)
        options: Any = {
            "neurons": neurons,
            "titles": titles,
            "selection": selection,
            "story": story,
            "exercise": exercise,
            "evidence": evidence,
            "effects": effects,
        }
        if live:
            from headscope.live.site import save_live

            save_live(self.require_origin("live=True").model, path, examples=[traces], **options)
        else:
            save_page([traces], path, **options)

    def roles(self, block: str | None = None) -> xr.Dataset:
        """Name the role of each head in this text: a table over layer and head.

        A head has a role if the queries that can show it pay at least half of their attention
        to it, at least twice uniform attention, and there are three or more of them. Roles are
        listed in `headscope.heads.roles`. A role holds in this text; `headscope.analyze` measures
        a corpus.

        Args:
            block: `encoder`, `decoder` or `cross` of an encoder-decoder; the main one by default.

        Returns:
            `role` ("" for none), its `share` of attention, and the `queries` that can show it.
        """
        from headscope.heads.roles import name_roles

        return name_roles(self.main if block is None else self._block(block))

    def require_origin(self, purpose: str) -> Origin:
        """Return the model and inputs that made this trace.

        Raises:
            InputError: the trace was opened from a file or made of arrays.
        """
        if self.origin is None:
            raise InputError(f"{purpose}: {NEEDS_MODEL}")
        return self.origin

    def with_effects(self, position: int | None = None) -> Trace:
        """Return the trace with the effect of each head on a prediction, as `trace.effects`.

        Each head is ablated alone (zero ablation). The effects hold the log-probabilities of the
        ten top predictions, or the vector of the text of a plain encoder. The position of the
        prediction is by default the last token or mask. The trace must come from `model.trace`.
        """
        from headscope.causal.trace_effects import with_effects

        return with_effects(self, position)

    def measure(
        self,
        metrics: str | Metric | Iterable[str | Metric] = "all",
        *,
        document: Document | None = None,
        tagset: Tagset = "universal",
        null_keys: NullKeys = "auto",
        over: Over = "attention",
    ) -> Result:
        """Measure metrics of this one input, as `analyze` does for a corpus of one document.

        Works for a trace of a model and for `Trace.from_arrays`. One document has no intervals.
        `document` is the annotated document that was traced, for tags and dependencies. The other
        options are those of `analyze`; `over="norm"` needs a trace made with `norms=True`.
        """
        from headscope.run.measure import measure

        return measure(
            self, metrics, document=document, tagset=tagset, null_keys=null_keys, over=over
        )

    def norm_weighted(self) -> Trace:
        """Return the trace with norm-weighted attention a[i,j] · ‖v_j W_O^h‖, rows divided by
        their sums (Kobayashi et al. 2020). A weighted trace is returned unchanged.

        Raises:
            InputError: the trace was made without `norms=True`.
        """
        if is_weighed(self):
            return self
        blocks = {name: _weighed(block) for name, block in self.blocks.items()}
        return replace(self, blocks=blocks, provenance={**self.provenance, "over": "norm"})


def attention_dataset(weights: np.ndarray, layers: Sequence[int] | np.ndarray) -> xr.Dataset:
    """Return a block's dataset with attention alone (`layer head query key`)."""
    return xr.Dataset(
        {"attention": (DIMENSIONS["attention"], weights)},
        coords={"layer": np.asarray(layers), "head": np.arange(weights.shape[1])},
    )


def word_matrix(tokens: Tokens, *, mean: bool) -> np.ndarray:
    """Return `word token`: 1 (or 1/length, for `mean`) where a token belongs to a word."""
    words = tokens.word_groups()
    matrix = np.zeros((len(words), len(tokens)))
    for row, members in enumerate(words):
        matrix[row, members] = 1 / len(members) if mean else 1
    return matrix


def _selected(
    trace: Trace, other: Trace | None, over: Over, **chosen: Any
) -> tuple[list[Trace], str]:
    """Return one trace or two, over attention or norms, and what a page opens on."""
    from headscope.page.save_page import need_trace
    from headscope.page.selection import make_selection

    UnknownName.check("over", over, OVER)
    traces = [need_trace(item) for item in (trace, other) if item is not None]
    traces = traces if over == "attention" else [item.norm_weighted() for item in traces]
    return traces, make_selection(traces[0], **chosen)


OVER = ("attention", "norm")
"""Weights of metrics and views: attention, or norm-weighted attention."""


def is_weighed(trace: Trace) -> bool:
    """Return True for norm-weighted attention."""
    return trace.provenance.get("over") == "norm"


def _weighed(block: Block) -> Block:
    if "lengths" not in block.data:
        raise InputError(
            "This trace has no lengths of values, so it cannot be weighted by norms: trace the "
            "text with model.trace(text, norms=True)."
        )
    attention = block.attention.transpose("layer", "head", "query", "key")
    lengths = block.data["lengths"].transpose("layer", "head", "key").values
    moved = attention.values * lengths[:, :, None]
    total = moved.sum(-1, keepdims=True)
    weights = np.divide(moved, total, out=np.zeros_like(moved), where=total > 0)
    # Scores, queries and keys explain plain attention only.
    variables = [name for name in ("attention", "lengths") if name in block.data]
    data = block.data[variables].assign(attention=(attention.dims, weights))
    return replace(block, data=data)
