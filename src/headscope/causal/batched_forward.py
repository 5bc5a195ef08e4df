"""Forward passes with many edits of one text: each edit is a row of a batch.

A change in layer l does not affect the layers below it. Rows are sorted by the layer of their
first change, and a layer computes only rows that are changed in it or below it. All other rows
still equal row 0, the unedited text. Layers below the first change of a batch are not computed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

from headscope.attention import BlockName
from headscope.causal.readout import Readout, check_finite
from headscope.errors import HeadscopeError
from headscope.model.edits import Edit
from headscope.model.model import Model
from headscope.model.tap.dispatch import Attachment

T = TypeVar("T")


class ForwardPass:
    """Runs one text, in one row or many. Logits are read at `position`; at all if None."""

    def __init__(self, model: Model, inputs: Mapping[str, Tensor], position: int | None) -> None:
        self.model = model
        self.inputs = model.to_device(inputs)
        self.position = position
        self.n_tokens = max(t.shape[1] for t in inputs.values() if t.ndim > 1)
        accepted = inspect.signature(model.module.forward).parameters
        self._options: dict[str, object] = {"use_cache": False} if "use_cache" in accepted else {}
        self.is_cut = position is not None and "logits_to_keep" in accepted
        if self.is_cut:
            self._options["logits_to_keep"] = torch.tensor([position], device=model.module.device)

    def run(self, n_rows: int = 1) -> tuple[ModelOutput, Tensor | None]:
        """Return the model's output, and `row answer`: the logits at the position."""
        inputs = {
            name: repeat_rows(tensor, n_rows) if isinstance(tensor, Tensor) else tensor
            for name, tensor in self.inputs.items()
        }
        outputs: ModelOutput = self.model.module(**inputs, **self._options)
        logits = outputs.get("logits")
        if not isinstance(logits, Tensor) or (logits.ndim > 2 and self.position is None):
            return outputs, None
        if logits.ndim > 2:
            logits = logits[:, 0 if self.is_cut else self.position]
        return outputs, logits


def repeat_rows(tensor: Tensor, n_rows: int) -> Tensor:
    """Repeat the one row of a tensor `n_rows` times."""
    if tensor.ndim < 2 or tensor.shape[0] != 1 or n_rows == 1:
        return tensor
    return tensor.expand(n_rows, *tensor.shape[1:]).contiguous()


def map_tensors(tree: T, change: Callable[[Tensor], Tensor]) -> T:
    """Return the arguments or result of a call with `change` applied to every tensor."""
    if isinstance(tree, Tensor):
        return change(tree)  # type: ignore[return-value]
    if isinstance(tree, dict):
        return type(tree)((name, map_tensors(part, change)) for name, part in tree.items())
    if type(tree) in (tuple, list):
        return type(tree)(map_tensors(part, change) for part in tree)  # type: ignore[call-arg, attr-defined]
    return tree


def layer_modules(model: Model) -> dict[int, nn.Module]:
    """Return the module of each layer of the main attention.

    The module is the member of a `ModuleList` that holds the layer's attention. The dict is empty
    if layers are not in a `ModuleList`, or share a module (ALBERT).
    """
    modules: dict[int, nn.Module] = {}
    for site in model.wiring.of_block(model.info.blocks[0]):
        module: nn.Module = model.module
        for name in site.module.split("."):
            parent, module = module, module.get_submodule(name)
            if isinstance(parent, nn.ModuleList):
                break
        else:
            return {}
        if module in modules.values():
            return {}
        modules[site.layer] = module
    return modules


@contextmanager
def recorded(layers: Mapping[int, nn.Module]) -> Iterator[dict[int, object]]:
    """Store every layer's output in the dictionary during the block."""
    kept: dict[int, object] = {}
    with ExitStack() as stack:
        for number, module in layers.items():

            def keep(_: nn.Module, __: object, output: object, number: int = number) -> None:
                kept[number] = output

            stack.callback(module.register_forward_hook(keep).remove)
        yield kept


@contextmanager
def replayed(
    layers: Mapping[int, nn.Module], kept: Mapping[int, object], before: int
) -> Iterator[None]:
    """Return the recorded output of layers below `before` during the block, without running."""
    with ExitStack() as stack:
        for number, module in layers.items():
            if number < before and number in kept:
                override(stack, module, _replay(kept[number], 1))
        yield


Head = tuple[int, int]
HeadSet = tuple[Head, ...]
MAX_BATCH_TOKENS = 8192
MAX_LOGITS = 1 << 26
MAX_BATCH_WEIGHTS = 1 << 26
BATCH_REL_TOL = 1e-3
BATCH_ROUNDINGS = 16
"""A row of a batch may differ from the same run alone, relative to max(1, |value|), by
`BATCH_REL_TOL` or by this many epsilons of the model's dtype."""

MakeReadout = Callable[[ModelOutput, Tensor | None], Readout]
"""Makes the readout from the output of the unedited text and its logits at the position."""
MakeEdit = Callable[[int, Sequence[int], Sequence[HeadSet]], Edit]
"""Makes the edit of a layer from the layer, rows of the batch, and the heads of each row."""


@dataclass(frozen=True, eq=False)
class UneditedRun:
    """Readout, its value, and every layer's output in the unedited text."""

    readout: Readout
    value: np.ndarray
    kept: Mapping[int, object]


