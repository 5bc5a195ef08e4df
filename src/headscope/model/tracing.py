"""Make traces: encode, generate if requested, run once, collect.

`Origin` keeps the model and inputs of a trace, to run the same input again under edits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headscope.attention import key_stack, query_stack
from headscope.errors import HeadscopeError, InputError, warn
from headscope.model.collect import Collector, hidden_states
from headscope.model.edits import Edit, describe_edits
from headscope.model.encode import (
    Encoded,
    Messages,
    Speller,
    decoded_tokens,
    encode,
    encode_chat,
    is_chat,
    shifted_target,
)
from headscope.model.identity import versions
from headscope.model.logits import read_predictions
from headscope.model.packaged.pinned import PACKAGED
from headscope.model.tap.forward_pass import takes
from headscope.model.tap.sites import Wiring
from headscope.model.tapped import once
from headscope.model.weight_files import quiet
from headscope.results.trace import Trace, is_weighed
from headscope.text.tokens import Tokens

if TYPE_CHECKING:
    from headscope.model.model import Model


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Options of a trace; see `Model.trace`."""

    vectors: bool
    scores: bool | None
    layers: Sequence[int] | None
    norms: bool = False
    effects: bool = False
    generate: int = 0
    truncate: bool = True
    top: int | None = None
    """Kept keys of each row; None for all."""
    heads: Sequence[int] | None = None


@final
@dataclass(frozen=True, eq=False)
class Origin:
    """Model, inputs and edits that made a trace."""

    model: Model
    inputs: Mapping[str, object]
    stacks: Mapping[str, Tokens]
    options: TraceOptions
    edits: tuple[Edit, ...]

    @contextmanager
    def as_it_was(self, edits: Sequence[Edit] = ()) -> Iterator[None]:
        """Within the block, apply the edits of the trace and these."""
        in_effect = self.model.edits
        edits = [*(edit for edit in self.edits if edit not in in_effect), *edits]
        with self.model.edit(*edits) if edits else nullcontext():
            yield

    def again(self, like: Trace, edits: Sequence[Edit]) -> Trace:
        """Trace the same input under these edits and those of the trace `like`, with its tokens."""
        n_cut = int(like.provenance.get("n_cut", 0))
        with self.as_it_was(edits):
            trace = run_trace(self.model, self.inputs, dict(self.stacks), self.options, n_cut=n_cut)
        trace = trace.with_tokens(like.stack_tokens, like.media)
        return trace.norm_weighted() if is_weighed(like) else trace


IDS_OF_STACK = dict.fromkeys(("self", "encoder", "text"), "input_ids")
IDS_OF_STACK["decoder"] = "decoder_input_ids"
"""Stack → name of the input with its token ids."""
TOP_ROWS = 128
"""Query rows of a block, of a trace that keeps the strongest keys."""
LOGITS_KEPT = 64
"""Last positions with predictions, of a longer trace that keeps the strongest keys."""
LONG = 1024
"""Tokens from which a trace of some layers runs the others in torch's fused attention."""
GREEDY: dict[str, object] = {
    "do_sample": False,
    "num_beams": 1,
    "num_return_sequences": 1,
    "return_dict_in_generate": True,
}
"""Options of `generate` that override the model's own."""


def trace_text(
    model: Model, text: str | Messages, pair: str | None, target: str | None, options: TraceOptions
) -> Trace:
    """See `Model.trace`."""
    encoded, stacks, inputs = encode_for(
        model, text, pair, target=target, generate=options.generate, truncate=options.truncate
    )
    return run_trace(model, inputs, stacks, options, n_cut=encoded.n_cut)


def trace_inputs(model: Model, inputs: Mapping[str, object], options: TraceOptions) -> Trace:
    """Trace prepared inputs. Positions without a token are numbered."""
    if inputs.get("past_key_values") is not None:
        raise InputError(
            "past_key_values hold tokens that a trace would not show: give the whole input, or "
            "let the model write (generate=…)."
        )
    for name, value in inputs.items():
        is_patches = "grid_thw" in inputs and name != "grid_thw"
        if isinstance(value, Tensor) and value.shape[:1] != (1,) and not is_patches:
            raise InputError(
                f"{name} has shape {tuple(value.shape)}; a trace has one input, so its first "
                "axis (the batch) should be 1."
            )
    check_placeholders(model, inputs)
    try:
        return run_trace(model, inputs, {}, options, n_cut=0)
    except HeadscopeError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        names = ", ".join(inputs) or "(none)"
        raise InputError(
            f"{model.info.architecture} does not run on the inputs {names}: {error}. Give "
            "tensors of one row, as its forward pass takes them."
        ) from error


