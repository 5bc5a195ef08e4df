"""Load a model: packaged, from a folder or the hub, or a live transformers model.

`randomized` makes the random-weights control of Clark et al. 2019, section 5: the same architecture
with its pre-trained token and position embeddings, everything else initialized at random. Structure
found in its attention comes from the embeddings and the method, not from training.
"""

from __future__ import annotations

import copy
import logging
import pickle
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto import modeling_auto

from headscope.atomic import cache_folder
from headscope.errors import (
    HeadscopeError,
    HubUnreachable,
    InputError,
    ModelError,
    ModelNotFound,
    UnknownName,
)
from headscope.model import private_api, weight_files
from headscope.model.model import Model
from headscope.model.packaged.ctranslate2 import convert_whisper
from headscope.model.packaged.gguf import convert_gguf
from headscope.model.packaged.pinned import PACKAGED, PackagedModel, converted
from headscope.model.processing import MEDIA_INPUTS, Processor
from headscope.model.tap.forward_pass import takes

if TYPE_CHECKING:
    from transformers import Pipeline


def unwrap(
    source: object, *, compiled: bool = False
) -> tuple[object, PreTrainedTokenizerBase | None]:
    """Return the model inside a wrapper and the wrapper's tokenizer; other objects unchanged.

    Wrappers: a transformers pipeline, a compiled model (`torch.compile`), a parallel one, a PEFT
    model (with its adapters), a SentenceTransformer. The model is not copied. `compiled` accepts
    parts with compiled calls (`module.compile()`), which the caller replaces.
    """
    tokenizer: PreTrainedTokenizerBase | None = None
    while not isinstance(source, PreTrainedModel):
        inner = _inside(source)
        if inner is None:
            return source, tokenizer
        processor = getattr(source, "processor", None)
        tokenizer = tokenizer or _own_tokenizer(source) or _own_tokenizer(processor)
        source = inner
    for name, part in source.named_modules():
        is_compiled = private_api.compiled_call(part) is not None and not compiled
        if is_compiled or hasattr(part.forward, private_api.COMPILED_FORWARD):
            raise InputError(
                f"{name or type(source).__name__} was compiled in place (module.compile() or "
                "module.forward = torch.compile(…)), so its attention runs where it cannot be "
                "read. Load the model before compiling it, or wrap it: torch.compile(model)."
            )
    return source, tokenizer


def _inside(source: object) -> object | None:
    """Return the wrapped object, by its attributes: the wrappers' libraries are not imported."""
    from transformers import Pipeline  # a slow import, rarely needed

    if isinstance(source, Pipeline):
        return source.model
    if not isinstance(source, nn.Module):
        return None
    get_base_model = getattr(source, "get_base_model", None)
    if get_base_model is not None:  # peft.PeftModel
        config = getattr(source, "active_peft_config", None)
        if getattr(config, "is_prompt_learning", False):
            raise InputError(
                f"{type(source).__name__} puts learned tokens before every text "
                f"({type(config).__name__}), which the model inside does not do by itself. Load "
                "adapters that change weights (such as LoRA), or the model without them."
            )
        base: object = get_base_model()
        return base
    if type(source).__name__ == "HookedTransformer":
        raise InputError(
            "A HookedTransformer holds converted weights (folded norms, split heads), not those "
            "of a transformers model. Load the model that it was made from, hs.load(NAME); or show "
            "its attention: hs.Trace.from_arrays(cache, tokens)."
        )
    # compiled, parallel, sentence_transformers, TransformerBridge of TransformerLens
    for name in (private_api.COMPILED_MODULE, "module", "auto_model", "original_model"):
        inner = getattr(source, name, None)
        if isinstance(inner, nn.Module):
            return inner
    if isinstance(source, nn.Sequential) and len(source):  # a SentenceTransformer's first module
        first = source[0]
        return first if isinstance(getattr(first, "auto_model", None), nn.Module) else None
    return None


_LOG = logging.getLogger("headscope")


