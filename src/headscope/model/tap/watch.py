"""Follow one attention computation inside the model's own code: scores, weights, vectors.

Every softmax attention has three steps: q·k products, a softmax over keys, and the product of
weights and values. `Watch` is a torch function mode that sees these steps, so that weights can
be read, replaced or differentiated. It computes only the fused `scaled_dot_product_attention`
itself, because that call has no visible weights.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType, FunctionType
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from headscope.model.private_api import mode_stack_length, pop_mode, push_mode
from headscope.model.tap.interrupts import held

TorchFunction = Callable[..., Tensor]
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
"""Arguments of a torch function: by position, and by name."""

SOFTMAX = frozenset({torch.softmax, functional.softmax, Tensor.softmax, torch.special.softmax})
SDPA = functional.scaled_dot_product_attention
PLAIN_PRODUCTS = frozenset({torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm})
ADDED_PRODUCTS = frozenset({torch.baddbmm, Tensor.baddbmm})
EINSUM = torch.einsum
MANY_HEADS: Callable[..., Any] = functional.multi_head_attention_forward
STEPS = SOFTMAX | PLAIN_PRODUCTS | ADDED_PRODUCTS | {SDPA, EINSUM, MANY_HEADS}


@dataclass(slots=True)
class Product:
    """A batched matrix product of `left` (`… row inner`) and `right` (`… inner column`), as in
    `torch.matmul`. An einsum in another layout is permuted, without copying.
    """

    left: Tensor
    right: Tensor
    scale: float | None = None
    """Factor on the product that the call itself has (`baddbmm`'s alpha)."""


@dataclass(slots=True)
class Steps:
    """Tensors of one attention computation, in the model's own layout."""

    products: list[Product] = field(default_factory=list)
    """Batched products before the softmax: q·k first, then any position terms."""
    scores: Tensor | None = None
    weights: Tensor | None = None
    """Left operand of the product with the values, after any edit."""
    value: Tensor | None = None
    """`… key neuron`"""
    output: Tensor | None = None
    """`… query neuron`"""

    @property
    def query(self) -> Tensor | None:
        """`… query neuron`, of the first product."""
        return self.products[0].left if self.products else None

    @property
    def key(self) -> Tensor | None:
        """`… key neuron`, of the first product."""
        return self.products[0].right.transpose(-1, -2) if self.products else None


MaybeTensor = TypeVar("MaybeTensor", Tensor, Tensor | None)


def unfold(tensor: MaybeTensor, n_heads: int) -> MaybeTensor:
    """Reshape `batch·head … …` to `batch head … …`; keep four axes and None."""
    if tensor is None or tensor.ndim != 3:
        return tensor
    return tensor.reshape(-1, n_heads, *tensor.shape[1:])


class Hooks:
    """Replacements for tensors, none here. `computation` numbers the softmaxes of a call."""

    def factors(self, computation: int, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Replace queries (`… query neuron`) and keys (`… neuron key`) before their product."""
        return query, key

    def weights(self, computation: int, weights: Tensor) -> Tensor:
        """Replace the attention weights."""
        return weights

    def value(self, computation: int, value: Tensor) -> Tensor:
        """Replace the values before their product with the weights."""
        return value

    def output(self, computation: int, output: Tensor) -> Tensor:
        """Replace the head outputs."""
        return output


class Watch(TorchFunctionMode):
    """Follow the attention computations of one call of a module: `steps` has a record for each.

    `hooks` are called at every step, and may replace tensors. Replaced weights enter as the left
    operand of the product with the values (`"product"`), for code that drops columns after the
    softmax (attention sinks), or as the result of the softmax (`"softmax"`), for code whose later
    steps are unknown. Scores take the memory of one layer.
    """

    def __init__(
        self,
        hooks: Hooks | None = None,
        *,
        keeps_scores: bool = True,
        replace_at: Literal["softmax", "product"] = "softmax",
    ) -> None:
        super().__init__()
        self.steps: list[Steps] = []
        self.hooks = hooks or Hooks()
        self._open: list[Product] = []
        self._keeps_scores = keeps_scores
        self._at_product = replace_at == "product"
        self.frame: FrameType | None = None
        """Frame whose return ends the watch, if no `with` block does."""

    def __torch_function__(
        self, func: TorchFunction, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func not in STEPS or self._is_over():
            return func(*args, **kwargs)
        if func in SOFTMAX:
            weights = func(*args, **kwargs)
            if not self._at_product:
                weights = self.hooks.weights(len(self.steps), weights)
            scores = args[0] if args else kwargs["input"]
            self.steps.append(Steps(self._open, scores if self._keeps_scores else None, weights))
            self._open = []
            return weights
        if func is SDPA:
            return self._sdpa(*args, **kwargs)
        if func is MANY_HEADS:
            with self:
                return _many_heads(*args, **kwargs)
        call = _product_call(func, args, kwargs)
        return func(*args, **kwargs) if call is None else self._product(call)

    def _is_over(self) -> bool:
        """True if the watched call was interrupted (see `ending_watches`)."""
        frame = None if self.frame is None else sys._getframe()
        while frame is not None and frame is not self.frame:
            frame = frame.f_back
        return frame is not self.frame

    def _product(self, call: _ProductCall) -> Tensor:
        product, run, order = call
        steps = self.steps[-1] if self.steps else None
        if steps is None or steps.value is not None or not _is_weights(product.left, steps):
            if not self._open:
                product.left, product.right = self.hooks.factors(
                    len(self.steps), product.left, product.right
                )
            self._open.append(product)
            return run(product)
        computation = len(self.steps) - 1
        if self._at_product:
            product.left = self.hooks.weights(computation, product.left)
        product.right = self.hooks.value(computation, product.right)
        steps.weights, steps.value = product.left, product.right
        result = run(product)
        output = result if order is None else result.permute(order)
        steps.output = self.hooks.output(computation, output)
        if steps.output is output:
            return result
        return steps.output if order is None else steps.output.permute(_inverse(order))

    def _sdpa(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Compute fused attention step by step, as torch's documentation defines it."""
        computation, hooks = len(self.steps), self.hooks
        query, transposed = hooks.factors(computation, query, key.transpose(-2, -1))
        value = hooks.value(computation, value)
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        steps = Steps([Product(query, transposed, scale)], value=value)
        self.steps.append(steps)
        self._open = []
        if enable_gqa:
            groups = query.shape[-3] // transposed.shape[-3]
            transposed = transposed.repeat_interleave(groups, -3)
            value = value.repeat_interleave(groups, -3)
        scores = query @ transposed * scale
        if is_causal:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~seen, float("-inf"))
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                scores = scores.masked_fill(~attn_mask, float("-inf"))
            else:
                scores = scores + attn_mask
        weights = hooks.weights(computation, torch.softmax(scores, -1))
        steps.scores, steps.weights = scores, weights
        output = torch.dropout(weights, dropout_p, train=dropout_p > 0) @ value
        steps.output = hooks.output(computation, output)
        return steps.output


@contextmanager
@held
def watching(
    module: nn.Module, start: Callable[[], Watch | None], finish: Callable[[Watch], None]
) -> Iterator[None]:
    """Run calls of a module, in every thread, under the watch that `start` makes; None skips a
    call. `finish` is called after the call has returned, not after it raised.
    """
    running = threading.local()

    def watches() -> list[Watch | None]:  # of this thread's running calls of the module
        kept: list[Watch | None] = running.__dict__.setdefault("watches", [])
        return kept

    def enter(*_: object) -> None:
        watch = start()
        if watch is not None:
            watch.frame = sys._getframe(1)
            watch.__enter__()  # type: ignore[no-untyped-call]
        watches().append(watch)

    def leave(_module: nn.Module, _args: object, result: object) -> None:
        watch = watches().pop() if watches() else None
        if watch is not None:
            watch.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            watch.frame = None
            if result is not None:
                finish(watch)

    with ExitStack() as stack:
        stack.callback(module.register_forward_pre_hook(enter).remove)
        stack.callback(module.register_forward_hook(leave, always_call=True).remove)
        yield


@contextmanager
@held
def ending_watches() -> Iterator[None]:
    """On leaving the block, end every watch that began in it and is still active: torch calls hooks
    after an `Exception` but not after a `KeyboardInterrupt`. Until then it changes nothing.
    """
    n_before = mode_stack_length()
    try:
        yield
    finally:
        others = []
        while mode_stack_length() > n_before:
            mode = pop_mode()
            if not isinstance(mode, Watch):
                others.append(mode)
        for mode in reversed(others):
            push_mode(mode)


_many_heads = FunctionType(
    MANY_HEADS.__code__,
    {**MANY_HEADS.__globals__, "has_torch_function": lambda _: False},
    argdefs=MANY_HEADS.__defaults__,
)
"""Copy of `multi_head_attention_forward` whose steps a mode sees. The original goes to the mode as
a whole and then runs without it."""


def _is_weights(left: Tensor, steps: Steps) -> bool:
    """True if the left operand is the last softmax, also cast, reshaped or without a sink."""
    weights = steps.weights
    if weights is None or left.ndim < 3:
        return False
    if left.numel() == weights.numel():
        return left.shape[-2:] == weights.shape[-2:]
    return left.shape[:-1] == weights.shape[:-1] and left.shape[-1] == weights.shape[-1] - 1


class _ProductCall(NamedTuple):
    product: Product
    run: Callable[[Product], Tensor]
    """Repeats the call with the factors of a product."""
    order: list[int] | None = None
    """Permutation of the result to `… row column`; None for the identity."""


def _product_call(func: TorchFunction, args: Args, kwargs: Kwargs) -> _ProductCall | None:
    if func is EINSUM:
        return _einsum_call(args)
    if func in ADDED_PRODUCTS:
        names = ("input", "batch1", "batch2")
        bound = dict(zip(names, args, strict=False)) | kwargs
        added, left, right = (bound.pop(name) for name in names)
        product = Product(left, right, float(bound.get("alpha", 1.0)))
        return _ProductCall(product, lambda p: func(added, p.left, p.right, **bound))
    if func not in PLAIN_PRODUCTS:
        return None
    rest = dict(kwargs)
    factors = [*args, *(rest.pop(name) for name in ("other", "mat2") if name in kwargs)]
    if len(factors) != 2 or not all(isinstance(x, Tensor) and x.ndim >= 3 for x in factors):
        return None
    return _ProductCall(Product(*factors), lambda p: func(p.left, p.right, **rest))


def _einsum_call(args: Args) -> _ProductCall | None:
    """Return an einsum such as `"bnij,jbnd->ibnd"` as a batched product, or None for others."""
    equation, *factors = args
    if len(factors) == 1 and isinstance(factors[0], list | tuple):
        factors = [*factors[0]]
    if not isinstance(equation, str) or "->" not in equation or "." in equation:
        return None
    inputs, output = equation.replace(" ", "").split("->")
    if inputs.count(",") != 1 or len(factors) != 2 or any(x.ndim < 3 for x in factors):
        return None
    first, second = inputs.split(",")
    batch = [label for label in first if label in second and label in output]
    inner = [label for label in first if label in second and label not in output]
    row = [label for label in first if label not in second]
    column = [label for label in second if label not in first]
    if not (len(inner) == len(row) == len(column) == 1 and batch):
        return None
    left_order = [first.index(label) for label in batch + row + inner]
    right_order = [second.index(label) for label in batch + inner + column]

    def run(product: Product) -> Tensor:
        left = product.left.permute(_inverse(left_order))
        right = product.right.permute(_inverse(right_order))
        return EINSUM(equation, left, right)

    product = Product(factors[0].permute(left_order), factors[1].permute(right_order))
    return _ProductCall(product, run, [output.index(label) for label in batch + row + column])


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)
