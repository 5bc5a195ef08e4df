"""Read and edit every attention weight of a model while it runs.

While attached, the family's own eager attention runs, with its masks, biases, caps and sinks.
`check.wire` finds and proves the route for each model once (see `sites.Route`). Each call is
dispatched once, with the edits and readers of all models that share a module: all edits run first,
in the order of attachment, then all readers, under the block and layer of their own model. One
thread at a time holds the modules, and the last attachment to end restores them.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headscope.attention import Attention, BlockName, LayerReader
from headscope.errors import InputError, TapUnsupported
from headscope.model.edits import Edit, Vectors, WatchOutputs
from headscope.model.tap.forward_pass import BoundSites, ForwardInputs
from headscope.model.tap.interface import eager_attention, intercepted, locked_modules, modules_of
from headscope.model.tap.interrupts import deliver, held, interrupts_held
from headscope.model.tap.rows import (
    EagerCall,
    GradientRows,
    MaskRecipe,
    PlainMask,
    mask_recipes,
    run_plain,
    run_rows,
    run_unread,
)
from headscope.model.tap.sites import Route, Site
from headscope.model.tap.watch import Hooks, Watch, ending_watches, unfold, watching


@dataclass(frozen=True, slots=True, eq=False)
class Attachment:
    """Options of one attachment: reader, edits, gradient callback."""

    reader: LayerReader | None = None
    edits: tuple[Edit, ...] = ()
    on_gradient: Callable[[Site, Tensor], None] | None = None
    """Called during the backward pass with ∂L/∂a, `batch head query key`, layer by layer."""
    wants_scores: bool = False
    returns_weights: bool = True
    """Return the weights to the model, so that `output_attentions=True` still works.
    Otherwise a layer's attention is freed as soon as its reader returns."""
    stops: bool = False
    """Leave the forward pass by `AllRead` once the reader has seen every layer that it wants."""
    rows: int | None = None
    """Query rows of a block that the reader gets; None for whole layers. Only if the self-check
    proved it (`Wiring.has_rows`), without scores, and with edits that act by rows."""
    computes_softmax: bool = False
    """The reader turns q·k into weights (`Attention.are_scores`) where the self-check proved that
    this is the model's attention."""
    layers: frozenset[int] | None = None
    """Layers to read, of all blocks; None for all. Others run in torch's fused attention."""
    takes_gradients: bool = False
    """Call the reader in the backward pass, with weights and ∂L/∂a of each block of rows. Only
    where all attention is plain (`Site.is_plain`)."""


class AllRead(Exception):
    """Ends the forward pass after the last layer was read."""


NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True, eq=False)
class Attached:
    """An attachment with the bound sites of one model."""

    bound_sites: BoundSites
    attachment: Attachment
    thread: threading.Thread | None
    """The only thread whose calls are included; None for all threads."""
    number: int = field(default_factory=lambda: next(NUMBERS))
    """Rank in the order of attachment."""


class Participant(NamedTuple):
    """Share of one attachment in one attention computation."""

    attachment: Attachment
    bound_sites: BoundSites
    site: Site
    inputs: ForwardInputs
    block: BlockName
    """Block of the computation in the model that runs the forward pass."""


