"""Hold headscope's reading of one family against transformers' own, in every respect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import headscope as hs
from headscope.attention import Attention
from headscope.errors import HeadscopeError, InputError, TapUnsupported
from headscope.model.model import Model
from headscope.model.tap.interface import eager_attention
from headscope.model.tap.rows import PlainMask, mask_and_softmax
from tests.families.reference import Maps, gap, left_early, reference_maps, tapped, text_inputs
from tests.families.shrink import NotBuilt, Tiny, tiny
from tests.families.testers import tiny_from_tests

SAME = 1e-4
"""Up to here two ways of computing a map agree."""


@dataclass(slots=True)
class Row:
    """What is true of one family."""

    family: str
    architecture: str
    verdict: str = "not built"
    """`exact`, `close`, `unverified` (no reference maps), `refused`, `unclear`, `crash`, `wrong`,
    `not built`."""
    route: str = ""
    blocks: str = ""
    vectors: str = ""
    scores: str = ""
    rows: str = ""
    edit: str = ""
    generate: str = ""
    cache: str = ""
    detail: str = ""
    trials: list[str] = field(default_factory=list)


def examine(family: str, architecture: str, checkout: Path | None = None) -> Row:
    """Build a tiny model of a family and compare; from its own test, if there is a checkout."""
    row = Row(family, architecture)
    try:
        small = tiny(family, architecture)
    except NotBuilt as error:
        row.detail = str(error)
        if checkout is None:
            return row
        try:
            small = tiny_from_tests(family, architecture, checkout)
        except NotBuilt as again:
            row.detail += f"; {again}"
            return row
        row.detail = ""
    try:
        examine_model(row, small)
    except TapUnsupported as error:
        row.verdict, row.detail = "refused", str(error).partition(": ")[2].rstrip(".")
    except Exception as error:  # whatever happens is the verdict
        row.verdict, row.detail = "crash", _line(error)
    return row


def examine_model(row: Row, small: Tiny) -> None:
    """Fill a row with what headscope makes of a model."""
    model = hs.load(small.module)
    try:
        info = model.info
    except TapUnsupported:
        model = hs.load(small.module, example=small.inputs)
    try:
        info = model.info
    except TapUnsupported as error:
        is_unclear = "could not run" in str(error) or "does not know" in str(error)
        row.verdict = "unclear" if is_unclear else "refused"
        row.detail = str(error).partition(": ")[2].rstrip(".")
        return
    row.route, row.blocks = info.route, ", ".join(info.blocks)
    main = model.wiring.of_block(model.wiring.main_block())
    row.vectors = "yes" if info.has_vectors and main[0].value_size else "some"
    row.vectors = row.vectors if info.has_vectors or main[0].value_size else "no"
    faults = _compare(row, model, small) + _check_vectors(model, small) + _check_masks(model, small)
    row.scores = _column(lambda: _scores(model, small))
    row.rows = _column(lambda: _rows(model, small))
    row.edit = _column(lambda: _edit(model, small))
    row.cache = _column(lambda: _cache(model, small))
    if "input_ids" in small.inputs and small.module.can_generate():
        row.generate = _column(lambda: _generate(model, small))
    if faults or "WRONG" in f"{row.scores}{row.rows}{row.edit}{row.cache}{row.generate}":
        row.verdict = "wrong"
    row.detail = "; ".join(faults) or row.detail
    if info.check.unread and not row.detail:
        row.detail = f"not read: softmaxes of {', '.join(info.check.unread)}"[:160]


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:160]


def _column(test: Callable[[], str]) -> str:
    """What a test says; where it cannot run, why."""
    try:
        return test()
    except (HeadscopeError, ValueError, TypeError, NotImplementedError) as error:
        return _line(error)


def _trials(small: Tiny) -> dict[str, Mapping[str, Tensor]]:
    trials: dict[str, Mapping[str, Tensor]] = {"example": small.inputs}
    if small.inputs.keys() <= {"input_ids", "attention_mask", "decoder_input_ids"}:
        trials["long"] = text_inputs(small.module, 23)
        trials["right"] = text_inputs(small.module, 14, pad="right")
        trials["left"] = text_inputs(small.module, 14, pad="left")
    return trials


def _compare(row: Row, model: Model, small: Tiny) -> list[str]:
    """Sets the verdict; returns what is wrong."""
    check = model.info.check
    worst, faults = max(check.largest_difference, check.output_difference), []
    options = {} if model.wiring.may_cache else {"use_cache": False}
    for name, inputs in _trials(small).items():
        try:
            theirs, reference = reference_maps(small.module, inputs, **options)
        except Exception:  # the model itself does not take this
            continue
        try:
            ours, output = tapped(model, inputs)
        except TapUnsupported as error:
            faults.append(f"{name}: {_line(error)}")
            continue
        row.trials.append(name)
        if not _are_equal(left_early(model, inputs), ours):
            faults.append(f"{name}: leaving after the last attention changes it")
        # A tower may be asked by itself, or left unread (the self-check says so).
        if theirs and (ours.keys() ^ theirs.keys()) - {"text", "vision", "audio"}:
            faults.append(f"{name}: blocks {sorted(ours)} instead of {sorted(theirs)}")
        for block in ours.keys() & theirs.keys():
            if len(ours[block]) != len(theirs[block]):
                faults.append(f"{name}: {len(ours[block])} maps of {block}")
            pairs = zip(ours[block], theirs[block], strict=False)
            worst = max(worst, *(gap(a, b) for a, b in pairs))
        worst = max(worst, gap(output, reference))
    row.verdict = "exact" if worst == 0 else "close" if worst <= SAME else "wrong"
    if row.verdict == "wrong":
        faults.append(f"differs by {worst:.1e}")
    if check.against == "nothing" and row.verdict != "wrong":
        row.verdict = "unverified"
    return faults


def _are_equal(ours: Maps, theirs: Maps) -> bool:
    """Are these the same maps, bit for bit?"""
    return ours.keys() == theirs.keys() and all(
        len(ours[block]) == len(theirs[block])
        and all(
            torch.equal(a.nan_to_num(9e9), b.nan_to_num(9e9))
            for a, b in zip(ours[block], theirs[block], strict=True)
        )
        for block in ours
    )


def _check_vectors(model: Model, small: Tiny) -> list[str]:
    """Weights times values are the outputs, wherever both are handed over."""
    faults: list[str] = []

    def read(a: Attention) -> None:
        if a.values is None or a.outputs is None:
            return
        values = a.values.repeat_interleave(a.n_heads // a.values.shape[1], 1)
        made = a.weights.double() @ values.double()
        difference = float((made - a.outputs).abs().nan_to_num().max())
        if difference > 1e-3 * max(1.0, float(made.abs().nan_to_num().max())):
            faults.append(f"outputs of {a.block} {a.layer} are off by {difference:.1e}")

    model.run(small.inputs, read)
    return faults


def _check_masks(model: Model, small: Tiny) -> list[str]:
    """Padded keys are named, and no real query attends to them."""
    inputs = _trials(small).get("right")
    if inputs is None or not _runs(small, inputs):
        return []
    faults: list[str] = []
    main, mask = model.wiring.main_block(), inputs["attention_mask"].bool()

    def read(a: Attention) -> None:
        if a.block != main or a.weights.shape[-1] != mask.shape[1]:
            return
        if a.key_mask is None or not torch.equal(a.key_mask, mask):
            faults.append(f"the padding of {a.block} {a.layer} is not named")
            return
        is_padding = ~mask[:, None, None] & mask[:, None, :, None]
        paid = a.weights.masked_fill(~is_padding, 0).nan_to_num()
        if float(paid.abs().max()) > 0:
            faults.append(f"{a.block} {a.layer} attends to padding")

    model.run(inputs, read)
    return faults


def _runs(small: Tiny, inputs: Mapping[str, Any]) -> bool:
    try:
        with torch.no_grad():
            small.module(**inputs)
    except Exception:  # whatever a family objects to
        return False
    return True


def _first_row(inputs: Mapping[str, Tensor]) -> dict[str, Any]:
    if "grid_thw" in inputs:  # one picture, as a list of patches
        return dict(inputs)
    return {name: value[:1] for name, value in inputs.items()}


def _scores(model: Model, small: Tiny) -> str:
    """The softmax of `trace.scores`, with the sink, is the attention; also under padding."""
    kinds = set()
    trials = _trials(small)
    for name in ("long", "right") if "long" in trials else ("example",):
        inputs = trials[name]
        row = {k: v[-1:] for k, v in inputs.items()} if name == "right" else _first_row(inputs)
        if not _runs(small, row):
            continue
        trace = model.trace(row)
        for block in trace.blocks.values():
            try:
                scores = torch.tensor(block.scores.values)
            except InputError:
                kinds.add("no")
                continue
            kinds.add("kept" if "scores" in block.data else "q·k")
            if block.sink_logits is not None:
                sink_logits = torch.tensor(block.sink_logits.values)[..., None]
                scores = torch.cat([scores, sink_logits], -1)
            weights = torch.tensor(block.attention.values)
            made = scores.softmax(-1)[..., : weights.shape[-1]]
            nowhere = (scores == -torch.inf).all(-1)  # a padded query may see nothing
            off = (made - weights).abs().nan_to_num()[~nowhere]
            if off.numel() and float(off.max()) > 1e-3:
                return f"WRONG by {float(off.max()):.1e}"
    return ", ".join(sorted(kinds))


ROWS = 5
"""Rows of a block: neither divides the lengths of the trials nor is the self-check's."""


