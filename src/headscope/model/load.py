"""Load a model: a packaged one, a folder, a hub id, or one you already have."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import HfApi, try_to_load_from_cache
from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto import modeling_auto

from headscope.errors import InputError, ModelError, ModelNotFound, UnknownName
from headscope.model.info import is_language_model
from headscope.model.model import Model
from headscope.model.packaged.gguf import converted
from headscope.model.packaged.weights import PACKAGED, PackagedModel, cache_folder, find_packaged
from headscope.model.quiet import quiet

__all__ = ["as_model", "load"]

_LOG = logging.getLogger("headscope")
HUB_TIMEOUT = 5.0
"""Seconds to wait for the model hub before saying that it cannot be reached."""


def load(
    source: str | Path | PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype = "float32",
    revision: str | None = None,
    trust_remote_code: bool = False,
    example: Mapping[str, Any] | None = None,
) -> Model:
    """Load a model and its tokenizer for tracing and measuring.

    Args:
        source: `"minilm"` or `"smollm2"` (packaged), a folder, a hub id such as `"gpt2"`,
            or a live transformers model (used as it is: not copied, not moved).
        tokenizer: for a live model; others bring theirs.
        device: where to run; a GPU if there is one, else the CPU.
        dtype: of the weights; `"auto"` keeps what was saved. On a CPU, float32 is fastest.
        revision: branch, tag or commit on the hub.
        trust_remote_code: run code that comes with a hub model. Off by default.
        example: inputs for the self-check, where headscope cannot make them up.

    The class with the head the weights really have is chosen. A head that would be
    initialized at random is never used: `model.info.has_lm_head` says what there is.

    Raises:
        ModelNotFound: there is no such model, or no network to get it.
        IntegrityError: a packaged file is not the one that was pinned.
    """
    if isinstance(source, PreTrainedModel):
        return _live(source, tokenizer, device, example)
    if not isinstance(source, str | Path):
        raise InputError(
            f"Cannot load {type(source).__name__!r}. Give a name, a folder, or a transformers "
            "model (a PreTrainedModel) with its tokenizer."
        )
    torch_dtype = _dtype(dtype)
    device = _device(device)
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code}
    notes: tuple[str, ...] = ()
    if isinstance(source, str) and source in PACKAGED:
        packaged = find_packaged(source)
        location, name, notes = str(_packaged_folder(packaged)), packaged.title, (packaged.notes,)
        origin = f"packaged in {packaged.distribution} {packaged.version}"
        options["local_files_only"] = True
    elif _is_folder(source):
        location, name, origin = str(_model_folder(Path(source))), Path(source).name, "folder"
        options["local_files_only"] = True
    else:
        location = name = _hub_id(source)
        origin = f"hub{f' at {revision}' if revision else ''}"
        options |= {"revision": revision} | _reach_hub(location, revision)
    with quiet():
        try:
            config = AutoConfig.from_pretrained(location, **options)
            module, has_head, found = _module(location, config, torch_dtype, options)
        except (OSError, ValueError) as error:
            raise ModelError(f"Could not load {str(source)!r}: {error}") from error
        tokenizer = tokenizer or _tokenizer(location, options)
    torch.nn.Module.to(module, device).eval()
    return Model(
        module,
        tokenizer,
        name=name,
        source=origin,
        has_lm_head=has_head,
        notes=notes + found,
        example=example,
    )


def as_model(model: Model | str | Path | PreTrainedModel) -> Model:
    """The model itself, or what `load` makes of it."""
    return model if isinstance(model, Model) else load(model)


def _live(
    module: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    device: str | torch.device | None,
    example: Mapping[str, Any] | None,
) -> Model:
    if device is not None:
        torch.nn.Module.to(module, _device(device))
    has_head = is_language_model(type(module).__name__)
    name = module.config.name_or_path or type(module).__name__
    return Model(
        module,
        tokenizer,
        name=name,
        source="live",
        has_lm_head=has_head,
        example=example,
    )


def _packaged_folder(packaged: PackagedModel) -> Path:
    files = packaged.verified_files()
    first = next(iter(files.values()))
    if not packaged.is_gguf:
        return first.parent
    digest = packaged.files[first.name]
    target = cache_folder() / f"{packaged.alias}-{packaged.version}-{digest[:12]}"
    return converted(first, target, say=_LOG.warning)


def _is_folder(source: str | Path) -> bool:
    try:
        return Path(source).is_dir()
    except OSError:  # longer than names can be
        return False


def _model_folder(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        raise ModelNotFound(
            f"The folder {str(folder)!r} has no config.json, so it is not a saved transformers "
            "model. Save one with model.save_pretrained and tokenizer.save_pretrained."
        )
    return folder


def _hub_id(source: str | Path) -> str:
    name = str(source)
    if isinstance(source, Path) or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelNotFound(f"There is no folder {name!r}.")
    return name


def _reach_hub(name: str, revision: str | None) -> dict[str, bool]:
    """Ask the hub for a model once, with a short patience, before any download starts.

    transformers would retry for half a minute. A model already in the hub's cache is used
    from there when the hub cannot be reached.
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
            return {"local_files_only": True}
        nearest = difflib.get_close_matches(name, PACKAGED, n=1)
        guess = f"Did you mean {nearest[0]!r}? " if nearest else ""
        raise ModelNotFound(
            f"{guess}{name!r} is not a folder or a packaged model ({', '.join(PACKAGED)}), and the "
            f"model hub cannot be reached ({error}). Connect to a network; or download the "
            f"model elsewhere (`hf download {name}`) and pass its folder; or use a packaged "
            "model."
        ) from error
    return {}