def check_placeholders(model: Model, inputs: Mapping[str, object]) -> None:
    """Raise InputError for placeholder ids without an image or a recording.

    The model would read the placeholder as a word.
    """
    ids = inputs.get("input_ids")
    if not isinstance(ids, Tensor) or any(
        value.is_floating_point() if isinstance(value, Tensor) else isinstance(value, list)
        for name, value in inputs.items()
        if not name.endswith("mask")
    ):
        return
    listed = ids.flatten().tolist()
    for medium, ending in itertools.product(("image", "video", "audio"), ("id", "index")):
        token = getattr(model.module.config, f"{medium}_token_{ending}", None)
        if isinstance(token, int) and token in listed:
            shown = model.tokenizer and model.tokenizer.convert_ids_to_tokens(token)
            raise InputError(
                f"Token {listed.index(token)} of the input is {shown or token}: it stands for the "
                f"{medium}, but none is given. Give it with the text (image=…, audio=…, or all "
                "that the processor makes of it), or take the token out."
            )


def encode_for(
    model: Model,
    text: str | Messages,
    pair: str | None,
    *,
    target: str | None,
    generate: int = 0,
    truncate: bool,
) -> tuple[Encoded, dict[str, Tokens], dict[str, Tensor]]:
    """Encode a text; return the encoding, the tokens by stack, and the model's inputs.

    Tokens and inputs include up to `generate` tokens that the model writes.
    """
    if not isinstance(generate, int) or generate < 0:
        raise InputError(f"generate should be a number of tokens from 0 on, not {generate!r}.")
    main = model.module.main_input_name
    if main in ("input_features", "input_values"):
        raise InputError(
            f"{model.name} listens to recordings and reads no text: model.trace(audio=…)."
        )
    if main == "pixel_values" and not takes(model.module, "input_ids"):
        raise InputError(f"{model.name} looks at images and reads no text: model.trace(image=…).")
    tokenizer = model.require_tokenizer()
    if model.info.blocks[0] == "text":  # towers only: each has an input of its own
        raise InputError(
            f"{model.name} compares a text with an image or a recording, and runs on both: "
            "model.trace('a cat', image=…)."
        )
    limit = model.info.max_length
    has_decoder = "decoder" in model.info.blocks
    if limit is not None and generate and not has_decoder:
        limit -= generate
        if limit < 1:
            raise InputError(
                f"generate={generate} leaves no room: the model takes {model.info.max_length} "
                "tokens in all."
            )
    if is_chat(text):
        encoded = encode_chat(tokenizer, text, max_length=limit, processor=model.processor)
    else:
        encoded = encode(tokenizer, cast("str", text), pair, max_length=limit, truncate=truncate)
    check_target(model, target, generate, has_decoder=has_decoder)
    inputs = encoded.tensors(tokenizer)
    check_placeholders(model, inputs)
    if generate:
        return encoded, *_generated(model, encoded, generate)
    if target is None:
        stack = "encoder" if has_decoder else "self"
        return encoded, {stack: encoded.tokens}, inputs
    encoded_target = encode(
        tokenizer, target, max_length=model.info.max_length, truncate=truncate, as_target=True
    )
    shifted = shifted_target(encoded_target, decoder_start(model), Speller(tokenizer))
    stacks = {"encoder": encoded.tokens, "decoder": shifted.with_words()}
    return encoded, stacks, inputs | {"decoder_input_ids": torch.tensor([shifted.ids])}


def check_target(model: Model, target: str | None, generate: int, *, has_decoder: bool) -> None:
    """Raise InputError for a target without a decoder, or a decoder without input."""
    if target is not None and not has_decoder:
        raise InputError(f"{model.name} has no decoder side, so it takes no target.")
    if target is not None and generate:
        raise InputError("Give either target (what the decoder reads) or generate, not both.")
    if has_decoder and target is None and not generate:
        raise InputError(
            f"{model.name} is an encoder-decoder: say what its decoder reads with target='…', "
            "or let it write with generate=n."
        )


def decoder_start(model: Model) -> int:
    """Return the token id that starts a decoder."""
    for source in (getattr(model.module, "generation_config", None), model.module.config):
        for name in ("decoder_start_token_id", "bos_token_id"):
            token = getattr(source, name, None)
            if isinstance(token, int):
                return token
    raise InputError(
        f"{model.name} has no decoder_start_token_id or bos_token_id. Set one in its configuration."
    )


