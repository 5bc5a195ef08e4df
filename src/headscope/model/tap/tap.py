"""The tap: read, and change, every attention weight of a model while it runs.

While attached, the model's own eager attention runs, so that masks, biases, caps and
sinks are the family's own and nothing is computed twice. Two routes lead inside (see
`sites.Route`); which one fits a model, and that it is right, is found out once by
`check.wire`. Attaching nests, holds a lock, and leaves the model as it was.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headscope.attention import Attention, Block, Reader
from headscope.errors import TapUnsupported
from headscope.model.edit import Edit, Positions, Vectors, apply_to_vectors, apply_to_weights
from headscope.model.tap.interface import EagerFunction, eager_attention, intercepted
from headscope.model.tap.sites import Site, Wiring
from headscope.model.tap.watch import Watch, watching

__all__ = ["Attachment", "Tap"]


@dataclass(frozen=True, slots=True, eq=False)
class Attachment:
    """One use of the tap: who reads, what is changed, what else is wanted."""

    reader: Reader | None = None
    edits: tuple[Edit, ...] = ()
    on_gradient: Callable[[Site, Tensor], None] | None = None
    """Called during the backward pass with ∂L/∂a, `batch head query key`, layer by layer."""
    wants_scores: bool = False
    returns_weights: bool = True
    """Hand the weights back to the model, so that `output_attentions=True` still works.
    Off, a layer's attention is freed as soon as its reader returns."""