def _rows(model: Model, small: Tiny) -> str:
    """Blocks of rows are the whole layers, to rounding; also under padding."""
    wiring = model.wiring
    if not wiring.has_rows:
        return "no"
    for name, inputs in _trials(small).items():
        if not _runs(small, inputs):
            continue
        whole, _ = tapped(model, inputs)
        for computes_softmax in (False, True):
            worst = rows_difference(model, inputs, whole, ROWS, computes_softmax=computes_softmax)
            if worst > SAME:
                return f"WRONG by {worst:.1e} ({name})"
    return "plain" if all(site.is_plain for site in wiring.sites) else "yes"


def rows_difference(
    model: Model, inputs: Mapping[str, Any], whole: Maps, rows: int, *, computes_softmax: bool
) -> float:
    """The largest difference of blocks of rows from whole layers, in rows that are not padding."""
    worst = 0.0
    numbers = {b: [site.layer for site in model.wiring.of_block(b)] for b in model.wiring.blocks}

    def read(a: Attention) -> None:
        nonlocal worst
        assert a.rows is not None
        if a.are_scores:
            mask_and_softmax(a.weights, a.rows, a.scale, PlainMask(a.is_causal, a.n_visible))
        expected = whole[a.block][numbers[a.block].index(a.layer)]
        n_keys = a.weights.shape[-1]
        expected = expected[:, :, a.rows]
        real = torch.ones(a.weights.shape[:3], dtype=torch.bool)
        if a.query_mask is not None:
            real &= a.query_mask[:, None].expand_as(real)
        off = (a.weights - expected[..., :n_keys]).abs().nan_to_num()
        worst = max(worst, float((off * real[..., None]).max()))
        worst = max(worst, float((expected[..., n_keys:].abs() * real[..., None]).sum()))

    model.read(inputs, read, rows=rows, computes_softmax=computes_softmax)
    return worst


