"""Reference maps: a model's own attention under `output_attentions`.

A model returns the maps of its stacks, and often those of its towers in nested outputs. A tower
whose maps are not returned is called directly, with the arguments that the model passed to it.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from headscope.attention import BlockName
from headscope.errors import TapUnsupported
from headscope.model.tap.forward_pass import takes, uncached
from headscope.model.tap.interrupts import held

OUTPUT_BLOCKS: dict[str, BlockName] = {
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
"""Pattern in the name of a tower's output, main input or module → its block."""
Maps = dict[BlockName, list[Tensor]]
ModelInputs = Mapping[str, object]
ModuleCalls = dict[str, tuple[tuple[object, ...], dict[str, object]]]
"""Name of a sub-model → arguments of its first call."""


@dataclass(slots=True)
class ReferenceMaps:
    """Reference maps by block, and the model's main output."""

    maps: Maps
    output: Tensor
    calls: ModuleCalls


@contextmanager
@held
def _kept_calls(root: PreTrainedModel, calls: ModuleCalls) -> Iterator[None]:
    """Within the block, keep the arguments of the first call of each sub-model."""
    with ExitStack() as stack:
        for name, module in root.named_modules():
            if name and isinstance(module, PreTrainedModel):

                def keep(_: nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
                    calls.setdefault(name, (args, dict(kwargs)))

                hook = module.register_forward_pre_hook(keep, with_kwargs=True)
                stack.callback(hook.remove)
        yield


def read_reference(root: PreTrainedModel, inputs: ModelInputs) -> ReferenceMaps:
    """Run the model with `output_attentions=True`; raise TapUnsupported if it does not run."""
    calls: ModuleCalls = {}
    try:
        with _kept_calls(root, calls):
            try:
                outputs = root(**inputs, output_attentions=True)
            except (TypeError, ValueError):  # output_attentions may not be a parameter
                calls.clear()
                outputs = root(**inputs)
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise TapUnsupported(
            f"{root.config.model_type}: the self-check could not run the model on an example "
            f"input of {', '.join(inputs)} ({type(error).__name__}: "
            f"{reason[-1] if reason else 'no message'}). {_advice(root, inputs)}"
        ) from error
    maps = _maps_of(outputs)
    if list(maps) == ["self", "cross"] and root.config.is_encoder_decoder:
        maps = {"decoder": maps["self"], "cross": maps["cross"]}
    elif len(maps) == 1 and next(iter(maps)) in ("text", "vision", "audio"):
        maps = {"self": next(iter(maps.values()))}  # a single stack
    return ReferenceMaps(maps, main_output(outputs), calls)


def _advice(root: PreTrainedModel, inputs: ModelInputs) -> str:
    if takes(root, "use_cache"):
        with contextlib.suppress(Exception):
            root(**{**inputs, "use_cache": False})
            return (
                "It runs without a cache (do two of its layers share a module, and so a cache "
                "entry?): set model.config.use_cache = False before headscope.load."
            )
    return "Pass inputs it accepts: headscope.load(model, tokenizer, example={'input_ids': …})."


def read_tower_reference(
    tower: PreTrainedModel, call: tuple[tuple[object, ...], dict[str, object]]
) -> list[Tensor]:
    """Return the maps of a sub-model, called as in the outer model; empty if it returns none."""
    args, kwargs = call
    options = {name: value for name, value in kwargs.items() if name != "past_key_values"}
    options |= uncached(tower) | {"output_attentions": True, "return_dict": True}
    try:
        outputs = tower(*args, **options)
    except (TypeError, ValueError):
        return []
    return _tensors(getattr(outputs, "attentions", None))


def tower_block(name: str, tower: PreTrainedModel) -> BlockName | None:
    """Return the block of a sub-model by its main input, else by its name.

    `input_ids` is also the main input of towers that do not state one (Idefics): names come first.
    """
    own, names = tower.main_input_name, (name.rpartition(".")[2], type(tower).__name__.lower())
    texts = (*names, own) if own == "input_ids" else (own, *names)
    found = (block for words in texts for pattern, block in TOWERS if re.search(pattern, words))
    return next(found, None)


def main_output(outputs: object) -> Tensor:
    """Return logits or last hidden state, else the first floating-point tensor."""
    named = (getattr(outputs, key, None) for key in ("logits", "last_hidden_state"))
    floats = (tensor for tensor in tensors_in(outputs) if tensor.is_floating_point())
    for tensor in itertools.chain(named, floats):
        if isinstance(tensor, Tensor):
            return tensor
    raise TapUnsupported("The model's output has no floating-point tensor to compare.")


def _maps_of(outputs: object) -> Maps:
    maps = {b: _tensors(getattr(outputs, key, None)) for key, b in OUTPUT_BLOCKS.items()}
    for key, value in outputs.items() if isinstance(outputs, Mapping) else ():
        if key in OUTPUT_BLOCKS:
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


def _tensors(maps: object) -> list[Tensor]:
    """Return the tensors of an attention output that have heads, queries and keys."""
    listed = maps if isinstance(maps, tuple | list) else [maps]
    return [x for x in listed if isinstance(x, Tensor) and x.ndim >= 3]


def tensors_in(outputs: object) -> Iterator[Tensor]:
    """Yield every tensor in a nested output."""
    if isinstance(outputs, Tensor):
        yield outputs
    elif isinstance(outputs, Mapping | tuple | list):
        for value in outputs.values() if isinstance(outputs, Mapping) else outputs:
            yield from tensors_in(value)