def _generated(
    model: Model, encoded: Encoded, n: int
) -> tuple[dict[str, Tokens], dict[str, Tensor]]:
    tokenizer = model.require_tokenizer()
    prompt = encoded.tensors(tokenizer)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    ids = let_write(model, prompt, n, pad_token_id=pad)
    written: list[int] = ids[0].tolist()
    if "decoder" in model.info.blocks:
        start = decoded_tokens(tokenizer, written[:1])
        tokens = decoded_tokens(tokenizer, written, start=start, is_generated=True)
        stacks = {"encoder": encoded.tokens, "decoder": tokens}
        return stacks, prompt | {"decoder_input_ids": ids}
    tokens = decoded_tokens(tokenizer, written, start=encoded.tokens, is_generated=True)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    kinds = prompt.get("token_type_ids")
    if kinds is not None:  # generated tokens have the last kind, as in `generate`
        more = kinds[:, -1:].expand(-1, ids.shape[1] - kinds.shape[1])
        inputs["token_type_ids"] = torch.cat([kinds, more], 1)
    return {"self": tokens}, inputs


def let_write(model: Model, inputs: Mapping[str, Tensor], n: int, **options: object) -> Tensor:
    """Generate up to n tokens, with further options of `generate`. Returns the ids: `1 token`."""
    model.require_objective("Generating")
    if not model.module.can_generate():
        raise InputError(f"{model.info.architecture} cannot generate text.")
    generate: Any = model.module.generate
    parts = [part for part in model.module.modules() if isinstance(part, PreTrainedModel)]
    if not any(takes(part, "token_type_ids") for part in parts):  # most tokenizers return them
        inputs = {name: value for name, value in inputs.items() if name != "token_type_ids"}
    with torch.inference_mode(), quiet(), model.tapped(inputs=inputs):
        generated = generate(**model.to_device(inputs), max_new_tokens=n, **options, **GREEDY)
    ids: Tensor = generated["sequences"][:1].cpu()
    return ids


def run_trace(
    model: Model,
    inputs: Mapping[str, object],
    stacks: dict[str, Tokens],
    options: TraceOptions,
    *,
    n_cut: int,
) -> Trace:
    """Run the model once on inputs of one row and collect a trace.

    `stacks` are the tokens by stack; positions of other stacks are numbered. `n_cut` tokens were
    cut from the text.
    """
    vectors, scores = options.vectors, options.scores
    if options.norms and not vectors:
        raise InputError("norms=True needs the values: leave vectors=True.")
    wiring = model.wiring_for(inputs)
    available = {site.layer for site in wiring.sites}
    layers = available if options.layers is None else set(options.layers)
    if not layers or not layers <= available:
        raise InputError(
            f"layers={options.layers!r}: {model.name} has attention in layers {min(available)} to "
            f"{max(available)}. Name at least one of them."
        )
    _check_top(wiring, options, layers)
    is_plain = all(site.is_dot_product for site in wiring.sites)
    keeps_scores = vectors and not is_plain if scores is None else scores
    by_rows = wiring.has_rows and all(edit.acts_by_rows for edit in model.edits)
    _check_size(wiring, stacks, layers, options, scores=keeps_scores, by_rows=by_rows)
    top, heads = options.top, options.heads
    collector = Collector(
        wiring, vectors=vectors, scores=scores, layers=layers, top=top, heads=heads
    )
    more: dict[str, object] = {"output_hidden_states": True} if vectors else {}
    n_tokens = max((len(tokens) for tokens in stacks.values()), default=0)
    n_last = None
    is_long = top is not None and n_tokens > LOGITS_KEPT and model.info.objective == "causal"
    if is_long and takes(model.module, "logits_to_keep"):  # 200 kB a token with 50,000 words
        n_last = more["logits_to_keep"] = LOGITS_KEPT
    # Short traces run every layer in the family's own function, for its own bits.
    only = frozenset(layers) if n_tokens > LONG and layers != available else None
    rows = TOP_ROWS if top is not None and by_rows else None
    read = once(collector)
    outputs = model.run(inputs, read, scores=collector.needs_scores, layers=only, rows=rows, **more)
    stacks = _numbered(model, collector, inputs) | stacks
    about = {
        "model": model.name,
        "load": _load_name(model),
        "family": model.info.family,
        "edits": [repr(edit) for edit in model.edits],
        "changed": describe_edits(model.edits),
        "n_cut": n_cut,
        "versions": versions("headscope", "transformers", "torch"),
    }
    blocks = collector.blocks(stacks)
    if options.norms:
        from headscope.model.tap.projection import add_lengths

        blocks = {name: add_lengths(model, block) for name, block in blocks.items()}
    hidden = hidden_states(outputs) if vectors else {}
    predictions = read_predictions(model, outputs, stacks, n_last)
    origin = Origin(model, dict(inputs), stacks, options, model.edits)
    trace = Trace(blocks, stacks, hidden, about, predictions, origin=origin)
    return trace.with_effects() if options.effects else trace