def load(
    source: str | Path | nn.Module | Pipeline,
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    processor: Processor | None = None,
    name: str | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype = "float32",
    revision: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    example: Mapping[str, object] | None = None,
) -> Model:
    """Load a model and its tokenizer for tracing and measuring.

    The class with the head that the weights have is chosen. A head that would be initialized at
    random is never used: see `model.info.has_lm_head`.

    Args:
        source: `"minilm"`, `"smollm2"` or `"whisper"` (packaged, or else from the hub), a
            folder, a hub id such as `"gpt2"`, or a live transformers model (neither copied nor
            moved), also inside a pipeline, a compiled or parallel model, PEFT adapters, a
            SentenceTransformer or a TransformerBridge.
        tokenizer: tokenizer for a live model without one.
        processor: processor of images and recordings for a live model without one.
        name: name in views and reports ("before fine-tuning"); default: the model's own.
        device: default: a GPU if there is one, else the CPU.
        dtype: type of the weights; `"auto"` keeps the saved one. On a CPU, float32 is fastest.
        revision: branch, tag or commit on the hub.
        trust_remote_code: run code that comes with a model.
        allow_pickle: read weights from `pytorch_model.bin` if there is no safetensors file. A
            pickle can contain more than numbers.
        example: inputs for the self-check, if headscope cannot make them.

    Raises:
        ModelNotFound: the model does not exist, or cannot be downloaded.
        ModelError: its files are cut, or configuration and weights belong to different models.
        IntegrityError: a packaged file differs from the pinned one.
    """
    if name is not None and not (isinstance(name, str) and name.strip()):
        raise InputError(f"name should be a text that is not empty, not {name!r}.")
    if source == "":  # Path("") is the current folder
        raise InputError("The name of the model is empty. Give a name, a folder, or a model.")
    if example is not None and not isinstance(example, Mapping):
        raise InputError(
            f"example should be inputs by name, such as {{'input_ids': …}}, not {example!r:.60}."
        )
    if not isinstance(source, str | Path):
        module, wrapped_tokenizer = unwrap(source)
        if not isinstance(module, PreTrainedModel):
            raise InputError(
                f"Cannot load a model from {type(source).__name__}. Give a name, a folder, or a "
                "transformers model (a PreTrainedModel) with its tokenizer."
            )
        meta = [name for name, p in module.named_parameters() if p.is_meta]
        is_offloaded = any(hasattr(part, private_api.OFFLOADING_HOOK) for part in module.modules())
        if meta and not is_offloaded:
            raise InputError(
                f"{len(meta)} weights of {type(module).__name__} are on the device 'meta' "
                f"({meta[0]}): they have shapes, but not values. Load the model with its weights."
            )
        if device is not None:
            torch.nn.Module.to(module, _device(device))
        from transformers import Pipeline

        if processor is None and isinstance(source, Pipeline):
            names = ("processor", "image_processor", "feature_extractor")
            parts = (getattr(source, name, None) for name in names)
            processor = next(filter(None, parts), None)
        return Model(
            module,
            tokenizer or wrapped_tokenizer or _own_tokenizer(processor),
            name=name or _short_name(module.config.name_or_path) or type(module).__name__,
            example=example,
            processor=processor,
        )
    if not isinstance(dtype, torch.dtype) and dtype != "auto":
        named = getattr(torch, str(dtype), None)
        if not isinstance(named, torch.dtype) or not named.is_floating_point:
            known = ["auto", "float32", "float64", "float16", "bfloat16"]
            raise UnknownName.of("dtype", dtype, known)
        dtype = named
    device = _device(device)
    found = _find(source, revision)
    options: weight_files.HubOptions = {"trust_remote_code": trust_remote_code, **found.options}
    with weight_files.quiet():
        with _refusing(source):
            weight_files.check_counts(
                PretrainedConfig.get_config_dict(found.location, **found.options)[0]
            )
            config = AutoConfig.from_pretrained(found.location, **options)
            stored = weight_files.read_headers(found.location, config, found.options, allow_pickle)
            module, notes = _module(found.location, config, dtype, options, stored)
        if processor is None and any(takes(module, x) for x in MEDIA_INPUTS):
            processor = _processor(found.location, options)
        tokenizer = tokenizer or _own_tokenizer(processor) or _tokenizer(found.location, options)
    torch.nn.Module.to(module, device).eval()
    return Model(
        module,
        tokenizer,
        name=name or found.name,
        source=found.origin,
        notes=found.notes + notes,
        example=example,
        processor=processor,
    )


