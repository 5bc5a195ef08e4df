"""Where taps meet: one junction per attention module in use, whatever models share it.

A call of the module is carried out once. Everything attached to it takes part: all edits,
in the order they were attached, then all readers. Each sees the call under the block and
layer that its own model gives it.

Who takes part in an attention computation, and how their edits are carried out.

What someone wants of the tap: to read, to change, to hear of gradients.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headscope.attention import Attention, BlockName, LayerReader
from headscope.errors import InputError, TapUnsupported
from headscope.model.edits import Edit, Vectors
from headscope.model.tap.forward_pass import BoundSites, ForwardInputs
from headscope.model.tap.interface import EagerFunction, intercepted
from headscope.model.tap.sites import Route, Site
from headscope.model.tap.watch import Hooks, Watch, unfold, unfold_any, watching


@dataclass(frozen=True, slots=True, eq=False)
class Attachment:
    """One use of the tap: who reads, what is changed, what else is wanted."""

    reader: LayerReader | None = None
    edits: tuple[Edit, ...] = ()
    on_gradient: Callable[[Site, Tensor], None] | None = None
    """Called during the backward pass with ∂L/∂a, `batch head query key`, layer by layer."""
    wants_scores: bool = False
    returns_weights: bool = True
    """Hand the weights back to the model, so that `output_attentions=True` still works.
    Off, a layer's attention is freed as soon as its reader returns."""
    stops: bool = False
    """Leave the forward pass by `AllRead` once the reader has seen every layer."""


class AllRead(Exception):
    """Every layer was read, and nobody asked for what the model would still compute."""


USE_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True, eq=False)
class Attached:
    """An attachment through one model's circuit."""

    circuit: BoundSites
    attachment: Attachment
    thread: threading.Thread | None
    """The thread whose calls are meant; None for those of every thread."""
    number: int = field(default_factory=lambda: next(USE_NUMBERS))
    """Uses are numbered in the order they were attached."""


class Participant(NamedTuple):
    """The part that one use has in one attention computation."""

    use: Attached
    site: Site
    inputs: ForwardInputs
    """What the forward pass under way was given."""
    block: BlockName
    """The block of the computation in the model whose forward pass that is."""


class Participants:
    """All parts in one computation, in the order they were attached.

    Attributes:
        parts: one or more.
        site: where the computation is, as the model has it that was attached first.
        edits: those that apply here, each with whose it is, in order.
    """

    def __init__(self, parts: Sequence[Participant]) -> None:
        self.parts = parts
        self.site = parts[0].site
        self.edits = [
            (part, edit)
            for part in parts
            for edit in part.use.attachment.edits
            if edit.touches(part.site, part.use.circuit.wiring.main_block())
        ]

    @property
    def wants_scores(self) -> bool:
        """Does anyone read scores?"""
        return any(part.use.attachment.wants_scores for part in self.parts)

    @property
    def wants_gradient(self) -> bool:
        """Does anyone hear of gradients?"""
        return any(part.use.attachment.on_gradient is not None for part in self.parts)

    @property
    def returns_weights(self) -> bool:
        """Are the weights handed back to the model?"""
        return all(part.use.attachment.returns_weights for part in self.parts)

    def edit_vectors(self, vectors: Vectors) -> Vectors:
        """The vectors after all edits."""
        for part, edit in self.edits:
            vectors = edit.on_vectors(vectors, part.site)
        return vectors

    def edit_outputs(self, outputs: Tensor) -> Tensor:
        """The head outputs after all edits."""
        for _, edit in self.edits:
            outputs = edit.on_outputs(outputs)
        return outputs

    def edit_weights(self, weights: Tensor, n_queries: int, n_keys: int) -> Tensor:
        """The weights after all edits, with a hook where their gradient is wanted.

        With frozen parameters nothing upstream asks for a gradient, so the weights of the
        first layer become a leaf of the graph themselves.
        """
        for part, edit in self.edits:
            positions = part.inputs.positions(part.block, n_queries, n_keys)
            weights = edit.on_weights(weights, positions)
        for part in self.parts:
            on_gradient = part.use.attachment.on_gradient
            if on_gradient is not None and torch.is_grad_enabled():
                if part.site.is_copy:
                    raise TapUnsupported(
                        f"{part.site.module} multiplies the same attention with several values, so "
                        "its gradient is not seen in one place."
                    )
                if not weights.requires_grad:
                    weights = weights.detach().requires_grad_()
                weights.register_hook(functools.partial(on_gradient, part.site))
        return weights


_lock = threading.RLock()
_dispatchers: dict[int, _Dispatcher] = {}
"""Id of an attention module → its junction, while anything is attached to it."""


class _Here(threading.local):
    first_use = 0
    """Uses with a lower number are suspended in this thread."""


_here = _Here()


@contextmanager
def suspended() -> Iterator[None]:
    """Within the block, modules run in this thread as if nothing had been attached to them
    before.
    """
    first_use, _here.first_use = _here.first_use, next(USE_NUMBERS)
    try:
        yield
    finally:
        _here.first_use = first_use