def _device(device: str | torch.device | None) -> torch.device:
    """The device asked for, after trying that it is there; a GPU or the CPU by default."""
    try:
        found = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(1, device=found)
    except (RuntimeError, AssertionError) as error:  # torch raises both for what is not there
        raise InputError(f"Cannot run on device {str(device)!r}: {error}") from None
    return found


def _dtype(dtype: str | torch.dtype) -> torch.dtype | str:
    if isinstance(dtype, torch.dtype) or dtype == "auto":
        return dtype
    found = getattr(torch, str(dtype), None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise UnknownName.of("dtype", dtype, ["auto", "float32", "float64", "float16", "bfloat16"])
    return found


def _module(
    location: str,
    config: PretrainedConfig,
    dtype: torch.dtype | str,
    options: dict[str, Any],
) -> tuple[PreTrainedModel, bool, tuple[str, ...]]:
    """The model in the richest class whose weights are all there, whether it has a
    language-model head, and what to say about it.
    """
    notes: tuple[str, ...] = ()
    for model_class in _candidate_classes(config):
        module, loading = model_class.from_pretrained(
            location, config=config, dtype=dtype, output_loading_info=True, **options
        )
        is_base = model_class is AutoModel
        # No attention depends on the pooler of a bare stack, which many checkpoints lack.
        missing = sorted(
            key for key in loading["missing_keys"] if not (is_base and "pooler" in key)
        )
        if not missing:
            return module, is_language_model(type(module).__name__), notes
        if is_base:
            raise ModelError(
                f"{location!r} lacks {len(missing)} of the weights of "
                f"{type(module).__name__}, for example {missing[0]!r}. It is damaged, or not of "
                f"family {config.model_type!r}."
            )
        notes = (
            f"{type(module).__name__} needs {missing[0]!r}, which the weights lack: loaded "
            "without that head",
        )
    raise AssertionError("AutoModel is always a candidate")


def _candidate_classes(config: PretrainedConfig) -> Iterator[Any]:
    """The class the configuration names (its language-model sibling for pre-training
    classes), or the family's language-model classes; then the bare stack.
    """
    declared = config.architectures[0] if config.architectures else None
    mappings = (
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    )
    names: list[str | None] = [declared]
    if declared is None or declared.endswith("ForPreTraining"):
        names = [mapping.get(config.model_type) for mapping in mappings]
    base = modeling_auto.MODEL_MAPPING_NAMES.get(config.model_type)
    bases = {base} if isinstance(base, str) else set(base or ())
    for name in dict.fromkeys(names):
        found = getattr(transformers, name, None) if name else None
        if found is not None and name not in bases:
            yield found
    yield AutoModel


def _tokenizer(location: str, options: dict[str, Any]) -> PreTrainedTokenizerBase | None:
    """The model's tokenizer; None for models that read no text."""
    try:
        found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(location, **options)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found