def _short_name(name: str | None) -> str | None:
    """Return the last part of a folder's path; a hub id as it is."""
    return Path(name).name if name and (Path(name).is_absolute() or Path(name).is_dir()) else name


@contextmanager
def _refusing(source: str | Path) -> Iterator[None]:
    """Within the block, report every error as a ModelError: bad files can raise any kind."""
    try:
        yield
    except HeadscopeError:
        raise
    except Exception as error:
        reason = str(error)
        # The upstream messages suggest disabling these safety checks.
        if isinstance(error, pickle.UnpicklingError) or "weights_only" in reason:
            reason = "its pickle contains more than weights, which is not read."
        elif "trust_remote_code" in reason:
            reason = (
                "it is defined by code that comes with it, which is not run. Use a model of a "
                "family that transformers knows."
            )
        elif not isinstance(error, OSError | ValueError):
            reason = repr(error)
        raise ModelError(f"Could not load {str(source)!r}: {reason}") from error


def as_model(model: Model | str | Path | nn.Module) -> Model:
    """Return the model, loading it first if necessary."""
    return model if isinstance(model, Model) else load(model)


@dataclass(frozen=True, slots=True)
class _ModelSource:
    """Location of a model for transformers, and its description."""

    location: str
    name: str
    origin: str
    options: weight_files.HubOptions
    notes: tuple[str, ...] = ()


def _find(source: str | Path, revision: str | None) -> _ModelSource:
    if isinstance(source, str) and source in PACKAGED:
        packaged = PACKAGED[source]
        if packaged.installed_version() is None:
            return _instead(packaged, revision)

        def first() -> Path:
            return next(iter(packaged.verified_files().values()))

        if packaged.form == "transformers":
            folder = first().parent
        else:
            convert = {"gguf": convert_gguf, "ctranslate2": convert_whisper}[packaged.form]
            digest = next(iter(packaged.files.values()))[:12]
            target = cache_folder() / f"{packaged.alias}-{packaged.version}-{digest}"
            folder = converted(first, target, convert, report=_LOG.warning)
        origin = f"packaged in {packaged.distribution} {packaged.version}"
        local: weight_files.HubOptions = {"local_files_only": True}
        return _ModelSource(str(folder), packaged.title, origin, local, (packaged.notes,))
    folder = Path(source)
    is_folder = False
    with suppress(OSError):  # the name is too long
        is_folder = folder.is_dir()
    if is_folder:
        if not (folder / "config.json").is_file():
            raise ModelNotFound(
                f"The folder {str(folder)!r} has no config.json, so it is not a saved transformers "
                "model. Save one with model.save_pretrained and tokenizer.save_pretrained."
            )
        return _ModelSource(str(folder), folder.name, "folder", {"local_files_only": True})
    name = str(source)
    if isinstance(source, Path) or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelNotFound(f"There is no folder {name!r}.")
    return _on_hub(name, revision)


def _instead(packaged: PackagedModel, revision: str | None) -> _ModelSource:
    """Return the hub's version of a packaged model that is not installed."""
    try:
        source = _on_hub(packaged.hub_id, revision)
    except HubUnreachable as error:
        raise HubUnreachable(
            f"The packaged model {packaged.alias!r} is not installed, and the model hub, which "
            f"has it as {packaged.hub_id}, cannot be reached. Run: {packaged.command}; or give "
            'the folder of a saved model: --model FOLDER, in Python headscope.load("FOLDER").'
        ) from error
    note = f"as published on the hub: the package {packaged.distribution} is not installed"
    return replace(source, name=packaged.title, notes=(note,))


def _on_hub(name: str, revision: str | None) -> _ModelSource:
    options: weight_files.HubOptions = {"revision": revision}
    if not weight_files.reach_hub(name, revision):
        options["local_files_only"] = True
    return _ModelSource(name, name, f"hub at {revision}" if revision else "hub", options)


def _device(device: str | torch.device | None) -> torch.device:
    """Return the device after a test allocation; default: a GPU or the CPU."""
    try:
        chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(1, device=chosen)
    except (RuntimeError, AssertionError) as error:  # torch raises either
        raise InputError(f"Cannot run on device {str(device)!r}: {error}") from None
    return chosen