def _edit(model: Model, small: Tiny) -> str:
    """Ablating a head zeroes it there, changes the output and is undone."""
    block = model.wiring.main_block()
    site = model.wiring.of_block(block)[-1]
    before, output = tapped(model, small.inputs)
    with model.edit(hs.ablate(site.layer, site.n_heads - 1)):
        during, changed = tapped(model, small.inputs)
    _, after = tapped(model, small.inputs)
    if gap(output, after) != 0:
        return "WRONG: not undone"
    if float(during[block][-1][:, site.n_heads - 1].abs().max()) != 0:
        return "WRONG: not ablated"
    others = [gap(a, b) == 0 for a, b in zip(during[block][:-1], before[block][:-1], strict=True)]
    if not all(others):
        return "WRONG: earlier layers changed"
    # The module's own output was seen to change by the self-check.
    return "yes" if not torch.equal(output, changed) else "yes, but not the main output"


def _cache(model: Model, small: Tiny) -> str:
    """Does attention depend on whether the model keeps a cache?"""
    try:
        without, _ = tapped(model, small.inputs, use_cache=False)
    except TypeError:
        return ""
    default, _ = tapped(model, small.inputs)
    worst = max(
        gap(a, b) for block in default for a, b in zip(default[block], without[block], strict=True)
    )
    if worst > SAME:
        return f"WRONG by {worst:.1e}"
    return "same" if model.wiring.may_cache else "read without"


def _generate(model: Model, small: Tiny) -> str:
    """Attention step by step with a cache is that of one pass over the whole; where it is not,
    the model's reference attention is not either, and the tap reads what the model does.
    """
    given = {k: v for k, v in _first_row(small.inputs).items() if k != "decoder_input_ids"}
    last: dict[tuple[str, int], Tensor] = {}

    def read(a: Attention) -> None:
        last[a.block, a.layer] = a.weights[:, :, -1].clone()

    options: dict[str, Any] = {
        "max_new_tokens": 4,
        "min_new_tokens": 4,
        "do_sample": False,
        "num_beams": 1,
    }
    generate: Any = small.module.generate
    try:
        with torch.no_grad():
            ids = generate(**given, **options)[:, :-1]
        if small.module.config.is_encoder_decoder:
            whole = given | {"decoder_input_ids": ids}
        else:
            whole = given | {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        with torch.no_grad():
            small.module(**whole)
    except Exception as error:  # without the tap
        return f"the model itself does not generate from these inputs ({_line(error)})"
    with torch.no_grad(), model.tapped(read, inputs=given):
        generate(**given, **options)
    steps = dict(last)
    last.clear()
    model.run(whole, read)
    worst = 0.0
    for place, step in steps.items():
        if place[0] in ("encoder", "vision", "audio"):
            continue
        n = min(step.shape[-1], last[place].shape[-1])  # a sliding cache keeps the last keys
        worst = max(worst, gap(step[..., -n:], last[place][..., -n:]))
    if worst <= SAME:
        return "same"
    with torch.no_grad(), eager_attention(small.module):
        outputs = generate(**given, **options, output_attentions=True, return_dict_in_generate=True)
    returned = getattr(outputs, "decoder_attentions", None) or outputs.attentions
    block = "decoder" if small.module.config.is_encoder_decoder else "self"
    layers = sorted(layer for name, layer in steps if name == block)
    own = [m[:, :, -1] for m in returned[-1]]
    off = max(gap(steps[block, n], m) for n, m in zip(layers, own, strict=True))
    return "the model's own steps differ" if off <= SAME else f"WRONG by {off:.1e}"
