"""Section-by-section reference of wires for Llama models: hooks by name, one wire at a time."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from headscope.model.model import Model

Wire = tuple[tuple[Any, ...], tuple[Any, ...]]


class SlowLlama:
    """One text of a Llama: sources, and passes with one reader changed."""

    def __init__(self, model: Model, text: str, target: str, foil: str) -> None:
        self.model, self.module = model, model.module
        tokenizer = model.require_tokenizer()
        self.ids = tokenizer(text, return_tensors="pt")["input_ids"]
        self.answers = [
            tokenizer(x, add_special_tokens=False)["input_ids"][0] for x in (target, foil)
        ]
        self.layers = self.module.model.layers
        config = self.module.config
        self.n_heads, self.size = (
            config.num_attention_heads,
            config.hidden_size // config.num_attention_heads,
        )
        self.n_groups = config.num_key_value_heads
        self.entering: dict[int, Tensor] = {}
        self.middle: dict[int, Tensor] = {}
        self.joined: dict[int, Tensor] = {}
        self.written: dict[int, Tensor] = {}
        with ExitStack() as stack, torch.no_grad():
            for n, layer in enumerate(self.layers):
                for module, kept in (
                    (layer.input_layernorm, self.entering),
                    (layer.post_attention_layernorm, self.middle),
                    (layer.self_attn.o_proj, self.joined),
                ):

                    def before(_: Any, args: Any, kept: Any = kept, n: int = n) -> None:
                        kept[n] = args[0].clone()

                    stack.callback(module.register_forward_pre_hook(before).remove)

                def after(_: Any, __: Any, output: Any, n: int = n) -> None:
                    self.written[n] = output.clone()

                stack.callback(layer.mlp.register_forward_hook(after).remove)
            self.value = float(self.number())

    def number(self) -> Tensor:
        row = self.module(input_ids=self.ids).logits[0, -1]
        return row[self.answers[0]] - row[self.answers[1]]

    def source(self, name: tuple[Any, ...]) -> Tensor:
        if name[0] == "embedding":
            return self.entering[0]
        if name[0] == "mlp":
            return self.written[name[1]]
        _, layer, head = name
        part = slice(head * self.size, (head + 1) * self.size)
        return self.joined[layer][..., part] @ self.layers[layer].self_attn.o_proj.weight[:, part].T

    def with_reader(self, reader: tuple[Any, ...], delta: Tensor) -> Tensor:
        """m with one reader reading its stream + delta; ("k", layer, group)."""
        with ExitStack() as stack:
            self.hook(stack, reader, delta)
            return self.number()

    def hook(self, stack: ExitStack, reader: tuple[Any, ...], delta: Tensor) -> None:
        kind = reader[0]
        if kind == "logits":
            stack.callback(
                self.module.model.norm.register_forward_pre_hook(
                    lambda _, args: (args[0] + delta,)
                ).remove
            )
            return
        layer = self.layers[reader[1]]
        if kind == "mlp":

            def change(_: Any, args: Any) -> tuple[Tensor]:
                return (layer.post_attention_layernorm.forward(self.middle[reader[1]] + delta),)

            stack.callback(layer.mlp.register_forward_pre_hook(change).remove)
            return
        projection = getattr(layer.self_attn, f"{kind}_proj")
        part = slice(reader[2] * self.size, (reader[2] + 1) * self.size)
        normed = layer.input_layernorm.forward(self.entering[reader[1]] + delta)
        other = projection.forward(normed)[..., part]

        def put(_: Any, __: Any, output: Tensor) -> Tensor:
            output = output.clone()
            output[..., part] = other
            return output

        stack.callback(projection.register_forward_hook(put).remove)


def reader_name(reader: Any) -> tuple[Any, ...]:
    if reader.kind == "logits":
        return ("logits",)
    if reader.kind == "mlp":
        return ("mlp", reader.layer)
    return (reader.kind, reader.layer, reader.heads[0] // len(reader.heads))


def source_name(source: Any) -> tuple[Any, ...]:
    return {"embedding": ("embedding",), "mlp": ("mlp", source.layer)}.get(
        source.kind, ("head", source.layer, source.head)
    )