class BatchedAblation:
    """Runs edits of one text, to heads of one block, as rows of batches."""

    def __init__(self, text: ForwardPass, block: BlockName) -> None:
        self.text = text
        self.model = text.model
        is_main = block == self.model.wiring.main_block()
        self._layers = layer_modules(self.model) if is_main else {}
        self._cuts_rows = True
        epsilon = torch.finfo(self.model.module.dtype).eps
        self.tolerance = max(BATCH_REL_TOL, BATCH_ROUNDINGS * epsilon)
        self._n_heads = max(site.n_heads for site in self.model.wiring.of_block(block))

    def base(self, make: MakeReadout) -> UneditedRun:
        """Run the unedited text; `make` chooses the readout from its outputs."""
        with (
            torch.inference_mode(),
            recorded(self._layers) as kept,
            self.model.tapped(returns_weights=False),
        ):
            outputs, logits = self.text.run()
            readout = make(outputs, logits)
            value = readout.read(outputs, logits)[0].double().cpu().numpy()
        check_finite(self.model, readout, value)
        return UneditedRun(readout, value, kept)

    def values(
        self,
        base: UneditedRun,
        sets: Sequence[HeadSet],
        make_edit: MakeEdit,
        advance: Callable[[int], None] = lambda n: None,
    ) -> np.ndarray:
        """Return the value of the readout after editing each set of heads alone."""
        config = self.model.module.config
        order = sorted(range(len(sets)), key=lambda i: min(layer for layer, _ in sets[i]))
        values = np.full((len(sets), *base.value.shape), np.nan)
        n = self.text.n_tokens
        limits = [MAX_BATCH_TOKENS // n, MAX_BATCH_WEIGHTS // (n * n * self._n_heads)]
        if not self.text.is_cut:
            limits.append(MAX_LOGITS // (n * (getattr(config, "vocab_size", 1) or 1)))
        size = max(1, min(limits) - 1)
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            batch = [sets[i] for i in chosen]
            try:
                values[chosen] = self._run(batch, base, make_edit)
            except RuntimeError:  # the family passes on tensors whose first axis is not the rows
                if not self._cuts_rows:
                    raise
                self._cuts_rows = False
                values[chosen] = self._run(batch, base, make_edit)
            advance(len(chosen))
        return values

    def alone(self, base: UneditedRun, heads: HeadSet, make_edit: MakeEdit) -> float:
        """Return the value after editing one set, in a plain pass without reuse."""
        edits = _edits([heads], make_edit, first_row=0)
        attachment = Attachment(edits=edits, returns_weights=False)
        with torch.inference_mode(), self.model.attached(attachment):
            outputs, logits = self.text.run()
            return float(base.readout.read(outputs, logits)[0])

    def _run(self, sets: Sequence[HeadSet], base: UneditedRun, make_edit: MakeEdit) -> np.ndarray:
        """Return `row`: the values of sets, sorted by the layer of their first change."""
        n_rows = len(sets) + 1
        firsts = [min(layer for layer, _ in heads) for heads in sets]
        attachment = Attachment(edits=_edits(sets, make_edit, first_row=1), returns_weights=False)
        with torch.inference_mode(), self.model.attached(attachment), ExitStack() as stack:
            for number, module in self._layers.items():  # compute only the edited rows of each
                active = 1 + sum(first <= number for first in firsts)
                if number not in base.kept:
                    continue
                if number < firsts[0]:
                    override(stack, module, _replay(base.kept[number], n_rows))
                elif self._cuts_rows and active < n_rows:
                    override(stack, module, _cut_rows(module, active, n_rows))
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


def _edits(sets: Sequence[HeadSet], make_edit: MakeEdit, *, first_row: int) -> tuple[Edit, ...]:
    by_layer: dict[int, tuple[list[int], list[HeadSet]]] = {}
    for row, heads in enumerate(sets, start=first_row):
        for layer in sorted({layer for layer, _ in heads}):
            rows, members = by_layer.setdefault(layer, ([], []))
            rows.append(row)
            members.append(tuple(head for head in heads if head[0] == layer))
    return tuple(make_edit(layer, rows, members) for layer, (rows, members) in by_layer.items())


def override(stack: ExitStack, module: nn.Module, forward: Callable[..., object]) -> None:
    """Replace a module's forward method until the stack closes."""
    module.forward = forward  # type: ignore[method-assign, unused-ignore]
    stack.callback(delattr, module, "forward")


def _replay(output: object, n_rows: int) -> Callable[..., object]:
    return lambda *_, **__: map_tensors(output, lambda tensor: repeat_rows(tensor, n_rows))


def _cut_rows(module: nn.Module, active: int, n_rows: int) -> Callable[..., object]:
    """Return a forward that computes the first `active` rows; the others equal row 0."""
    original = module.forward

    def cut(tensor: Tensor) -> Tensor:
        return tensor[:active] if tensor.ndim > 1 and tensor.shape[0] == n_rows else tensor

    def fill(tensor: Tensor) -> Tensor:
        if tensor.ndim < 2 or tensor.shape[0] != active:
            return tensor
        return torch.cat((tensor, repeat_rows(tensor[:1], n_rows - active)))

    def forward(*args: object, **kwargs: object) -> object:
        result = original(*map_tensors(args, cut), **map_tensors(kwargs, cut))
        return map_tensors(result, fill)

    return forward
