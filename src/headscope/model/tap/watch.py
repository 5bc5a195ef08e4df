"""Watch one attention computation from the inside: its scores, its weights, its vectors.

Every softmax attention, however it is written, is the same three steps: products of
queries and keys, a softmax over keys, a product of the weights with the values. `Watch`
is a torch function mode that follows these steps while they happen, so that the weights
can be read, replaced or differentiated inside the model's own code. It computes nothing
itself, except where the model calls the fused `scaled_dot_product_attention`, which has
no weights to see: that one call is spelled out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

T = TypeVar("T")
TorchFunction = Callable[..., Any]
Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Of a call: by position, and by name."""

SOFTMAX = frozenset({torch.softmax, functional.softmax, Tensor.softmax, torch.special.softmax})
SDPA = functional.scaled_dot_product_attention
PLAIN_PRODUCTS = frozenset({torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm})
ADDED_PRODUCTS = frozenset({torch.baddbmm, Tensor.baddbmm})
EINSUM = torch.einsum


@dataclass(slots=True)
class Product:
    """A batched matrix product: rows of `left` against columns of `right`.

    `left` is `… row inner` and `right` is `… inner column`, as `torch.matmul` wants them,
    whatever layout the model wrote (an einsum is permuted, without copying).
    """

    left: Tensor
    right: Tensor
    scale: float | None = None
    """The factor on the product where the call itself carries one (`baddbmm`'s alpha)."""


@dataclass(slots=True)
class Steps:
    """What one attention computation did, in the model's own layout."""

    products: list[Product] = field(default_factory=list)
    """Batched products before the softmax: q·k first, then any position terms."""
    scores: Tensor | None = None
    """What the softmax was taken of."""
    weights: Tensor | None = None
    """What the values were multiplied with (after any edit)."""
    value: Tensor | None = None
    """`… key neuron`"""
    output: Tensor | None = None
    """`… query neuron`"""


Rebuild = Callable[[Product], Arguments]
"""The arguments of a call that takes another product."""
WeightsHook = Callable[[Tensor], Tensor]
FactorsHook = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
ValueHook = Callable[[Tensor], Tensor]


