"""What a model itself says its attention is: the official answer the tap is held against.

A model returns its maps under `output_attentions`: those of its own stacks, and often those of
its towers in outputs of their own. A tower whose maps the model keeps to itself is asked
directly, with what the model gave it.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from headscope.attention import BlockName
from headscope.errors import TapUnsupported

OFFICIAL: dict[str, BlockName] = {
    "attentions": "self",
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}
TOWERS: tuple[tuple[str, BlockName], ...] = (
    (r"vision|visual|image|pixel|video|patch", "vision"),
    (r"audio|speech|input_features|input_values|mel", "audio"),
    (r"text|language|input_ids", "text"),
)
"""What a tower reads, by a word in the name of its output, its main input or itself."""
Maps = dict[BlockName, list[Tensor]]
ModelInputs = Mapping[str, object]
ModuleCalls = dict[str, tuple[tuple[object, ...], dict[str, object]]]
"""Name of a model within the model → what it was called with, the first time."""


@dataclass(slots=True)
class ReferenceMaps:
    """The official maps by block, and the model's main output."""

    maps: Maps
    output: Tensor
    calls: ModuleCalls


def read_reference(root: PreTrainedModel, inputs: ModelInputs) -> ReferenceMaps:
    """Run the model as transformers does, asked for its attention.

    Raises:
        TapUnsupported: the model does not run on these inputs.
    """
    calls: ModuleCalls = {}
    try:
        with _noting_calls(root, calls):
            try:
                outputs = root(**inputs, output_attentions=True)
            except (TypeError, ValueError):  # it may not take the question
                calls.clear()
                outputs = root(**inputs)
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise TapUnsupported(
            f"{root.config.model_type}: the self-check could not run the model on an example "
            f"input of {', '.join(inputs)} ({type(error).__name__}: "
            f"{reason[-1] if reason else 'no message'}). {_advice(root, inputs)}"
        ) from error
    return ReferenceMaps(_named(_maps_of(outputs), root), main_output(outputs), calls)


def _advice(root: PreTrainedModel, inputs: ModelInputs) -> str:
    """What to do about a model that does not run on the inputs of the self-check."""
    if takes(root, "use_cache"):
        with contextlib.suppress(Exception):
            root(**{**inputs, "use_cache": False})
            return (
                "Without a cache it runs (do two of its layers share a module, and so one place in "
                "the cache?): set model.config.use_cache = False before headscope.load."
            )
    return "Pass inputs it accepts: headscope.load(model, tokenizer, example={'input_ids': …})."


def read_tower_reference(
    tower: PreTrainedModel, call: tuple[tuple[object, ...], dict[str, object]]
) -> list[Tensor]:
    """The maps of a model within the model, asked with what it was called with; none where it
    returns none.
    """
    args, kwargs = call
    options = {name: value for name, value in kwargs.items() if name != "past_key_values"}
    options |= uncached(tower) | {"output_attentions": True, "return_dict": True}
    try:
        outputs = tower(*args, **options)
    except (TypeError, ValueError):
        return []
    return _tensors(getattr(outputs, "attentions", None))


def tower_block(name: str, tower: PreTrainedModel) -> BlockName | None:
    """Which block a model within the model is: by its main input, else by its name."""
    for words in (tower.main_input_name, name.rpartition(".")[2], type(tower).__name__.lower()):
        for pattern, block in TOWERS:
            if re.search(pattern, words):
                return block
    return None


def uncached(root: nn.Module) -> dict[str, object]:
    """What to call a model with so that it keeps no cache, where it takes that."""
    return {"use_cache": False} if takes(root, "use_cache") else {}


def takes(root: nn.Module, name: str) -> bool:
    """Does the model's forward pass name this parameter?"""
    return name in inspect.signature(root.forward).parameters


def main_output(outputs: object) -> Tensor:
    """Logits or last hidden state; else the first tensor of real numbers."""
    for key in ("logits", "last_hidden_state"):
        value = getattr(outputs, key, None)
        if isinstance(value, Tensor):
            return value
    for tensor in tensors_in(outputs):
        if tensor.is_floating_point():
            return tensor
    raise TapUnsupported("The model returns no tensor that could be compared.")


def _maps_of(outputs: object) -> Maps:
    """The maps in an output, and in the outputs of towers within it."""
    maps: Maps = {}
    for key, block in OFFICIAL.items():
        maps[block] = _tensors(getattr(outputs, key, None))
    items = outputs.items() if isinstance(outputs, Mapping) else ()
    for key, value in items:
        if key in OFFICIAL:
            continue
        if isinstance(value, ModelOutput):
            if key.startswith("language_model"):
                for block, inner in _maps_of(value).items():
                    maps[block] = maps.get(block) or inner
                continue
            value = getattr(value, "attentions", None)
        elif not key.endswith("attentions"):
            continue
        tower = next((block for words, block in TOWERS if re.match(words, key)), None)
        if tower is not None and not maps.get(tower):
            maps[tower] = _tensors(value)
    return {block: some for block, some in maps.items() if some}


def _named(maps: Maps, root: PreTrainedModel) -> Maps:
    """The blocks under their own names: one stack alone is `self`."""
    if list(maps) == ["self", "cross"] and root.config.is_encoder_decoder:
        return {"decoder": maps["self"], "cross": maps["cross"]}
    if len(maps) == 1 and next(iter(maps)) in ("text", "vision", "audio"):
        return {"self": next(iter(maps.values()))}
    return maps


def _tensors(maps: object) -> list[Tensor]:
    """The maps among what an output calls attention: a map has heads, queries and keys."""
    given = [maps] if isinstance(maps, Tensor) else maps
    if not isinstance(given, tuple | list):
        return []
    return [x for x in given if isinstance(x, Tensor) and x.ndim >= 3]


def tensors_in(outputs: object) -> Iterator[Tensor]:
    """Every tensor in an output, however deep."""
    if isinstance(outputs, Tensor):
        yield outputs
    elif isinstance(outputs, Mapping):
        for value in outputs.values():
            yield from tensors_in(value)
    elif isinstance(outputs, tuple | list):
        for value in outputs:
            yield from tensors_in(value)


@contextmanager
def _noting_calls(root: PreTrainedModel, calls: ModuleCalls) -> Iterator[None]:
    """Within the block, what each model within the model is first called with is kept."""
    with ExitStack() as stack:
        for name, module in root.named_modules():
            if name and isinstance(module, PreTrainedModel):

                def keep(
                    _: nn.Module,
                    args: tuple[object, ...],
                    kwargs: dict[str, object],
                    name: str = name,
                ) -> None:
                    calls.setdefault(name, (args, dict(kwargs)))

                hook = module.register_forward_pre_hook(keep, with_kwargs=True)
                stack.callback(hook.remove)
        yield