def _module(
    location: str,
    config: PretrainedConfig,
    dtype: torch.dtype | str,
    options: weight_files.HubOptions,
    stored: weight_files.WeightHeaders,
) -> tuple[PreTrainedModel, tuple[str, ...]]:
    """Load the model in the largest class whose weights are all stored; return it and notes."""
    notes: tuple[str, ...] = ()
    for model_class in _candidate_classes(config):
        weight_files.check_sizes(model_class, copy.deepcopy(config), stored)
        with weight_files.bounded(stored):
            settings = {"config": config, "dtype": dtype, "use_safetensors": not stored.is_pickled}
            module, loading = model_class.from_pretrained(
                location, output_loading_info=True, **settings, **options
            )
        is_base = model_class is AutoModel
        # Attention does not depend on the pooler of a bare stack, which many checkpoints lack.
        missing = sorted(k for k in loading["missing_keys"] if not (is_base and "pooler" in k))
        if not missing:
            return module, notes
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
    """Yield the declared class or the family's language-model classes, then the bare stack."""
    declared = config.architectures[0] if config.architectures else None
    names: list[str | None] = [declared]
    if declared is None or declared.endswith("ForPreTraining"):
        tasks = ("SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "CAUSAL_LM")
        mappings = (getattr(modeling_auto, f"MODEL_FOR_{x}_MAPPING_NAMES") for x in tasks)
        names = [mapping.get(config.model_type) for mapping in mappings]
    base = modeling_auto.MODEL_MAPPING_NAMES.get(config.model_type)
    bases = {base} if isinstance(base, str) else set(base or ())
    for name in dict.fromkeys(names):
        model_class = getattr(transformers, name, None) if name else None
        is_model = isinstance(model_class, type) and issubclass(model_class, PreTrainedModel)
        if is_model and name not in bases:
            yield model_class
    yield AutoModel


def _tokenizer(location: str, options: weight_files.HubOptions) -> PreTrainedTokenizerBase | None:
    try:
        return AutoTokenizer.from_pretrained(location, **options)
    except Exception as error:  # tokenizers raises bare exceptions
        if any(Path(location, name).is_file() for name in ("tokenizer.json", "vocab.txt")):
            raise ModelError(f"The tokenizer of {location!r} cannot be read: {error}") from error
        return None


def _processor(location: str, options: weight_files.HubOptions) -> Processor | None:
    from transformers import AutoProcessor

    try:
        processor = AutoProcessor.from_pretrained(location, **options)
    except (OSError, ValueError, KeyError, TypeError, ImportError):
        return None
    return None if isinstance(processor, PreTrainedTokenizerBase) else processor


def _own_tokenizer(owner: object) -> PreTrainedTokenizerBase | None:
    tokenizer = getattr(owner, "tokenizer", None)
    return tokenizer if isinstance(tokenizer, PreTrainedTokenizerBase) else None


_POSITION = re.compile(r"(^|\.)(wpe|\w*position(al)?_?embed\w*|embed_positions?|pos_embed\w*)\.")


def kept_parameters(model: Model) -> tuple[str, ...]:
    """Return the names of the parameters that the control keeps: token and absolute position
    embeddings. Rotary positions have no parameters; relative biases belong to the attention.
    """
    tokens = model.module.get_input_embeddings()
    token_parameters = {id(parameter) for parameter in tokens.parameters()}
    return tuple(
        name
        for name, parameter in model.module.named_parameters()
        if id(parameter) in token_parameters or (_POSITION.search(name) and "relative" not in name)
    )


def randomized(model: Model, seed: int = 0) -> Model:
    """Copy the model with random weights, except its embeddings, as for training from scratch."""
    module = model.module
    with torch.random.fork_rng(devices=[]), weight_files.quiet():
        torch.manual_seed(seed)
        fresh = type(module)(copy.deepcopy(module.config))
    torch.nn.Module.to(fresh, device=module.device, dtype=module.dtype).eval()
    new_weights, weights = dict(fresh.named_parameters()), dict(module.named_parameters())
    with torch.no_grad():
        for name in kept_parameters(model):
            new_weights[name].copy_(weights[name])
    return Model(
        fresh,
        model.tokenizer,
        name=f"{model.name}, random weights",
        source=f"{model.info.source}; embeddings kept, the rest initialized with seed {seed}",
    )
