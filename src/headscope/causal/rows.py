"""Many changes of one text at once: each is a row of a batch, on top of reused lower layers.

A head that is changed in layer l leaves the layers below it as they are. The rows of a batch
are sorted by the layer of their first change, and a layer computes only the rows that are
changed in it or below it: the others still equal the unchanged text, which is row 0. Where a
batch is cut into several, the layers below its first change are not computed at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

from headscope.attention import Block
from headscope.causal.passes import Pass, map_tensors, spread
from headscope.causal.readout import Readout, refuse_nonsense
from headscope.causal.replay import layer_modules, recorded
from headscope.errors import HeadscopeError
from headscope.model.edit import Edit
from headscope.model.tap.attachment import Attachment

Head = tuple[int, int]
HeadSet = tuple[Head, ...]
MOST_TOKENS = 8192
"""Tokens of a batch."""
MOST_LOGITS = 1 << 26
MOST_WEIGHTS = 1 << 26
"""Attention weights of one layer of a batch."""
TOLERANCE = 1e-3
ROUNDINGS = 16
"""How far a row of a batch may be from the same run alone, relative to the largest of 1 and its
value: at least `TOLERANCE`, and so many roundings of the model's numbers."""

MakeReadout = Callable[[ModelOutput, Tensor | None], Readout]
"""Decides what is read by the output of the unchanged text, and its logits at the position."""
MakeEdit = Callable[[int, Sequence[int], Sequence[HeadSet]], Edit]
"""The edit of a layer: given the layer, rows of the batch, and for each row its heads there."""


@dataclass(frozen=True, eq=False)
class Base:
    """A text as it is: the number that is read, or several, and every layer's output."""

    readout: Readout
    value: np.ndarray
    kept: Mapping[int, object]