class Tap:
    """The attachment point of one model. Use `attached`; everything else is machinery."""

    def __init__(self, root: nn.Module, wiring: Wiring) -> None:
        self._root = root
        self._wiring = wiring
        self._modules = {name: root.get_submodule(name) for name in wiring.modules}
        self._names = {id(module): name for name, module in self._modules.items()}
        self._lock = threading.RLock()
        self._attachments: list[Attachment] = []
        self._calls: Counter[str] = Counter()
        self._inputs = _Inputs()
        self._owner = 0

    @contextmanager
    def attached(self, attachment: Attachment) -> Iterator[None]:
        """Attach for the duration of the block; nested attachments all take effect."""
        with self._lock, ExitStack() as stack:
            if not self._attachments:
                self._open(stack)
            self._attachments.append(attachment)
            stack.callback(self._attachments.remove, attachment)
            yield

    def _open(self, stack: ExitStack) -> None:
        stack.enter_context(eager_attention(self._root))
        self._owner = threading.get_ident()
        self._calls.clear()
        self._inputs = _Inputs()
        hook = self._root.register_forward_pre_hook(self._before_forward, with_kwargs=True)
        stack.callback(hook.remove)
        if self._wiring.route == "interface":
            stack.enter_context(intercepted(self._names, self._through_interface))
            return
        for name, module in self._modules.items():
            start = functools.partial(self._start_watch, name)
            stack.enter_context(watching(module, start, self._finish_watch))

    def _before_forward(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if threading.get_ident() == self._owner:
            self._calls.clear()
            if args:
                named = inspect.signature(module.forward).bind_partial(*args, **kwargs)
                kwargs = named.arguments | named.arguments.get("kwargs", {})
            self._inputs = _Inputs.of(kwargs)

    def _next_call(self, name: str) -> dict[int, Site]:
        """The sites of the call that starts now. Counting wraps, because `generate` may
        call the encoder without going through the root module.
        """
        occurrence = self._calls[name] % self._wiring.calls_per_forward(name)
        self._calls[name] += 1
        return self._wiring.at(name, occurrence)

    # The interface route: the family's eager function is called here.

    def _through_interface(
        self,
        function: EagerFunction,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        sites = self._next_call(self._names[id(module)])
        if not sites:
            return function(module, query, key, value, *args, **kwargs)
        site = sites[0]
        positions = self._inputs.positions(site.block, query.shape[2], key.shape[2])
        edits = self._edits(site)
        vectors = apply_to_vectors(edits, site, Vectors(query, key, value))
        wants_scores = any(a.wants_scores for a in self._attachments)
        hears_gradient = any(a.on_gradient for a in self._attachments)
        scores: Tensor | None = None
        if edits or wants_scores or hears_gradient:
            watch = Watch(
                on_weights=lambda _, w: self._change(site, w, edits, positions),
                keeps_scores=wants_scores,
                replace_at="product",
            )
            with watch:
                output, weights = function(module, *vectors, *args, **kwargs)
            steps = watch.steps[-1]
            weights, scores = steps.weights, steps.scores
        else:
            output, weights = function(module, *vectors, *args, **kwargs)
        assert weights is not None
        self._read(
            site,
            weights,
            vectors,
            output.transpose(1, 2),
            scores if wants_scores else None,
        )
        return output, weights if all(a.returns_weights for a in self._attachments) else None

    # The fallback route: the module runs as it is, watched.

    def _start_watch(self, name: str) -> tuple[Watch, dict[int, Site]]:
        sites = self._next_call(name)
        edits = {index: self._edits(site) for index, site in sites.items()}

        def change_weights(index: int, weights: Tensor) -> Tensor:
            if index not in sites:
                return weights
            site = sites[index]
            folded = _unfold(weights, site.n_heads)
            positions = self._inputs.positions(site.block, *folded.shape[2:])
            changed = self._change(site, folded, edits[index], positions)
            return weights if changed is folded else changed.reshape(weights.shape)

        def change_factors(index: int, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
            if not edits.get(index):
                return query, key
            site = sites[index]
            vectors = Vectors(
                _unfold(query, site.n_heads),
                _unfold(key.transpose(-1, -2), site.n_heads),
                None,
            )
            changed = apply_to_vectors(edits[index], site, vectors)
            assert changed.query is not None
            assert changed.key is not None
            return (
                changed.query.reshape(query.shape),
                changed.key.reshape(key.transpose(-1, -2).shape).transpose(-1, -2),
            )

        def change_value(index: int, value: Tensor) -> Tensor:
            if not edits.get(index):
                return value
            site = sites[index]
            folded = Vectors(None, None, _unfold(value, site.n_heads))
            changed = apply_to_vectors(edits[index], site, folded).value
            assert changed is not None
            return changed.reshape(value.shape)

        watch = Watch(
            on_weights=change_weights,
            on_factors=change_factors,
            on_value=change_value,
            keeps_scores=any(a.wants_scores for a in self._attachments),
        )
        return watch, sites

    def _finish_watch(self, watch: Watch, sites: dict[int, Site]) -> None:
        for index, site in sites.items():
            steps = watch.steps[index] if index < len(watch.steps) else None
            if steps is None or steps.weights is None:
                raise TapUnsupported(
                    f"{site.module} computed its attention another way than in the self-check, "
                    "so it cannot be read for this input."
                )
            first = steps.products[0] if site.head_size is not None else None
            self._read(
                site,
                _unfold(steps.weights, site.n_heads),
                Vectors(
                    None if first is None else _unfold(first.left, site.n_heads),
                    None if first is None else _unfold(first.right.transpose(-1, -2), site.n_heads),
                    None if steps.value is None else _unfold(steps.value, site.n_heads),
                ),
                None if steps.output is None else _unfold(steps.output, site.n_heads),
                None if steps.scores is None else _unfold(steps.scores, site.n_heads),
            )

    # Shared by both routes.

    def _edits(self, site: Site) -> list[Edit]:
        return [
            edit
            for attachment in self._attachments
            for edit in attachment.edits
            if edit.touches(site, self._wiring.main_block())
        ]

    def _change(
        self, site: Site, weights: Tensor, edits: Sequence[Edit], positions: Positions
    ) -> Tensor:
        """The weights to use instead, with a hook where their gradient is wanted.

        With frozen parameters nothing upstream asks for a gradient, so the weights of the
        first layer become a leaf of the graph themselves.
        """
        weights = apply_to_weights(edits, weights, positions)
        for attachment in self._attachments:
            if attachment.on_gradient is not None and torch.is_grad_enabled():
                if not weights.requires_grad:
                    weights = weights.detach().requires_grad_()
                weights.register_hook(functools.partial(attachment.on_gradient, site))
        return weights

    def _read(
        self,
        site: Site,
        weights: Tensor,
        vectors: Vectors,
        outputs: Tensor | None,
        scores: Tensor | None,
    ) -> None:
        readers = [a.reader for a in self._attachments if a.reader is not None]
        if not readers:
            return
        if weights.ndim != 4 or weights.shape[1] != site.n_heads:
            raise TapUnsupported(
                f"{site.module} has attention of shape {tuple(weights.shape)} here; the "
                f"self-check saw {site.n_heads} heads of queries by keys."
            )
        n_queries, n_keys = weights.shape[2:]
        query_mask, key_mask = self._inputs.masks(site.block, n_queries, n_keys)
        attention = Attention(
            weights=weights,
            block=site.block,
            layer=site.layer,
            is_causal=site.block in self._wiring.causal_blocks,
            query_mask=query_mask,
            key_mask=key_mask,
            queries=vectors.query,
            keys=vectors.key,
            values=vectors.value,
            outputs=outputs,
            scores=None if scores is None else scores[..., :n_keys],
        )
        for reader in readers:
            reader(attention)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What the forward under way was given: masks, and how much is cached."""

    mask: Tensor | None = None
    decoder_mask: Tensor | None = None
    n_past: int = 0

    @classmethod
    def of(cls, kwargs: Mapping[str, Any]) -> _Inputs:
        past: Any = kwargs.get("past_key_values")
        n_past = int(past.get_seq_length()) if hasattr(past, "get_seq_length") else 0
        return cls(
            _padding(kwargs, "attention_mask"), _padding(kwargs, "decoder_attention_mask"), n_past
        )

    def positions(self, block: Block, n_queries: int, n_keys: int) -> Positions:
        """Where the queries and keys of a call stand in the whole sequence."""
        past = self.n_past if block in ("self", "decoder") else 0
        key_start = 0 if block == "cross" else max(0, past + n_queries - n_keys)
        query_start = self.n_past if block == "cross" else past
        return Positions(query_start, key_start)

    def masks(
        self, block: Block, n_queries: int, n_keys: int
    ) -> tuple[Tensor | None, Tensor | None]:
        query_mask = self.decoder_mask if block in ("decoder", "cross") else self.mask
        key_mask = self.decoder_mask if block == "decoder" else self.mask
        return _last(query_mask, n_queries, exact=False), _last(key_mask, n_keys, exact=True)


def _padding(kwargs: Mapping[str, Any], name: str) -> Tensor | None:
    mask = kwargs.get(name)
    if not isinstance(mask, Tensor) or mask.ndim != 2 or bool(mask.all()):
        return None
    return mask.bool()


def _last(mask: Tensor | None, n: int, *, exact: bool) -> Tensor | None:
    """The last n columns of a padding mask; None where it does not describe these tokens
    (an audio encoder downsamples its input).
    """
    if mask is None or mask.shape[1] < n or (exact and mask.shape[1] != n):
        return None
    return mask[:, mask.shape[1] - n :]


def _unfold(tensor: Tensor, n_heads: int) -> Tensor:
    """`batch·head … …` as `batch head … …`; four axes stay as they are."""
    return tensor if tensor.ndim != 3 else tensor.reshape(-1, n_heads, *tensor.shape[1:])