def _load_name(model: Model) -> str | None:
    """Return the alias or hub id that loads this model anywhere; None for modules and folders."""
    origin = model.info.source
    if not origin.startswith(("packaged", "hub")):
        return None
    aliases = {packaged.title: alias for alias, packaged in PACKAGED.items()}
    return aliases.get(model.name, model.name if origin.startswith("hub") else None)


LARGE = 4e9
"""Bytes from which on a trace says beforehand what it keeps."""


def _check_top(wiring: Wiring, options: TraceOptions, layers: set[int]) -> None:
    """Raise InputError for options that do not go with the strongest keys."""
    if options.top is None:
        if options.heads is not None:
            raise InputError("heads= needs keep='top'. Whole matrices are kept by layer: layers=.")
        return
    if options.norms or options.scores:
        raise InputError("keep='top' keeps no scores and no norms: they need whole rows.")
    n_heads = max(site.n_heads for site in wiring.sites if site.layer in layers)
    if options.heads is not None and not set(options.heads) <= set(range(n_heads)):
        raise InputError(f"heads={list(options.heads)}: heads go from 0 to {n_heads - 1}.")


def _check_size(
    wiring: Wiring,
    stacks: Mapping[str, Tokens],
    layers: set[int],
    options: TraceOptions,
    *,
    scores: bool,
    by_rows: bool,
) -> None:
    """Raise InputError for a trace that would not fit in memory."""
    if not stacks:
        return
    weights = largest = 0
    for site in wiring.sites:
        queries, keys = (
            stacks.get(stack_of(site.block, stacks)) for stack_of in (query_stack, key_stack)
        )
        if site.layer in layers and queries is not None and keys is not None:
            n_keys = len(keys) if options.top is None else 2 * options.top
            weights += site.n_heads * len(queries) * n_keys
            largest = max(largest, site.n_heads * len(queries) * len(keys))
    # Four bytes a weight; kept by layer and then stacked, so briefly twice.
    needed = weights * 4 * (2 if scores and options.top is None else 1) * 2
    if options.top is not None and not by_rows:  # the model computes whole layers
        needed += largest * 4 * 2
    free = _free_memory()
    n = max(len(tokens) for tokens in stacks.values())
    advice = (
        "Keep fewer layers (layers=[…]) or the strongest keys (keep='top'), or measure the text as "
        "a corpus, which keeps sums."
    )
    if needed > LARGE:
        n_heads = sum(site.n_heads for site in wiring.sites if site.layer in layers)
        size = f"{needed / 2 / 1e9:.1f} GB"
        warn(f"{n:,} tokens × {n_heads} heads: {size} of attention are kept. {advice}")
    if free is not None and needed > free:
        raise InputError(
            f"A trace of {n:,} tokens in {len(layers)} layers would take {needed / 2**30:.1f} GiB, "
            f"and {free / 2**30:.1f} GiB are free. Shorten the text. {advice}"
        )


def _free_memory() -> int | None:
    """Return the bytes usable without swapping, if the system reports them (Linux)."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(kilobytes[0]) * 1024 if kilobytes else None


def _numbered(
    model: Model, collector: Collector, inputs: Mapping[str, object]
) -> dict[str, Tokens]:
    """Make tokens for prepared inputs from their ids, or else numbers."""
    stacks: dict[str, Tokens] = {}
    for block in collector.seen:
        n_queries, n_keys = collector.lengths(block)
        ids = inputs.get(IDS_OF_STACK.get(block, ""))
        if block == "cross":
            if key_stack(block, collector.seen) == block:
                stacks[block] = Tokens.of([str(i) for i in range(n_keys)])
        elif model.tokenizer and isinstance(ids, Tensor) and ids.shape[1] == n_queries:
            stacks[block] = decoded_tokens(model.tokenizer, ids[0].tolist())
        else:
            stacks[block] = Tokens.of([str(i) for i in range(n_queries)])
    return stacks
