"""Read weight-file headers and query the hub before a model is built.

A configuration may ask for more than its weights contain, by mistake or malice, and building that
takes minutes and gigabytes. So its sizes are compared with those of the stored weights first.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import torch
from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
from safetensors import SafetensorError, safe_open
from torch import nn
from torch.nn.modules import module as torch_modules
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from headscope.errors import HubUnreachable, ModelError, ModelNotFound, UnknownName
from headscope.model.packaged.pinned import PACKAGED
from headscope.model.private_api import find_cached_file

HUB_TIMEOUT = 5.0


class HubOptions(TypedDict, total=False):
    """Options by which transformers finds the files of a model."""

    revision: str | None
    local_files_only: bool
    trust_remote_code: bool


def reach_hub(name: str, revision: str | None) -> bool:
    """Query the hub for a model; return False if only the local hub cache has it. transformers
    itself would retry for half a minute.
    """
    try:
        cached = try_to_load_from_cache(name, "config.json", revision=revision)
        HfApi().model_info(name, revision=revision, timeout=HUB_TIMEOUT)
    except HFValidationError as error:
        raise ModelNotFound(f"{name!r} is neither a folder nor a hub id: {error}") from None
    except GatedRepoError as error:
        raise ModelNotFound(
            f"{name!r} is gated on the hub: accept its terms there and log in with "
            f"`hf auth login`. ({error})"
        ) from error
    except RepositoryNotFoundError:
        hint = UnknownName.of("model", name, PACKAGED)
        raise ModelNotFound(
            f"There is no model {name!r} on the hub (or it is private), no folder of that "
            f"name, and no packaged model. {hint}"
        ) from None
    except Exception as error:  # no network: the hub client raises its HTTP library's errors
        if isinstance(cached, str):
            return False
        if nearest := difflib.get_close_matches(name, PACKAGED, n=1):
            raise HubUnreachable(
                f"There is no packaged model {name!r} and no such folder. Did you mean "
                f"{nearest[0]!r}? (The model hub cannot be reached: {error}.)"
            ) from error
        raise HubUnreachable(
            f"{name!r} is not a folder or a packaged model ({', '.join(PACKAGED)}), and the "
            f"model hub cannot be reached ({error}). Connect to a network; or download the "
            f"model elsewhere (`hf download {name}`) and pass its folder; or use a packaged "
            "model."
        ) from error
    return True


SAFE, SAFE_INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED, PICKLED_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
LARGEST_COUNT = 100_000
"""Maximum layers, labels or heads in a configuration."""
COUNTS = re.compile(r"layers?$|layer_|depth|labels|heads?$|experts|blocks")
SPARE_WEIGHTS, SPARE_PARTS = 50_000_000, 10_000
"""Allowance beyond twice the stored weights and ten times the stored tensors: an unsaved head,
position tables."""
MAX_PACKED = 16
"""Maximum weights in one stored number if quantized: two bits of 32."""


@dataclass(frozen=True, slots=True)
class WeightHeaders:
    """Number of weights in files, and the shapes of their tensors."""

    weights: int
    """Upper bound on the stored numbers."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By tensor name; empty for pickled weights."""
    is_pickled: bool = False


def read_headers(
    location: str, config: PretrainedConfig, options: HubOptions, allow_pickle: bool
) -> WeightHeaders:
    """Find the weight files of a folder or hub id and read their headers. `allow_pickle` accepts
    pickled weights if there are no others. Raises ModelError for missing, cut or unknown files.
    """
    named = getattr(config, "transformers_weights", None)
    names = (SAFE, SAFE_INDEX) if named is None else (str(named),)
    if not all(name.endswith((".safetensors", ".safetensors.index.json")) for name in names):
        raise ModelError(f"{location!r} names {named!r} as its weights, not a safetensors file.")
    for name in names:
        if (path := _file(location, name, options)) is not None:
            shapes: dict[str, tuple[int, ...]] = {}
            for part in _parts(location, path, options):
                shapes |= read_shapes(part)
            weights = sum(math.prod(shape) for shape in shapes.values())
            is_quantized = getattr(config, "quantization_config", None) is not None
            return WeightHeaders(weights * (MAX_PACKED if is_quantized else 1), shapes)
    pickles = (PICKLED, PICKLED_INDEX) if allow_pickle or Path(location).is_dir() else ()
    for name in pickles:
        if (path := _file(location, name, options)) is None:
            continue
        if not allow_pickle:
            raise ModelError(
                f"{location!r} has its weights in {name} alone, a pickle, which can hold other "
                "things than numbers. Convert it where it was made (model.save_pretrained writes "
                "safetensors); or, if you know who made it, say so: --allow-pickle, in Python "
                "headscope.load(…, allow_pickle=True)."
            )
        n_bytes = sum(part.stat().st_size for part in _parts(location, path, options))
        return WeightHeaders(n_bytes, is_pickled=True)
    raise ModelError(
        f"{location!r} has no weights that can be read: expected {SAFE} or {SAFE_INDEX}. "
        "model.save_pretrained writes them."
        + ("" if allow_pickle else " Pickled weights (.bin) are read only if allow_pickle is set.")
    )