class Rows:
    """Runs changes of one text as rows of batches.

    Args:
        text: the text.
        block: the attention whose heads are changed.
    """

    def __init__(self, text: Pass, block: Block) -> None:
        self.text = text
        self.model = text.model
        is_main = block == self.model.wiring.main_block()
        self._layers = layer_modules(self.model) if is_main else {}
        self._cuts_rows = True
        self.tolerance = max(TOLERANCE, ROUNDINGS * torch.finfo(self.model.module.dtype).eps)
        self._n_heads = max(site.n_heads for site in self.model.wiring.of_block(block))

    def base(self, make: MakeReadout) -> Base:
        """Run the text as it is; `make` decides by its outputs what is read."""
        with (
            torch.inference_mode(),
            recorded(self._layers) as kept,
            self.model.tapped(returns_weights=False),
        ):
            outputs, logits = self.text.run()
            readout = make(outputs, logits)
            value = readout.read(outputs, logits)[0].double().cpu().numpy()
        refuse_nonsense(self.model, readout, value)
        return Base(readout, value, kept)

    def values(
        self,
        base: Base,
        sets: Sequence[HeadSet],
        make_edit: MakeEdit,
        advance: Callable[[int], None] = lambda n: None,
    ) -> np.ndarray:
        """What the number is after each set of heads was changed, each alone."""
        order = sorted(range(len(sets)), key=lambda i: min(layer for layer, _ in sets[i]))
        values = np.full((len(sets), *base.value.shape), np.nan)
        size = self._batch_size()
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            some = [sets[i] for i in chosen]
            try:
                values[chosen] = self._run(some, base, make_edit)
            except RuntimeError:  # the family hands on tensors whose first axis is not the rows
                if not self._cuts_rows:
                    raise
                self._cuts_rows = False
                values[chosen] = self._run(some, base, make_edit)
            advance(len(chosen))
        return values

    def alone(self, base: Base, heads: HeadSet, make_edit: MakeEdit) -> float:
        """The same of one set by a plain pass: nothing is reused."""
        edits = _edits([heads], make_edit, first_row=0)
        tap = Attachment(edits=edits, returns_weights=False)
        with torch.inference_mode(), self.model.attached(tap):
            outputs, logits = self.text.run()
            return float(base.readout.read(outputs, logits)[0])

    def _batch_size(self) -> int:
        n = self.text.n_tokens
        limits = [MOST_TOKENS // n, MOST_WEIGHTS // (n * n * self._n_heads)]
        if not self.text.is_cut:
            width = getattr(self.model.module.config, "vocab_size", 1) or 1
            limits.append(MOST_LOGITS // (n * width))
        return max(1, min(limits) - 1)

    def _run(self, sets: Sequence[HeadSet], base: Base, make_edit: MakeEdit) -> np.ndarray:
        """`row`: the values of sets, sorted by the layer of their first change."""
        n_rows = len(sets) + 1
        firsts = [min(layer for layer, _ in heads) for heads in sets]
        tap = Attachment(edits=_edits(sets, make_edit, first_row=1), returns_weights=False)
        with (
            torch.inference_mode(),
            self.model.attached(tap),
            self._shortened(firsts, base.kept, n_rows),
        ):
            outputs, logits = self.text.run(n_rows)
            values = base.readout.read(outputs, logits).double().cpu().numpy()
        apart = np.abs(values[0] - base.value)
        if (apart > self.tolerance * np.maximum(1.0, np.abs(base.value))).any():
            worst = np.unravel_index(apart.argmax(), apart.shape)
            raise HeadscopeError(
                f"{self.model.name} gives {values[0][worst]:.6g} for a text in a batch and "
                f"{base.value[worst]:.6g} for the text alone, so its rows are not independent and "
                "heads cannot be compared in one batch."
            )
        return np.asarray(values[1:])

    @contextmanager
    def _shortened(
        self, firsts: Sequence[int], kept: Mapping[int, object], n_rows: int
    ) -> Iterator[None]:
        """Within the block, layers compute only rows that are changed so far."""
        with ExitStack() as stack:
            for number, module in self._layers.items():
                if number not in kept:
                    continue
                if number < firsts[0]:
                    _stand_in(stack, module, _giver(kept[number], n_rows))
                elif self._cuts_rows:
                    active = 1 + sum(first <= number for first in firsts)
                    if active < n_rows:
                        _stand_in(stack, module, _cutter(module, active, n_rows))
            yield


def _edits(sets: Sequence[HeadSet], make_edit: MakeEdit, *, first_row: int) -> tuple[Edit, ...]:
    by_layer: dict[int, tuple[list[int], list[HeadSet]]] = {}
    for row, heads in enumerate(sets, start=first_row):
        for layer in sorted({layer for layer, _ in heads}):
            rows, members = by_layer.setdefault(layer, ([], []))
            rows.append(row)
            members.append(tuple(head for head in heads if head[0] == layer))
    return tuple(make_edit(layer, rows, members) for layer, (rows, members) in by_layer.items())


def _stand_in(stack: ExitStack, module: nn.Module, forward: Callable[..., object]) -> None:
    module.forward = forward  # type: ignore[method-assign, unused-ignore]
    stack.callback(delattr, module, "forward")


def _giver(output: object, n_rows: int) -> Callable[..., object]:
    return lambda *_, **__: map_tensors(output, lambda tensor: spread(tensor, n_rows))


def _cutter(module: nn.Module, active: int, n_rows: int) -> Callable[..., object]:
    """A forward that computes the first `active` rows; the others are as row 0."""
    original = module.forward

    def cut(tensor: Tensor) -> Tensor:
        return tensor[:active] if tensor.ndim > 1 and tensor.shape[0] == n_rows else tensor

    def fill(tensor: Tensor) -> Tensor:
        if tensor.ndim < 2 or tensor.shape[0] != active:
            return tensor
        return torch.cat((tensor, spread(tensor[:1], n_rows - active)))

    def forward(*args: object, **kwargs: object) -> object:
        result = original(*map_tensors(args, cut), **map_tensors(kwargs, cut))
        return map_tensors(result, fill)

    return forward