@contextmanager
def connected(modules: Iterable[nn.Module], use: Attached) -> Iterator[None]:
    """Within the block, every call of these attention modules takes `use` into account."""
    with ExitStack() as stack:
        for module in modules:
            stack.enter_context(_connected(module, use))
        yield


@contextmanager
def _connected(module: nn.Module, use: Attached) -> Iterator[None]:
    route = use.circuit.wiring.route
    with _lock:
        junction = _dispatchers.get(id(module))
        if junction is None:
            junction = _dispatchers[id(module)] = _Dispatcher(module, route)
        elif junction.route != route:
            raise InputError(
                f"A {type(module).__name__} of this {type(use.circuit.root).__name__} is being "
                "read in another way through another model that has it as a part. Leave that "
                "model's block (edit, tapped) first."
            )
        junction.uses = (*junction.uses, use)
    try:
        yield
    finally:
        with _lock:
            junction.uses = tuple(other for other in junction.uses if other is not use)
            if not junction.uses:
                del _dispatchers[id(module)]
                junction.close()


def uses_of(modules: Iterable[nn.Module]) -> list[Attached]:
    """What is attached to any of these modules for this thread, in order."""
    uses = {
        use.number: use
        for module in modules
        if (junction := _dispatchers.get(id(module))) is not None
        for use in junction.uses_here()
    }
    return [uses[number] for number in sorted(uses)]


class _Dispatcher:
    """One attention module, and everything attached to it."""

    def __init__(self, module: nn.Module, route: Route) -> None:
        self.route = route
        self.uses: tuple[Attached, ...] = ()
        self._module = module
        self._opened = ExitStack()
        if route == "interface":
            self._opened.enter_context(intercepted([module], self._through_interface))
        else:
            self._opened.enter_context(watching(module, self._start_watch, self._finish_watch))

    def close(self) -> None:
        """Leave the module as it was."""
        self._opened.close()

    def uses_here(self) -> list[Attached]:
        """What is attached for calls of this thread."""
        here = threading.current_thread()
        return [use for use in self.uses if use.thread is None or use.thread is here]

    def _next_call(self) -> dict[int, Participants]:
        """Who takes part in the call that starts now, by computation."""
        uses = [use for use in self.uses_here() if use.number >= _here.first_use]
        sites: dict[BoundSites, dict[int, Site]] = {}
        for use in uses:
            if use.circuit not in sites:
                sites[use.circuit] = use.circuit.next_call(self._module)
        parts: dict[int, list[Participant]] = {}
        for use in uses:
            for computation, site in sites[use.circuit].items():
                part = Participant(use, site, *_inputs(use.circuit, computation, sites))
                parts.setdefault(computation, []).append(part)
        return {computation: Participants(some) for computation, some in parts.items()}

    # The interface route: the family's eager function is called here.

    def _through_interface(
        self,
        function: EagerFunction,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *args: object,
        **kwargs: object,
    ) -> tuple[Tensor, Tensor | None]:
        parts = self._next_call().get(0)
        if parts is None:
            return function(module, query, key, value, *args, **kwargs)
        vectors = parts.edit_vectors(Vectors(query, key, value))
        scores: Tensor | None = None
        if parts.edits or parts.wants_scores or parts.wants_gradient:
            hooks = _InterfaceEdits(parts, query.shape[2], key.shape[2])
            with Watch(hooks, keeps_scores=parts.wants_scores, replace_at="product") as watch:
                output, weights = function(module, *vectors, *args, **kwargs)
            weights, scores = watch.steps[-1].weights, watch.steps[-1].scores
        else:
            output, weights = function(module, *vectors, *args, **kwargs)
        assert weights is not None
        outputs = parts.edit_outputs(output.transpose(1, 2))
        _read(parts, weights, vectors, outputs, scores if parts.wants_scores else None)
        return outputs.transpose(1, 2), weights if parts.returns_weights else None

    # The fallback route: the module runs as it is, watched.

    def _start_watch(self) -> Watch | None:
        calls = self._next_call()
        wants_scores = any(parts.wants_scores for parts in calls.values())
        return Watch(_FoldedEdits(calls), keeps_scores=wants_scores) if calls else None

    def _finish_watch(self, watch: Watch) -> None:
        assert isinstance(watch.hooks, _FoldedEdits)
        for index, parts in watch.hooks.calls.items():
            site = parts.site
            steps = watch.steps[index] if index < len(watch.steps) else None
            if steps is None or steps.weights is None:
                raise TapUnsupported(
                    f"{site.module} computed its attention another way than in the self-check, "
                    "so it cannot be read for this input."
                )
            has_vectors = site.head_size is not None
            laid_out = functools.partial(unfold_any, n_heads=site.n_heads)
            _read(
                parts,
                unfold(steps.weights, site.n_heads),
                Vectors(
                    laid_out(steps.query if has_vectors else None),
                    laid_out(steps.key if has_vectors else None),
                    laid_out(steps.value),
                ),
                laid_out(steps.output),
                laid_out(steps.scores),
            )