def _file(location: str, name: str, options: HubOptions) -> Path | None:
    """Return a file of the model, downloaded from the hub if necessary; None if missing."""
    if Path(location).is_dir():
        path = Path(location, name)
        return path if path.is_file() else None
    cached = find_cached_file(
        location,
        name,
        revision=options.get("revision"),
        local_files_only=options.get("local_files_only", False),
    )
    return None if cached is None else Path(cached)


def _parts(location: str, path: Path, options: HubOptions) -> list[Path]:
    if path.suffix != ".json":
        return [path]
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        names = sorted({str(name) for name in index["weight_map"].values()})
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{path.name} is not an index of weight files: {error!r}.") from None
    parts = []
    for name in names:
        if Path(name).name != name or name in ("", ".", ".."):
            raise ModelError(f"{path.name} names {name!r}: expected a file beside it.")
        if (part := _file(location, name, options)) is None:
            raise ModelError(f"{path.name} names {name!r}, which is not there.")
        parts.append(part)
    return parts


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a file's tensors; raise ModelError unless it is whole safetensors."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise ModelError(
            f"{path.name} is cut, or not a safetensors file: its header should have {length:,} "
            f"bytes, and the file has {size:,}. Fetch it again."
        )
    try:
        with safe_open(path, "np") as stored:
            names = stored.keys()
            return {name: tuple(stored.get_slice(name).get_shape()) for name in names}
    except SafetensorError as error:
        raise ModelError(
            f"{path.name} is damaged, or not a safetensors file: {error}. Fetch it again."
        ) from None


def check_counts(config: object, path: str = "config.json") -> None:
    """Raise ModelError for absurd counts, because transformers makes lists of that length."""
    if isinstance(config, Mapping):
        for name, value in config.items():
            if isinstance(value, int) and value > LARGEST_COUNT and COUNTS.search(str(name)):
                raise ModelError(
                    f"{path} has {name} = {value:,}; no model has more than {LARGEST_COUNT:,}."
                )
            check_counts(value, f"{path}: {name}")


def check_sizes(model_class: Any, config: PretrainedConfig, stored: WeightHeaders) -> None:
    """Build the model without memory; raise ModelError if a tensor differs from its stored size."""
    build = getattr(model_class, "from_config", None) or model_class
    try:
        with torch.device("meta"), bounded(stored):
            module: PreTrainedModel = build(config)
    except ModelError:
        raise
    except Exception:  # transformers reports this error when it loads
        return
    if getattr(config, "quantization_config", None) is not None:
        return
    expected = module.state_dict()
    prefix = f"{module.base_model_prefix}."
    for name, shape in stored.shapes.items():
        for candidate in (name, prefix + name, name.removeprefix(prefix)):
            tensor = expected.get(candidate)
            # Some families store a matrix transposed; from_pretrained transposes it back.
            if tensor is not None and tensor.numel() != math.prod(shape):
                raise ModelError(
                    f"config.json and the weights disagree: {name} is stored as {shape}, and the "
                    f"configuration asks for {tuple(tensor.shape)}. One of them belongs to "
                    "another model."
                )


@contextmanager
def bounded(stored: WeightHeaders) -> Iterator[None]:
    """Within the block, this thread cannot build a model far larger than the stored weights."""
    max_weights = 2 * stored.weights + SPARE_WEIGHTS
    max_parts = 10 * len(stored.shapes) + SPARE_PARTS
    thread = threading.get_ident()
    weights = parts = 0

    def count(module: nn.Module, name: str, tensor: torch.Tensor | None) -> None:
        nonlocal weights, parts
        # Called twice: when the model is built (on meta), and when its weights are set.
        if tensor is None or not tensor.is_meta or threading.get_ident() != thread:
            return
        weights, parts = weights + tensor.numel(), parts + 1
        if weights > max_weights or parts > max_parts:
            raise ModelError(
                f"config.json asks for more than is stored: {weights:,} numbers in {parts:,} "
                f"tensors so far ({name} of {type(module).__name__} is {tuple(tensor.shape)}), and "
                f"{stored.weights:,} are stored. One of them is damaged, or of another model."
            )

    with ExitStack() as stack:
        stack.callback(torch_modules.register_module_parameter_registration_hook(count).remove)
        stack.callback(torch_modules.register_module_buffer_registration_hook(count).remove)
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """Within the block, hide transformers' warnings, loading report and progress bar."""
    verbosity, had_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bar:
            logging.enable_progress_bar()