class Participants:
    """Participants in one computation, in the order of attachment; `site` is the first's."""

    def __init__(self, members: Sequence[Participant]) -> None:
        self.members = members
        self.site = members[0].site
        self.edits = [
            (m, edit)
            for m in members
            for edit in m.attachment.edits
            if edit.touches(m.site, m.bound_sites.wiring.main_block())
        ]
        attachments = [member.attachment for member in members]
        self.is_changed = not all(isinstance(edit, WatchOutputs) for _, edit in self.edits)
        self.wants_scores = any(x.wants_scores for x in attachments)
        self.wants_gradient = any(x.on_gradient is not None for x in attachments)
        self.returns_weights = all(x.returns_weights for x in attachments)
        self.is_unread = any(x.layers is not None for x in attachments) and all(
            x.reader is None if x.layers is None else self.site.layer not in x.layers
            for x in attachments
        )
        self.takes_gradients = any(x.takes_gradients for x in attachments)
        self.reading = [m for m in members if m.attachment.reader is not None]
        self.rows: int | None = None
        """Rows of a block; None if anything attached needs the whole layer."""
        needs_whole = self.wants_scores or self.wants_gradient or len(self.reading) != 1
        by_rows = all(edit.acts_by_rows and not self.takes_gradients for _, edit in self.edits)
        if by_rows and not needs_whole and not self.reading[0].inputs.has_own_mask:
            self.rows = self.reading[0].attachment.rows

    def edit_vectors(self, vectors: Vectors) -> Vectors:
        """Apply all edits to the vectors."""
        for member, edit in self.edits:
            vectors = edit.on_vectors(vectors, member.site)
        return vectors

    def edit_outputs(self, outputs: Tensor) -> Tensor:
        """Apply all edits to the head outputs."""
        for _, edit in self.edits:
            outputs = edit.on_outputs(outputs)
        return outputs

    def edit_weights(self, weights: Tensor, n_queries: int, n_keys: int) -> Tensor:
        """Apply all edits to the weights, and register gradient callbacks. With frozen parameters,
        the weights of the first layer become a leaf of the graph themselves.
        """
        for member, edit in self.edits:
            positions = member.inputs.positions(member.block, n_queries, n_keys)
            weights = edit.on_weights(weights, positions)
        for member in self.members:
            on_gradient = member.attachment.on_gradient
            if on_gradient is not None and torch.is_grad_enabled():
                if member.site.is_copy:
                    raise TapUnsupported(
                        f"{member.site.module} multiplies the same attention with several values, "
                        "so its gradient is not seen in one place."
                    )
                if not weights.requires_grad:
                    weights = weights.detach().requires_grad_()
                weights.register_hook(functools.partial(on_gradient, member.site))
        return weights


_lock = threading.RLock()
_dispatchers: dict[int, _Dispatcher] = {}
"""Id of an attention module → its dispatcher, while something is attached to the module."""


class _ThreadState(threading.local):
    first_number = 0
    """Attachments with a lower number are suspended in this thread."""


_thread_state = _ThreadState()


@contextmanager
@held
def suspended() -> Iterator[None]:
    """Within the block, this thread ignores all earlier attachments."""
    previous, _thread_state.first_number = _thread_state.first_number, next(NUMBERS)
    try:
        yield
    finally:
        _thread_state.first_number = previous


@contextmanager
@held
def connected(modules: Iterable[nn.Module], attached: Attached) -> Iterator[None]:
    """Within the block, calls of these attention modules include `attached`."""
    route = attached.bound_sites.wiring.route
    with ExitStack() as stack:
        for module in modules:
            with _lock:
                dispatcher = _dispatchers.get(id(module))
                if dispatcher is None:
                    dispatcher = _dispatchers[id(module)] = _Dispatcher(module, route)
                elif dispatcher.route != route:
                    raise InputError(
                        f"A {type(module).__name__} of this "
                        f"{type(attached.bound_sites.root).__name__} is read on another route "
                        "through another model that shares it. Leave that model's block (edit, "
                        "tapped) first."
                    )
                dispatcher.attached = (*dispatcher.attached, attached)
                stack.callback(dispatcher.detach, attached)
        yield


def attached_to(modules: Iterable[nn.Module]) -> list[Attached]:
    """Return what is attached to any of these modules for this thread, in order."""
    attachments = {
        attached.number: attached
        for module in modules
        if (dispatcher := _dispatchers.get(id(module))) is not None
        for attached in dispatcher.attached_here()
    }
    return [attachments[number] for number in sorted(attachments)]


