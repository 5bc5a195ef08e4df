"""What stands in for a head that is taken away: nothing, or its mean over a reference corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from headscope.attention import Attention, Block
from headscope.causal.rows import HeadSet
from headscope.errors import InputError, UnknownName
from headscope.model.edit import Edit
from headscope.model.model import Model
from headscope.model.row_edits import ReplaceRows, SilenceRows
from headscope.model.tracing import encode_for
from headscope.text.corpus import Corpus
from headscope.text.readers.read import Readable, as_corpus

Replace = Literal["zero", "mean"]
REPLACES: tuple[Replace, ...] = ("zero", "mean")


@dataclass(frozen=True, eq=False)
class Replacement:
    """How heads are taken away.

    A mean over a corpus is taken without the first position of each document, and the first
    position of the text keeps what it is: heads rest there, and a mean of other positions would
    overwrite the resting place itself.
    """

    block: Block
    means: Mapping[int, Tensor] | None = None
    """By layer, `head neuron`; None for zero."""

    def edit(self, layer: int, rows: Sequence[int], sets: Sequence[HeadSet]) -> Edit:
        """The edit of one layer: in each row, its heads are replaced."""
        at = torch.tensor([row for row, heads in zip(rows, sets, strict=True) for _ in heads])
        heads = torch.tensor([head for members in sets for _, head in members])
        where = {"layer": layer, "head": int(heads[0]), "block": self.block}
        if self.means is None:
            return SilenceRows(rows=at, heads=heads, **where)  # type: ignore[arg-type]
        values = self.means[layer][heads][:, None]
        return ReplaceRows(rows=at, heads=heads, values=values, keeps_first=True, **where)  # type: ignore[arg-type]


def make_replacement(
    model: Model, replace: str, reference: Corpus | Readable | None, block: Block
) -> Replacement:
    """The replacement that someone asks for."""
    if replace not in REPLACES:
        raise UnknownName.of("replacement", replace, REPLACES)
    if replace == "zero":
        if reference is not None:
            raise InputError("reference=… is what replace='mean' takes means over; replace='zero'.")
        return Replacement(block)
    if reference is None:
        raise InputError(
            "replace='mean' needs texts to take each head's mean over: reference=hs.read(…), "
            "or a list of texts like the one you ask about."
        )
    return Replacement(block, mean_outputs(model, as_corpus(reference), block))


def mean_outputs(model: Model, corpus: Corpus, block: Block) -> dict[int, Tensor]:
    """By layer, `head neuron`: the mean output of each head over all positions but the first."""
    sums: dict[int, Tensor] = {}
    counts: dict[int, int] = {}

    def add(attention: Attention) -> None:
        if attention.block != block:
            return
        if attention.outputs is None:
            raise InputError(
                f"The tap does not see the head outputs of {model.info.family}: only "
                "replace='zero' can be asked of it."
            )
        rest = attention.outputs[0, :, 1:].double()
        layer = attention.layer
        sums[layer] = rest.sum(1).cpu() + sums.get(layer, 0.0)
        counts[layer] = counts.get(layer, 0) + rest.shape[1]

    for document in corpus:
        target = document.meta.get("target", document.text)
        decoder = target if "decoder" in model.info.blocks else None
        _, _, inputs = encode_for(
            model, document.text, None, target=decoder, generate=0, truncate=True
        )
        model.read(inputs, add)
    if not any(counts.values()):
        raise InputError("The reference has no text of two tokens: nothing to take a mean over.")
    return {layer: sums[layer] / counts[layer] for layer in sums}