class Watch(TorchFunctionMode):
    """Follow the attention computations of one call of a module.

    Attributes:
        steps: one record per softmax (or fused attention) seen, in order.
        on_factors: given q (`… query neuron`) and k (`… neuron key`) of computation n,
            returns what to use instead. Called only for the first product of each.
        on_weights: given the weights of computation n, returns what to use instead.
        on_value: given the values of computation n, returns what to use instead.
        on_output: given the head outputs of computation n, returns what to use instead.
        keeps_scores: remember what the softmax was taken of (a layer's worth of memory).
        replace_at: where replaced weights enter. `"product"`: as the left operand of the
            product with the values, for code that drops columns after the softmax
            (attention sinks). `"softmax"`: as the result of the softmax, for code whose
            later steps are unknown.
    """

    def __init__(
        self,
        *,
        on_factors: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None,
        on_weights: Callable[[int, Tensor], Tensor] | None = None,
        on_value: Callable[[int, Tensor], Tensor] | None = None,
        on_output: Callable[[int, Tensor], Tensor] | None = None,
        keeps_scores: bool = True,
        replace_at: str = "softmax",
    ) -> None:
        super().__init__()
        self.steps: list[Steps] = []
        self._open: list[Product] = []
        self._on_factors = on_factors
        self._on_weights = on_weights
        self._on_value = on_value
        self._on_output = on_output
        self._keeps_scores = keeps_scores
        self._at_product = replace_at == "product"

    def __torch_function__(
        self,
        func: TorchFunction,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in SOFTMAX:
            return self._softmax(func, args, kwargs)
        if func is SDPA:
            return self._sdpa(*args, **kwargs)
        if func in PLAIN_PRODUCTS or func in ADDED_PRODUCTS or func is EINSUM:
            return self._product(func, args, kwargs)
        return func(*args, **kwargs)

    def _softmax(self, func: TorchFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        scores = args[0] if args else kwargs["input"]
        weights = func(*args, **kwargs)
        index = len(self.steps)
        if self._on_weights is not None and not self._at_product:
            weights = self._on_weights(index, weights)
        self.steps.append(Steps(self._open, scores if self._keeps_scores else None, weights))
        self._open = []
        return weights

    def _sdpa(self, *args: Any, **kwargs: Any) -> Tensor:
        index = len(self.steps)
        steps = Steps()
        self.steps.append(steps)
        self._open = []
        output = sdpa_steps(
            steps,
            *args,
            **kwargs,
            on_factors=None if self._on_factors is None else _bind(self._on_factors, index),
            on_weights=None if self._on_weights is None else _bind(self._on_weights, index),
            on_value=None if self._on_value is None else _bind(self._on_value, index),
        )
        if self._on_output is not None:
            steps.output = output = self._on_output(index, output)
        return output

    def _product(self, func: TorchFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        product, rebuild = _operands(func, args, kwargs)
        if product is None:
            return func(*args, **kwargs)
        steps = self.steps[-1] if self.steps else None
        if steps is not None and steps.value is None and _is_weights(product.left, steps):
            return self._times_values(func, steps, product, rebuild)
        if self._on_factors is not None and not self._open:
            product.left, product.right = self._on_factors(
                len(self.steps), product.left, product.right
            )
            args, kwargs = rebuild(product)
        self._open.append(product)
        return func(*args, **kwargs)

    def _times_values(
        self,
        func: TorchFunction,
        steps: Steps,
        product: Product,
        rebuild: Rebuild,
    ) -> Any:
        index = len(self.steps) - 1
        if self._on_weights is not None and self._at_product:
            product.left = self._on_weights(index, product.left)
        if self._on_value is not None:
            product.right = self._on_value(index, product.right)
        args, kwargs = rebuild(product)
        result = func(*args, **kwargs)
        steps.weights, steps.value = product.left, product.right
        order = _einsum_output_order(args[0]) if func is EINSUM else None
        steps.output = result if order is None else result.permute(order)
        if self._on_output is not None:
            steps.output = self._on_output(index, steps.output)
            result = steps.output if order is None else steps.output.permute(_inverse(order))
        return result


@contextmanager
def watching(
    module: nn.Module,
    start: Callable[[], tuple[Watch, T] | None],
    finish: Callable[[Watch, T], None],
) -> Iterator[None]:
    """Run calls of a module under a `Watch`.

    Args:
        module: whose calls are watched, in every thread.
        start: makes the watch for a call, and whatever `finish` wants to know about it;
            or None, and the call is not watched.
        finish: told when the call has returned (not when it raised).
    """
    calls = _Calls()

    def enter(*_: object) -> None:
        started = start()
        if started is not None:
            started[0].__enter__()  # type: ignore[no-untyped-call]
        calls.under_way.append(started)

    def leave(_module: nn.Module, _args: object, result: object) -> None:
        started = calls.under_way.pop() if calls.under_way else None
        if started is None:
            return
        watch, about = started
        watch.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        if result is not None:
            finish(watch, about)

    hooks = [
        module.register_forward_pre_hook(enter),
        module.register_forward_hook(leave, always_call=True),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Calls(threading.local):
    """The calls of a watched module in this thread: what `start` made for each."""

    def __init__(self) -> None:
        self.under_way: list[tuple[Watch, Any] | None] = []


def sdpa_steps(
    steps: Steps,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    on_factors: FactorsHook | None = None,
    on_weights: WeightsHook | None = None,
    on_value: ValueHook | None = None,
) -> Tensor:
    """PyTorch's fused attention, spelled out so that its weights can be seen.

    Follows the reference implementation in the documentation of
    `torch.nn.functional.scaled_dot_product_attention`.
    """
    transposed = key.transpose(-2, -1)
    if on_factors is not None:
        query, transposed = on_factors(query, transposed)
    if on_value is not None:
        value = on_value(value)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    steps.products.append(Product(query, transposed, scale))
    steps.value = value
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
    weights = torch.softmax(scores, -1)
    if on_weights is not None:
        weights = on_weights(weights)
    steps.scores, steps.weights = scores, weights
    steps.output = torch.dropout(weights, dropout_p, train=dropout_p > 0) @ value
    return steps.output


def _bind(hook: Callable[..., Any], index: int) -> Callable[..., Any]:
    return lambda *tensors: hook(index, *tensors)


def _is_weights(left: Tensor, steps: Steps) -> bool:
    """Is this left operand the softmax just taken (perhaps cast, reshaped, or short of a sink)?"""
    weights = steps.weights
    if weights is None or left.ndim < 3:
        return False
    if left.numel() == weights.numel():
        return left.shape[-2:] == weights.shape[-2:]
    return left.shape[:-1] == weights.shape[:-1] and left.shape[-1] == weights.shape[-1] - 1


def _operands(
    func: TorchFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Product | None, Rebuild]:
    """The two factors of a product call, and how to call it with others."""
    if func is EINSUM:
        return _einsum_operands(args, kwargs)
    if func in ADDED_PRODUCTS:
        names = ("input", "batch1", "batch2")
        bound = dict(zip(names, args, strict=False)) | kwargs
        extra = {name: bound[name] for name in bound if name not in names}

        def rebuild_added(product: Product) -> Arguments:
            return (bound["input"], product.left, product.right), extra

        alpha = float(extra.get("alpha", 1.0))
        return Product(bound["batch1"], bound["batch2"], alpha), rebuild_added

    values = [*args, *(kwargs[name] for name in ("other", "mat2") if name in kwargs)]
    if len(values) != 2 or not all(isinstance(x, Tensor) and x.ndim >= 3 for x in values):
        return None, lambda _: (args, kwargs)
    return Product(values[0], values[1]), lambda product: ((product.left, product.right), {})


def _einsum_operands(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Product | None, Rebuild]:
    """An einsum that is a batched matrix product, as one; None for any other."""
    operands = args[1:]
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    labels = _einsum_labels(args[0]) if isinstance(args[0], str) else None
    if labels is None or len(operands) != 2 or any(x.ndim < 3 for x in operands):
        return None, lambda _: (args, kwargs)
    first, second, batch, row, inner, column = labels
    left_order = [first.index(label) for label in (*batch, row, inner)]
    right_order = [second.index(label) for label in (*batch, inner, column)]

    def rebuild(product: Product) -> Arguments:
        left = product.left.permute(_inverse(left_order))
        right = product.right.permute(_inverse(right_order))
        return (args[0], left, right), kwargs

    product = Product(operands[0].permute(left_order), operands[1].permute(right_order))
    return product, rebuild


def _einsum_labels(equation: str) -> tuple[str, str, str, str, str, str] | None:
    """`first, second, batch, row, inner, column` labels of `"bnij,jbnd->ibnd"` and its like."""
    if "->" not in equation or "." in equation:
        return None
    inputs, output = equation.replace(" ", "").split("->")
    if inputs.count(",") != 1:
        return None
    first, second = inputs.split(",")
    shared = [label for label in first if label in second]
    batch = "".join(label for label in shared if label in output)
    inner = "".join(label for label in shared if label not in output)
    row = "".join(label for label in first if label not in second)
    column = "".join(label for label in second if label not in first)
    if not (len(inner) == len(row) == len(column) == 1 and batch):
        return None
    return first, second, batch, row, inner, column


def _einsum_output_order(equation: str) -> list[int] | None:
    """How to permute an einsum's result to `… query neuron`; None where it is no product."""
    labels = _einsum_labels(equation)
    if labels is None:
        return None
    _, _, batch, row, _, column = labels
    output = equation.replace(" ", "").split("->")[1]
    return [output.index(label) for label in (*batch, row, column)]


def _inverse(order: Sequence[int]) -> list[int]:
    inverse = [0] * len(order)
    for target, source in enumerate(order):
        inverse[source] = target
    return inverse
