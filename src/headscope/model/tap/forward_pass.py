"""Sites of a model bound to its live modules, and the forward passes that are running."""

from __future__ import annotations

import inspect
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from torch import Tensor, nn
from transformers import PreTrainedModel

from headscope.attention import BlockName
from headscope.errors import InputError, TapUnsupported
from headscope.model.edits import Positions
from headscope.model.tap.interrupts import held
from headscope.model.tap.sites import Site, Wiring

MASKS = ("attention_mask", "decoder_attention_mask")


def media_of(inputs: Mapping[str, object]) -> frozenset[str]:
    """Return the names of image and audio inputs: float tensors other than masks, embeddings."""
    floats = (k for k, v in inputs.items() if isinstance(v, Tensor) and v.is_floating_point())
    return frozenset(name for name in floats if not name.endswith(("mask", "embeds")))


def uncached(root: nn.Module) -> dict[str, object]:
    """Return the arguments that disable the cache, if the model accepts them."""
    return {"use_cache": False} if takes(root, "use_cache") else {}


def takes(root: nn.Module, name: str) -> bool:
    """True if the model's forward method names this parameter."""
    return name in inspect.signature(root.forward).parameters


@dataclass(frozen=True, slots=True)
class ForwardInputs:
    """Inputs of a forward pass: padding masks and the number of cached tokens."""

    mask: Tensor | None = None
    decoder_mask: Tensor | None = None
    n_past: int = 0
    media: frozenset[str] = frozenset()
    is_seq2seq: bool = False
    has_own_mask: bool = False
    """True if the pass has a mask of queries by keys."""

    def check_media(self, wiring: Wiring) -> None:
        """Raise TapUnsupported for an image or audio input that the self-check did not use."""
        unseen = self.media - wiring.media
        if unseen:
            raise TapUnsupported(
                f"The model was given {', '.join(sorted(unseen))}, which the self-check was not, "
                "so the tokens of its layers are unknown. Name the inputs beforehand: "
                "model.tapped(reader, inputs=inputs)."
            )

    def looks_back(self, weights: Tensor) -> bool:
        """True if causal attention stays causal under the given mask."""
        return not self.has_own_mask or not bool(weights.triu(1).any())

    def positions(self, block: BlockName, n_queries: int, n_keys: int) -> Positions:
        """Return the positions of a call's first query and key in the whole sequence."""
        if block == "cross":
            return Positions(self.n_past, 0)
        past = self.n_past if block in ("self", "decoder") else 0
        return Positions(past, max(0, past + n_queries - n_keys))

    def masks(
        self, block: BlockName, weights: Tensor, n_queries: int, n_keys: int | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return the padding masks `batch query` and `batch key`; None without padding.

        A mask over audio samples does not apply to frames. Then padding is every position that
        no query attends to. Weights may be of a block of rows, of a layer with `n_keys` keys.
        """
        n_keys = weights.shape[-1] if n_keys is None else n_keys
        if block in ("vision", "audio") or (self.mask is None and self.decoder_mask is None):
            return None, None
        if self.media and self.mask is not None and self.mask.shape[1] != n_keys:
            if block == "decoder" or n_queries != n_keys:
                return _last(self.decoder_mask, n_queries), None
            attended = (weights != 0).any(2).any(1)
            return (None, None) if bool(attended.all()) else (attended, attended)
        has_decoder = block == "decoder" or (block == "cross" and self.is_seq2seq)
        query_mask = self.decoder_mask if has_decoder else self.mask
        key_mask = self.decoder_mask if block == "decoder" else self.mask
        is_foreign = block == "cross" and not self.is_seq2seq
        if is_foreign or (key_mask is not None and key_mask.shape[1] != n_keys):
            key_mask = None
        return _last(query_mask, n_queries), key_mask


@dataclass(slots=True)
class _Forward:
    """One forward pass: its inputs, and the number of calls of each module."""

    inputs: ForwardInputs | None
    """None outside of any forward pass of the root."""
    calls: Counter[str] = field(default_factory=Counter)
    read: set[Site] = field(default_factory=set)


class _Forwards(threading.local):
    """Forward passes running in this thread, outermost first."""

    def __init__(self) -> None:
        self.stack: list[_Forward] = []
        self.outside = _Forward(None)
        """Calls of a sub-model alone: `generate` runs an encoder without the root module."""
        self.pasts: list[int | None] = []
        """Number of cached tokens at the call of each running sub-model, if it has a cache."""

    @property
    def current(self) -> _Forward:
        return self.stack[-1] if self.stack else self.outside


class BoundSites:
    """Sites of a model bound to its modules, counted call by call."""

    def __init__(self, root: nn.Module, wiring: Wiring) -> None:
        self.root = root
        self.wiring = wiring
        self.modules = {name: root.get_submodule(name) for name in wiring.modules}
        self._names = {id(module): name for name, module in self.modules.items()}
        self._is_seq2seq = "decoder" in wiring.blocks
        self._forwards = _Forwards()
        self._lock = threading.RLock()
        self._n_followers = 0
        self._hooks = ExitStack()

    def __reduce__(self) -> NoReturn:
        """Refuse copies: while in use, the module carries hooks that a copy would keep."""
        raise InputError(
            f"This {type(self.root).__name__} is being read or edited, and a copy would keep its "
            "hooks. Copy or save it outside of the block (edit, tapped), or pickle headscope's "
            "model with its edits: pickle.dumps(model)."
        )

    def is_current(self) -> bool:
        """True if the model still has the modules that were checked."""
        try:
            return all(self.root.get_submodule(name) is x for name, x in self.modules.items())
        except AttributeError:  # a layer was removed
            return False

    @property
    def inputs(self) -> ForwardInputs | None:
        """Inputs of the running forward pass; None if the root is not running."""
        return self._forwards.current.inputs

    @property
    def n_past(self) -> int:
        """Number of cached tokens if a sub-model runs without the root."""
        return next((n for n in self._forwards.pasts if n is not None), 0)

    def next_call(self, module: nn.Module) -> dict[int, Site]:
        """Return computation → site for the call of `module` that starts now."""
        name = self._names[id(module)]
        forward = self._forwards.current
        n_checked = self.wiring.calls_per_forward(name)
        if forward.inputs is not None and forward.calls[name] >= n_checked:
            raise TapUnsupported(
                f"{name} computes attention more than {n_checked} times in this forward pass; "
                f"in the self-check it was {n_checked}, so its layer is unknown. If a "
                "hook or an edit of yours runs the model or a part of it once more, remove it, or "
                "let it run a copy of the module. If the model does so itself for inputs of this "
                "kind, load it with them: headscope.load(…, example=inputs)."
            )
        # Outside of a forward pass nothing marks a new start, so the count wraps.
        occurrence = forward.calls[name] % n_checked
        forward.calls[name] += 1
        return self.wiring.at(name, occurrence)

    def count_read(self, site: Site, layers: frozenset[int] | None) -> bool:
        """Count a layer that was read; return whether the pass has now read all these layers."""
        forward = self._forwards.current
        forward.read.add(site)
        sites = [s for s in self.wiring.sites if layers is None or s.layer in layers]
        return forward.inputs is not None and len(forward.read) == len(sites)

    def site_like(self, site: Site, other: BoundSites) -> Site | None:
        """Return this model's site for a site of another model, or None if it is not shared."""
        name = self._names.get(id(other.modules[site.module]))
        sites = {} if name is None else self.wiring.at(name, site.occurrence)
        return sites.get(site.computation)

    @contextmanager
    @held
    def followed(self) -> Iterator[None]:
        """Within the block, track forward passes of the root."""
        with self._lock:
            if not self._n_followers:
                for name, part in self.root.named_modules():
                    # Sub-models may run alone (BLIP-2's `generate`).
                    has_sites = any(site.startswith(f"{name}.") for site in self.modules)
                    if part is self.root or (isinstance(part, PreTrainedModel) and has_sites):
                        for hook in (
                            part.register_forward_pre_hook(self._enter, with_kwargs=True),
                            part.register_forward_hook(self._leave, always_call=True),
                        ):
                            self._hooks.callback(hook.remove)
            self._n_followers += 1
        n_forwards, n_pasts = len(self._forwards.stack), len(self._forwards.pasts)
        if not n_forwards:
            self._forwards.outside = _Forward(None)
        try:
            yield
        finally:
            # Drop interrupted passes: torch calls no hooks after a KeyboardInterrupt.
            del self._forwards.stack[n_forwards:], self._forwards.pasts[n_pasts:]
            with self._lock:
                self._n_followers -= 1
                if not self._n_followers:
                    self._hooks.close()

    def _enter(
        self, module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        if args:
            bound = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
            kwargs = bound | bound.get("kwargs", {})
        if module is not self.root:
            self._forwards.pasts.append(_n_past(kwargs))
            return
        mask, decoder_mask = (_padding(kwargs.get(name)) for name in MASKS)
        has_own_mask = any(getattr(kwargs.get(name), "ndim", 2) > 2 for name in MASKS)
        facts = media_of(kwargs), self._is_seq2seq, has_own_mask
        inputs = ForwardInputs(mask, decoder_mask, _n_past(kwargs) or 0, *facts)
        self._forwards.stack.append(_Forward(inputs))

    def _leave(self, module: nn.Module, _args: tuple[object, ...], _result: object) -> None:
        running = self._forwards.stack if module is self.root else self._forwards.pasts
        if running:
            running.pop()


def _n_past(kwargs: Mapping[str, object]) -> int | None:
    """Return the number of tokens in the cache of a call; None without a cache."""
    count = getattr(kwargs.get("past_key_values"), "get_seq_length", None)
    return None if count is None else int(count())


def _padding(mask: object) -> Tensor | None:
    is_padded = isinstance(mask, Tensor) and mask.ndim == 2 and not mask.all()
    return mask.bool() if isinstance(mask, Tensor) and is_padded else None


def _last(mask: Tensor | None, n: int) -> Tensor | None:
    """Return the last n columns of a padding mask: with a cache, the queries come last."""
    return None if mask is None or mask.shape[1] < n else mask[:, mask.shape[1] - n :]