class _InterfaceEdits(Hooks):
    """The edits of weights on the interface route, where everything else is edited outside."""

    def __init__(self, parts: Participants, n_queries: int, n_keys: int) -> None:
        self._parts = parts
        self._lengths = n_queries, n_keys

    def weights(self, computation: int, weights: Tensor) -> Tensor:
        return self._parts.edit_weights(weights, *self._lengths)


class _FoldedEdits(Hooks):
    """All edits on the fallback route, where tensors may have `batch·head` on one axis.

    Attributes:
        calls: computation → who takes part in it; other computations are left as they are.
    """

    def __init__(self, calls: dict[int, Participants]) -> None:
        self.calls = calls

    def weights(self, computation: int, weights: Tensor) -> Tensor:
        parts = self.calls.get(computation)
        if parts is None:
            return weights
        unfolded = unfold(weights, parts.site.n_heads)
        return parts.edit_weights(unfolded, *unfolded.shape[2:]).reshape(weights.shape)

    def factors(self, computation: int, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        folded = Vectors(query, key.transpose(-1, -2), None)
        changed = self._edited(computation, folded)
        assert changed.query is not None
        assert changed.key is not None
        return changed.query, changed.key.transpose(-1, -2)

    def value(self, computation: int, value: Tensor) -> Tensor:
        changed = self._edited(computation, Vectors(None, None, value)).value
        assert changed is not None
        return changed

    def output(self, computation: int, output: Tensor) -> Tensor:
        parts = self.calls.get(computation)
        if parts is None or not parts.edits:
            return output
        return parts.edit_outputs(unfold(output, parts.site.n_heads)).reshape(output.shape)

    def _edited(self, computation: int, folded: Vectors) -> Vectors:
        """Vectors after the edits, in the layout they came in."""
        parts = self.calls.get(computation)
        if parts is None or not parts.edits:
            return folded
        unfolded = Vectors(*(unfold_any(tensor, parts.site.n_heads) for tensor in folded))
        return Vectors(
            *(
                None if before is None or after is None else after.reshape(before.shape)
                for before, after in zip(folded, parts.edit_vectors(unfolded), strict=True)
            )
        )


def _inputs(
    circuit: BoundSites, computation: int, sites: dict[BoundSites, dict[int, Site]]
) -> tuple[ForwardInputs, BlockName]:
    """What is known of the forward pass under way: of the circuit's own root where that
    runs, else of whichever root does (a base model may run alone).
    """
    own_block = sites[circuit][computation].block
    if circuit.inputs is not None:
        return circuit.inputs, own_block
    for other, others_sites in sites.items():
        if other.inputs is not None and computation in others_sites:
            return other.inputs, others_sites[computation].block
    return ForwardInputs(n_past=circuit.n_past), own_block


def _read(
    parts: Participants,
    weights: Tensor,
    vectors: Vectors,
    outputs: Tensor | None,
    scores: Tensor | None,
) -> None:
    """Hand the attention to every reader, under its own model's block and layer."""
    made: dict[BoundSites, Attention] = {}
    is_over = False
    for part in parts.parts:
        reader, site, circuit = part.use.attachment.reader, part.site, part.use.circuit
        if reader is None or site.is_copy:
            continue
        part.inputs.check_media(circuit.wiring)
        if weights.ndim != 4 or weights.shape[1] != site.n_heads:
            raise TapUnsupported(
                f"{site.module} has attention of shape {tuple(weights.shape)} here; the "
                f"self-check saw {site.n_heads} heads of queries by keys."
            )
        if circuit not in made:
            own_scores, sink_logits = _split(scores if site.has_scores else None, weights.shape[-1])
            query_mask, key_mask = part.inputs.masks(part.block, weights)
            made[circuit] = Attention(
                weights=weights,
                block=site.block,
                layer=site.layer,
                is_causal=site.block in circuit.wiring.causal_blocks
                and part.inputs.looks_back(weights),
                query_mask=query_mask,
                key_mask=key_mask,
                queries=None if site.head_size is None else vectors.query,
                keys=None if site.head_size is None else vectors.key,
                values=None if site.value_size is None else vectors.value,
                outputs=None if site.value_size is None else outputs,
                scores=own_scores,
                sink_logits=sink_logits,
            )
        reader(made[circuit])
        is_over |= part.use.attachment.stops and circuit.count_read(site)
    if is_over:
        raise AllRead


def _split(scores: Tensor | None, n_keys: int) -> tuple[Tensor | None, Tensor | None]:
    """The scores of the keys, and those of the sink: the column after them, where there is one."""
    if scores is None:
        return None, None
    return scores[..., :n_keys], scores[..., n_keys] if scores.shape[-1] > n_keys else None