class _Dispatcher:
    """One attention module and everything attached to it."""

    def __init__(self, module: nn.Module, route: Route) -> None:
        self.route = route
        self.attached: tuple[Attached, ...] = ()
        self._module = module
        self._opened = ExitStack()
        if route == "interface":
            self._opened.enter_context(intercepted([module], self._through_interface))
        else:
            self._opened.enter_context(watching(module, self._start_watch, self._finish_watch))

    def detach(self, attached: Attached) -> None:
        with _lock:
            self.attached = tuple(x for x in self.attached if x is not attached)
            if not self.attached:
                del _dispatchers[id(self._module)]
                self._opened.close()

    def attached_here(self) -> list[Attached]:
        thread = threading.current_thread()
        return [x for x in self.attached if x.thread is None or x.thread is thread]

    def _next_call(self) -> dict[int, Participants]:
        deliver()
        first = _thread_state.first_number
        attachments = [x for x in self.attached_here() if x.number >= first]
        sites: dict[BoundSites, dict[int, Site]] = {}
        for attached in attachments:
            if attached.bound_sites not in sites:
                sites[attached.bound_sites] = attached.bound_sites.next_call(self._module)
        members: dict[int, list[Participant]] = {}
        for attached in attachments:
            for computation, site in sites[attached.bound_sites].items():
                inputs = _inputs(attached.bound_sites, computation, sites)
                member = Participant(attached.attachment, attached.bound_sites, site, *inputs)
                members.setdefault(computation, []).append(member)
        return {computation: Participants(some) for computation, some in members.items()}

    # Interface route: the family's eager function is called here.

    def _through_interface(self, *given: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        participants = self._next_call().get(0)
        call = EagerCall._make((*given[:5], given[5:], kwargs))
        if participants is None:
            return call.with_mask().run()
        is_changed = participants.is_changed or participants.wants_gradient
        if not participants.returns_weights:
            if participants.is_unread and not is_changed:
                output, _ = run_unread(call, participants.site, _plain_mask(call, participants))
                return participants.edit_outputs(output.transpose(1, 2)).transpose(1, 2), None
            if participants.rows is not None:
                run = _with_gradients if participants.takes_gradients else _by_rows
                return run(participants, call), None
        vectors = participants.edit_vectors(Vectors(call.query, call.key, call.value))
        call = call.with_mask()._replace(**vectors._asdict())
        scores: Tensor | None = None
        if participants.edits or participants.wants_gradient or participants.wants_scores:
            lengths = call.query.shape[2], call.key.shape[2]
            output, weights, scores = _watched(participants, call.run, *lengths)
        else:
            output, weights = call.run()
        assert weights is not None
        outputs = participants.edit_outputs(output.transpose(1, 2))
        _read(participants, weights, vectors, outputs, scores)
        return outputs.transpose(1, 2), weights if participants.returns_weights else None

    # Fallback route: the module runs unchanged under a Watch.

    def _start_watch(self) -> Watch | None:
        calls = self._next_call()
        wants_scores = any(participants.wants_scores for participants in calls.values())
        return Watch(_FoldedEdits(calls), keeps_scores=wants_scores) if calls else None

    def _finish_watch(self, watch: Watch) -> None:
        assert isinstance(watch.hooks, _FoldedEdits)
        for index, participants in watch.hooks.calls.items():
            site = participants.site
            steps = watch.steps[index] if index < len(watch.steps) else None
            if steps is None or steps.weights is None:
                raise TapUnsupported(
                    f"{site.module} computed its attention differently than in the self-check, "
                    "so it cannot be read for this input."
                )
            has_vectors = site.head_size is not None
            vectors = (steps.query, steps.key) if has_vectors else (None, None)
            n_heads = site.n_heads
            _read(
                participants,
                unfold(steps.weights, n_heads),
                Vectors(*(unfold(x, n_heads) for x in (*vectors, steps.value))),
                unfold(steps.output, n_heads),
                unfold(steps.scores, n_heads),
            )


class _InterfaceEdits(Hooks):
    """Weight edits on the interface route, which edits everything else outside the call."""

    def __init__(self, participants: Participants, n_queries: int, n_keys: int) -> None:
        self._participants = participants
        self._lengths = n_queries, n_keys

    def weights(self, computation: int, weights: Tensor) -> Tensor:
        return self._participants.edit_weights(weights, *self._lengths)


class _FoldedEdits(Hooks):
    """Edits by computation on the fallback route; tensors may have `batch·head` on one axis."""

    def __init__(self, calls: dict[int, Participants]) -> None:
        self.calls = calls

    def weights(self, computation: int, weights: Tensor) -> Tensor:
        participants = self.calls.get(computation)
        if participants is None:
            return weights
        unfolded = unfold(weights, participants.site.n_heads)
        return participants.edit_weights(unfolded, *unfolded.shape[2:]).reshape(weights.shape)

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
        participants = self.calls.get(computation)
        if participants is None or not participants.edits:
            return output
        unfolded = unfold(output, participants.site.n_heads)
        return participants.edit_outputs(unfolded).reshape(output.shape)

    def _edited(self, computation: int, folded: Vectors) -> Vectors:
        participants = self.calls.get(computation)
        if participants is None or not participants.edits:
            return folded
        unfolded = Vectors(*(unfold(tensor, participants.site.n_heads) for tensor in folded))
        pairs = zip(folded, participants.edit_vectors(unfolded), strict=True)
        return Vectors(*(a if a is None or b is None else b.reshape(a.shape) for a, b in pairs))


def _watched(
    participants: Participants,
    run: Callable[[], tuple[Tensor, object]],
    n_queries: int,
    n_keys: int,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Run one call, or a block of one, with its edits; return output, weights and scores."""
    hooks = _InterfaceEdits(participants, n_queries, n_keys)
    watch = Watch(hooks, keeps_scores=participants.wants_scores, replace_at="product")
    with watch:
        output, _ = run()
    return output, watch.steps[-1].weights, watch.steps[-1].scores


def _inputs(
    bound_sites: BoundSites, computation: int, sites: dict[BoundSites, dict[int, Site]]
) -> tuple[ForwardInputs, BlockName]:
    """Return the inputs of the running forward pass, and the block of the computation in it. The
    bound sites' own root comes first; a base model may run alone.
    """
    for other in (bound_sites, *sites):
        if other.inputs is not None and computation in sites[other]:
            return other.inputs, sites[other][computation].block
    return ForwardInputs(n_past=bound_sites.n_past), sites[bound_sites][computation].block


def _plain_mask(call: EagerCall, participants: Participants) -> PlainMask | None:
    """Return the mask in two numbers, if the self-check's attention has such a mask here."""
    site, bound_sites = participants.site, participants.members[0].bound_sites
    is_causal = site.block in bound_sites.wiring.causal_blocks
    if call.mask is None:
        return None if is_causal else PlainMask(is_causal, None)
    plain = call.mask.plain if isinstance(call.mask, MaskRecipe) else None
    return plain if plain is not None and plain.is_causal == is_causal else None


def _by_rows(participants: Participants, call: EagerCall) -> Tensor:
    """Run one call block by block, each read as soon as it is computed."""
    member, site, rows = participants.reading[0], participants.site, participants.rows
    assert rows is not None
    is_causal = site.block in participants.members[0].bound_sites.wiring.causal_blocks
    plain = _plain_mask(call, participants) if member.attachment.computes_softmax else None
    is_fused = plain is not None and site.is_plain and call.query.dtype == torch.float32
    n_queries, n_keys = call.query.shape[2], call.key.shape[2]
    is_cut = is_causal and n_queries == n_keys
    if participants.edits:
        is_fused, function = False, call.function
        vectors = participants.edit_vectors(Vectors(call.query, call.key, call.value))

        def edited(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
            run = functools.partial(function, *args, **kwargs)
            return _watched(participants, run, n_queries, n_keys)[:2]

        call = call._replace(function=edited, **vectors._asdict())

    def again(block: slice) -> Tensor:
        with torch.inference_mode():
            weights = call.of_rows(block, block.stop if is_cut else n_keys).run()[1]
        assert weights is not None
        return weights

    extra: dict[str, Any] = {"n_rows": n_queries, "again": again}
    if is_fused and plain is not None:
        extra |= {"are_scores": True, "scale": site.scale, "n_visible": plain.n_keys}

    def read(block: slice, weights: Tensor, part: EagerCall, outputs: Tensor | None) -> None:
        vectors = Vectors(part.query, part.key, part.value)
        _read(participants, weights, vectors, outputs, None, block, n_keys, **extra)

    run = run_plain if is_fused else run_rows
    return run(call, rows, read, is_causal=is_cut)


def _with_gradients(participants: Participants, call: EagerCall) -> Tensor:
    """Run one call whose blocks are read in the backward pass; return `batch query head neuron`."""
    site, rows, plain = participants.site, participants.rows, _plain_mask(call, participants)
    assert rows is not None
    if plain is None or not site.is_plain or site.scale is None:
        raise TapUnsupported(
            f"{site.module} has a mask here under which its gradients cannot be taken by rows."
        )
    n_queries, n_keys = call.query.shape[2], call.key.shape[2]

    def read(block: slice, weights: Tensor, gradients: Tensor) -> None:
        options: dict[str, Any] = {"n_rows": n_queries, "gradients": gradients}
        vectors = Vectors(None, None, None)
        _read(participants, weights, vectors, None, None, block, n_keys, **options)

    query = call.query
    if not any(x.requires_grad for x in (query, call.key, call.value)):
        query = query.detach().requires_grad_()  # the first layer of a frozen model
    options = site.scale, plain, rows, read
    output: Tensor = GradientRows.apply(  # type: ignore[no-untyped-call]
        query, call.key, call.value, *options
    )
    return output.transpose(1, 2)


def _read(
    participants: Participants,
    weights: Tensor,
    vectors: Vectors,
    outputs: Tensor | None,
    scores: Tensor | None,
    rows: slice | None = None,
    n_keys: int | None = None,
    **options: Any,
) -> None:
    """Pass the attention to every reader, under the block and layer of its model. `rows` are those
    of a block, of a layer with `n_keys` keys.
    """
    attentions: dict[BoundSites, Attention] = {}
    is_over = False
    for attachment, bound_sites, site, inputs, block in participants.members:
        if attachment.reader is None or site.is_copy:
            continue
        if attachment.layers is not None and site.layer not in attachment.layers:
            continue
        inputs.check_media(bound_sites.wiring)
        if weights.ndim != 4 or weights.shape[1] != site.n_heads:
            raise TapUnsupported(
                f"{site.module} has attention of shape {tuple(weights.shape)} here; the "
                f"self-check saw {site.n_heads} heads of queries by keys."
            )
        if bound_sites not in attentions:
            seen: dict[str, Any] = {"rows": rows, **options}
            if scores is not None and site.has_scores:
                end = weights.shape[-1]  # a column after the keys is the sink logit
                seen["scores"] = scores[..., :end]
                seen["sink_logits"] = scores[..., end] if scores.shape[-1] > end else None
            if site.head_size is not None:
                seen |= {"queries": vectors.query, "keys": vectors.key}
            if site.value_size is not None:
                seen |= {"values": vectors.value, "outputs": outputs}
            n_rows = options.get("n_rows", weights.shape[2])
            query_mask, key_mask = inputs.masks(block, weights, n_rows, n_keys)
            if rows is not None:
                query_mask = None if query_mask is None else query_mask[:, rows]
                key_mask = None if key_mask is None else key_mask[:, : weights.shape[3]]
            is_causal = site.block in bound_sites.wiring.causal_blocks
            is_causal = is_causal and inputs.looks_back(weights)
            attentions[bound_sites] = Attention(
                weights, site.block, site.layer, is_causal, query_mask, key_mask, **seen
            )
        attachment.reader(attentions[bound_sites])
        if attachment.stops and attentions[bound_sites].is_last:
            is_over |= bound_sites.count_read(site, attachment.layers)
    if is_over:
        raise AllRead


class Tap(BoundSites):
    """Attachment point of one model."""

    @contextmanager
    @held
    def attached(self, attachment: Attachment, *, all_threads: bool = False) -> Iterator[None]:
        """Attach to calls of this thread; wait while another thread holds any of the modules. With
        `all_threads`, attach to calls of all threads, without locks.
        """
        thread = None if all_threads else threading.current_thread()
        with interrupts_held(), ExitStack() as stack:
            if thread is not None:
                stack.enter_context(locked_modules(modules_of(self.root)))
            for context in (eager_attention(self.root), self.followed(), ending_watches()):
                stack.enter_context(context)
            if attachment.rows is not None or attachment.layers is not None:
                stack.enter_context(mask_recipes())
            attached = Attached(self, attachment, thread)
            stack.enter_context(connected(self.modules.values(), attached))
            yield

    def edits(self) -> tuple[Edit, ...]:
        """Return the edits in effect for this thread, outermost first. Edits made through another
        model over these modules are renamed to this model's layers and blocks.
        """
        edits: list[Edit] = []
        for attached in attached_to(self.modules.values()):
            other = attached.bound_sites
            for edit in attached.attachment.edits:
                if other.root is not self.root:
                    theirs = other.wiring.find(edit.block, edit.layer, edit.head)
                    if (ours := self.site_like(theirs, other)) is None:
                        continue
                    if not edit.touches(ours, self.wiring.main_block()):
                        edit = replace(edit, layer=ours.layer, block=ours.block)
                edits.append(edit)
        return tuple(edits)
