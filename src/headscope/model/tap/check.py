"""Find a model's attention and prove that the tap reads it correctly.

The model runs on a small random input with `output_attentions=True`, and again with every attention
computation recorded. Each reference map is matched to the recorded call with equal values. This
gives the call its block and layer without using names. The end-to-end check then proves that the
tap reads the recorded weights and that ablating a layer changes its output.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscope.attention import Attention, BlockName
from headscope.errors import TapUnsupported
from headscope.model.edits import Ablate
from headscope.model.private_api import OFFLOADING_HOOK, SUPPORTS_SDPA
from headscope.model.tap import interface
from headscope.model.tap.dispatch import AllRead, Attachment, Tap, suspended
from headscope.model.tap.example import examples, lengthened
from headscope.model.tap.forward_pass import media_of, uncached
from headscope.model.tap.interrupts import held, interrupts_held
from headscope.model.tap.recording import (
    Against,
    Match,
    Recording,
    Run,
    equals,
    is_causal,
    is_close,
    is_tower,
    match_maps,
    proved_site,
    record_fallback,
    record_interface,
)
from headscope.model.tap.reference import (
    Maps,
    ReferenceMaps,
    main_output,
    read_reference,
    read_tower_reference,
    tensors_in,
    tower_block,
)
from headscope.model.tap.rows import EagerCall, PlainMask, is_plain_softmax, mask_and_softmax
from headscope.model.tap.sites import Route, Site, Stops, Wiring


def reason_of(maps: Maps, again: Maps, recordings: Sequence[Recording], n_rows: int) -> str:
    """Return the reason why a model's attention cannot be read. `again` are the reference maps of a
    second run on the same inputs, which have `n_rows` rows.
    """
    complete = [recording for recording in recordings if recording.is_complete]
    own_maps = [m for block, some in maps.items() if block != "cross" for m in some]
    pairs = _pairs(maps, again)
    if any(a.shape != b.shape or not _are_equal(a, b) for a, b in pairs):
        return (
            "its attention differs between two runs on the same input (it draws random numbers), "
            "so values cannot be compared"
        )
    reference = [m for m in own_maps if m.ndim == 4]
    is_short = any(m.shape[-1] < m.shape[-2] for m in reference)  # only nearby keys
    is_even = len({m.shape[-2] for m in maps.get("encoder", own_maps)}) == 1  # nothing is pooled
    if not complete and reference:
        shapes = ", ".join(dict.fromkeys(str(tuple(m.shape)) for m in reference))
        manner = (
            "in windows, so a head has no single matrix to read"
            if is_short
            else "without a softmax that the tap sees (in a fused function of torch, or otherwise)"
        )
        return f"its attention (reference shapes {shapes} for {n_rows} rows) is computed {manner}"
    if not complete:
        return "it has no softmax attention (as in state-space, Fourier and convolutional models)"
    seen = ", ".join(dict.fromkeys(str(tuple(x.weights.shape)) for x in complete))
    shapes = ", ".join(dict.fromkeys(str(tuple(m.shape)) for m in own_maps)) or seen
    if own_maps and all(m.ndim == 4 and len(m) < n_rows and n_rows % len(m) == 0 for m in own_maps):
        return (
            "several rows of its input form one sequence, as codebooks and packed images do "
            f"({n_rows} rows, attention of shapes {shapes}), so tokens cannot be assigned to rows"
        )
    if (is_short and is_even) or any(m.ndim != 4 or len(m) != n_rows for m in own_maps):
        return (
            f"its attention is laid out in windows or blocks (shapes {shapes} for {n_rows} rows), "
            "not as queries by keys, so a head has no single matrix to read"
        )
    has_shapes = len({m.shape[-2:] for m in own_maps}) > 1
    if has_shapes or any(m.shape[-1] != m.shape[-2] for m in own_maps):
        return (
            "its layers attend over pooled sequences, not over a single sequence of tokens (shapes "
            f"{shapes})"
        )
    if not own_maps:
        return (
            "it returns no attention to compare with, and its softmaxes are not queries by keys "
            f"of one sequence (shapes {seen}, for {n_rows} rows)"
        )
    return (
        f"its {len(own_maps)} reference maps differ from the weights it multiplies its values with "
        f"(reference shapes {shapes}; softmaxes of shapes {seen})"
    )


def _pairs(maps: Maps, again: Maps) -> list[tuple[Tensor, Tensor]]:
    return [pair for block in maps for pair in zip(maps[block], again.get(block, ()), strict=False)]


def _are_equal(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a.nan_to_num(), b.nan_to_num())


def _max_difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().nan_to_num().max())


def refuse(root: PreTrainedModel, reason: str) -> NoReturn:
    """Raise TapUnsupported with the reason."""
    raise TapUnsupported(f"The tap cannot read {root.config.model_type!r}: {reason}.")


PROOF_ROWS = 4
"""Rows of a block in the self-check, whose inputs have 11 tokens."""
ModuleOutputs = dict[tuple[str, int], list[Tensor]]
"""Module and call → tensors that it returned."""


@dataclass(frozen=True, eq=False)
class EndToEndCheck:
    """A model under its tap, on inputs whose attention was recorded."""

    root: PreTrainedModel
    inputs: Mapping[str, object]
    wiring: Wiring
    recordings: Mapping[Site, Recording]

    def prove(self) -> None:
        """Read and edit the model through the tap; raise TapUnsupported if either fails."""
        read: Counter[Site] = Counter()

        def compare(attention: Attention) -> None:
            site = self._site(attention)
            read[site] += 1
            layer = f"layer {site.layer} ({site.block})"
            if read[site] > 1:
                self._refuse(
                    f"{layer} was read twice in one forward pass. If a hook of yours runs the "
                    "model again inside its own forward pass, remove the hook, or let it run a "
                    "copy of the model"
                )
            difference = _max_difference(attention.weights, self.recordings[site].weights)
            if not is_close(difference):
                self._refuse(
                    f"the weights read in {layer} differ by {difference:.2g} from the recorded ones"
                )

        tap = Tap(self.root, self.wiring)
        # The last site of each kind: layers of one class run the same code.
        kinds = {
            (site.block, type(self.root.get_submodule(site.module)), site.computation): site
            for site in self.wiring.sites
        }
        tried = list(kinds.values())
        with tap.attached(Attachment(reader=compare)), self._kept_outputs(tried) as before:
            output = main_output(self.root(**self.inputs))
        for site in [site for site in self.recordings if not read[site]]:
            self._refuse(f"layer {site.layer} ({site.block}) was not read in a forward pass")
        for site in tried:
            edits = tuple(
                Ablate(layer=site.layer, head=head, block=site.block)
                for head in range(site.n_heads)
            )
            with tap.attached(Attachment(edits=edits)), self._kept_outputs([site]) as after:
                edited = main_output(self.root(**self.inputs))
            key = site.module, site.occurrence
            weights, vectors = self.recordings[site].weights, self.recordings[site].output
            pairs = [
                (a, b)
                for a, b in zip(before.get(key, ()), after.get(key, ()), strict=True)
                if a.numel() != weights.numel() or a.shape[-2:] != weights.shape[-2:]
            ] or [(output, edited)]
            is_silent = (vectors is not None and not vectors.nan_to_num().any()) or not any(
                a.nan_to_num().any() for a, _ in pairs
            )
            if not is_silent and all(_are_equal(a, b) for a, b in pairs):
                self._refuse(
                    f"ablating all heads of layer {site.layer} ({site.block}) does not change the "
                    f"output of {site.module}. Either that module ignores its heads (an output "
                    "projection of zeros?), or the weights seen there are not those the model uses"
                )

    def with_rows(self, wiring: Wiring) -> Wiring:
        """Return the wiring with what blocks of rows were proved to give: each layer a plain
        softmax or not; then the model by rows, through the family's function and with q·k turned
        into weights here.
        """
        plain: dict[tuple[str, int], bool] = {}
        calls: Counter[str] = Counter()
        names = {id(self.root.get_submodule(name)): name for name in wiring.modules}

        def compare(
            function: interface.EagerFunction,
            module: nn.Module,
            query: Tensor,
            key: Tensor,
            value: Tensor,
            *args: object,
            **kwargs: object,
        ) -> tuple[Tensor, Tensor | None]:
            call = EagerCall(function, module, query, key, value, args, kwargs)
            name = names[id(module)]
            site = wiring.at(name, calls[name]).get(0)
            if site is not None:
                plain[name, calls[name]] = is_plain_softmax(call, site)
            calls[name] += 1
            return call.run()

        modules = [self.root.get_submodule(name) for name in wiring.modules]
        with interface.intercepted(modules, compare):
            self.root(**self.inputs)
        found = replace(
            wiring,
            sites=tuple(
                replace(s, is_plain=plain.get((s.module, s.occurrence), False))
                for s in wiring.sites
            ),
        )
        proved = found if self._rows_agree(found, computes_softmax=True) else wiring
        return replace(proved, has_rows=self._rows_agree(proved, computes_softmax=False))

    def _rows_agree(self, wiring: Wiring, *, computes_softmax: bool) -> bool:
        """True if blocks of a few rows, side by side, are the recorded attention."""
        is_close_everywhere = True
        read: Counter[Site] = Counter()

        def compare(attention: Attention) -> None:
            nonlocal is_close_everywhere
            rows, weights, site = attention.rows, attention.weights, self._site(attention)
            assert rows is not None
            if attention.are_scores:
                plain = PlainMask(attention.is_causal, attention.n_visible)
                mask_and_softmax(weights, rows, attention.scale, plain)
            recorded, n_keys = self.recordings[site].weights[:, :, rows], weights.shape[-1]
            difference = _max_difference(weights, recorded[..., :n_keys])
            is_whole = not recorded[..., n_keys:].any()
            is_close_everywhere &= is_close(difference) and is_whole
            read[site] += rows.stop - rows.start

        attachment = Attachment(compare, returns_weights=False, rows=PROOF_ROWS)
        attachment = replace(attachment, computes_softmax=computes_softmax)
        try:
            with Tap(self.root, wiring).attached(attachment):
                self.root(**self.inputs)
        except Exception:  # the family uses its mask as a tensor, or needs the weights
            return False
        is_complete = all(read[s] == len(r.weights[0, 0]) for s, r in self.recordings.items())
        return is_close_everywhere and is_complete

    def find_stop(self) -> Stops | None:
        """Return a way to end the pass after the last layer with bit-equal attention, or None.
        Preferably without a cache, which changes the layout of keys in some families.
        """
        if self._stops({**self.inputs, **uncached(self.root)}):
            return "uncached"
        return "as is" if self._stops(self.inputs) else None

    def _stops(self, inputs: Mapping[str, object]) -> bool:
        """True if every layer's attention is bit-equal with the pass ended after the last one."""
        exact: Counter[Site] = Counter()

        def compare(attention: Attention) -> None:
            site = self._site(attention)
            exact[site] += _are_equal(attention.weights, self.recordings[site].weights)

        returns = not getattr(self.root, SUPPORTS_SDPA, False)
        attachment = Attachment(reader=compare, returns_weights=returns, stops=True)
        try:
            with Tap(self.root, self.wiring).attached(attachment):
                self.root(**inputs)
        except AllRead:
            return len(exact) == len(self.recordings) and set(exact.values()) == {1}
        except Exception:  # the model handles AllRead itself: then it runs to its end
            return False
        return False

    def _refuse(self, reason: str) -> NoReturn:
        refuse(self.root, reason)

    def _site(self, attention: Attention) -> Site:
        return self.wiring.find(attention.block, attention.layer, None)

    @contextmanager
    @held
    def _kept_outputs(self, sites: list[Site]) -> Iterator[ModuleOutputs]:
        """Within the block, keep the outputs of the modules of these sites."""
        outputs: ModuleOutputs = {}
        calls: Counter[str] = Counter()
        with ExitStack() as stack:
            for name in {site.module for site in sites}:

                def keep(_: nn.Module, _args: object, result: object, name: str = name) -> None:
                    tensors = [x.clone() for x in tensors_in(result) if x.is_floating_point()]
                    outputs[name, calls[name]] = tensors
                    calls[name] += 1

                hook = self.root.get_submodule(name).register_forward_hook(keep)
                stack.callback(hook.remove)
            yield outputs


@dataclass(frozen=True, slots=True)
class Check:
    """Outcome of the self-check. `str()` summarizes it in a line."""

    against: Against
    """Content of the reference output: weights, scores before the softmax, averages over heads, or
    nothing. Scores are compared after a softmax. Without attention only outputs were compared."""
    n_maps: int
    largest_difference: float
    """Maximum over the tap's weights and the reference maps."""
    output_difference: float
    """Maximum over the model's outputs with and without the tap."""
    unread: tuple[str, ...] = ()
    """Modules with a softmax that no reference map contains, and that is not read."""
    depends_on_cache: bool = False
    """True if the attention changes with a cache; the tap then reads without one."""
    is_cached: bool = False
    """True if the check was loaded from an earlier process with the same files and libraries."""

    @property
    def is_exact(self) -> bool:
        """True if attention and output are bit-equal to the reference."""
        return self.against == "weights" and self.largest_difference == self.output_difference == 0

    def __str__(self) -> str:
        when = " (cached)" if self.is_cached else ""
        if self.is_exact:
            return f"{self.n_maps} maps, exactly the reference attention and output{when}"
        reference = {
            "weights": "the reference attention",
            "scores": "the softmax of the reference scores",
            "averages": "on average over heads the reference attention",
            "nothing": "no reference attention to compare with",
        }[self.against]
        compared = "" if self.against == "nothing" else f" to {self.largest_difference:.1e}"
        output = f"output differs by {self.output_difference:.1e}"
        return f"{self.n_maps} maps, {reference}{compared}; {output}{when}"


def wire(
    root: PreTrainedModel, example: Mapping[str, object] | None = None
) -> tuple[Wiring, Check]:
    """Find every attention computation of a model and check the tap against the model's own. Edits
    in effect are suspended. `example` has inputs if `examples` cannot make them.
    """
    if getattr(root.config, "attention_type", None) == "block_sparse":
        # Its attention is dense on short inputs, like the example, and sparse on long ones.
        refuse(root, "its attention is block-sparse. Load it with attention_type='original_full'")
    modules = interface.modules_of(root)
    is_offloaded = any(hasattr(module, OFFLOADING_HOOK) for module in modules)
    if not is_offloaded and any(weights.is_meta for weights in root.parameters()):
        refuse(root, "its weights are on the meta device, which holds no numbers: load them first")
    with (
        interrupts_held(),
        interface.locked_modules(modules),
        suspended(),
        torch.inference_mode(),
        interface.eager_attention(root),
    ):
        inputs, reference = _reference_inputs(root, example)
        depends_on_cache = False
        if "use_cache" not in inputs and uncached(root):
            without = read_reference(root, inputs | uncached(root))
            depends_on_cache = any(
                a.shape != b.shape or not is_close(_max_difference(a, b))
                for a, b in _pairs(reference.maps, without.maps)
            )
        if depends_on_cache:
            inputs |= uncached(root)
            reference = read_reference(root, inputs)
        found = _find(root, inputs, reference)
        grid = inputs.get("grid_thw")  # images may be one list of patches
        by_row = [grid] if isinstance(grid, Tensor) else inputs.values()
        n_rows = next(len(x) for x in by_row if isinstance(x, Tensor) and x.ndim)
        matches = _whole_stacks(found, n_rows)
        if not matches:
            again = read_reference(root, inputs).maps
            refuse(root, reason_of(reference.maps, again, found.recordings, n_rows))
        size = float(reference.output.abs().nan_to_num().max())
        if not is_close(found.difference, size):
            refuse(
                root,
                f"the model's output changes by {found.difference:.2g} under the tap, so the tap "
                "would not read the model's own computation",
            )
        sites, copies = _sites(matches)
        weights = [(match.block, match.recording.weights) for match in matches]
        not_causal = {block for block, x in weights if block == "cross" or not is_causal(x)}
        causal_blocks = frozenset(block for block, _ in weights) - not_causal
        media, may_cache = media_of(inputs), not depends_on_cache
        wiring = Wiring(found.route, sites, causal_blocks, media, copies, may_cache)
        recordings = {s: m.recording for s, m in zip(sites, matches, strict=True)}
        end_to_end = EndToEndCheck(root, inputs, wiring, recordings)
        # First, so that the later checks also show that an early stop leaves no traces.
        wiring = replace(wiring, stops=end_to_end.find_stop())
        end_to_end.prove()
        if found.route == "interface" and not media:
            wiring = end_to_end.with_rows(wiring)
    return wiring, Check(
        against=max(matches, key=lambda match: match.against != "weights").against,
        n_maps=len(matches),
        largest_difference=max(match.difference for match in matches),
        output_difference=found.difference,
        unread=tuple(dict.fromkeys(other.module for other in found.left)),
        depends_on_cache=depends_on_cache,
    )


def _reference_inputs(
    root: PreTrainedModel, example: Mapping[str, object] | None
) -> tuple[dict[str, object], ReferenceMaps]:
    if example is not None:
        longer = lengthened(example)
        return longer, read_reference(root, longer)
    refusals: list[TapUnsupported] = []
    for inputs in examples(root):
        try:
            return dict(inputs), read_reference(root, inputs)
        except TapUnsupported as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]  # it names the missing input best
    reason = f"headscope does not know what it takes (its main input is {root.main_input_name!r})"
    refuse(root, f"{reason}. Pass inputs: headscope.load(model, example={{…}})")


@dataclass(slots=True)
class _Found:
    route: Route
    recordings: list[Recording]
    matches: list[Match]
    """Empty if any reference map is not among the recordings."""
    left: list[Recording]
    """Attention that no reference map contains."""
    difference: float
    """Maximum difference between the outputs of the recorded run and the reference run."""


def _find(root: PreTrainedModel, inputs: Mapping[str, object], reference: ReferenceMaps) -> _Found:
    """Search the reference maps on the interface route; if any is missing, watch all modules."""
    run = record_interface(root, inputs)
    found = _among("interface", run, root, reference)
    if found.matches and run.n_softmaxes <= len(run.recordings):
        return found
    watched = record_fallback(root, inputs)
    if not found.matches:
        return _among("fallback", watched, root, reference)
    matched = [match.recording.weights for match in found.matches]
    hidden = [r for r in watched.recordings if not any(equals(r.weights, w) for w in matched)]
    found.left = [recording for recording in hidden if recording.is_complete]
    return found


def _among(route: Route, run: Run, root: PreTrainedModel, reference: ReferenceMaps) -> _Found:
    matched = match_maps(reference.maps, run.recordings)
    matches: list[Match] = []
    left: list[Recording] = []
    if matched is not None:
        towers, left = _towers(root, reference, *matched)
        matches = _renamed(root, matched[0] + towers)
    if not reference.maps and not matches and route == "fallback":
        complete = [x for x in run.recordings if x.is_complete and x.weights.ndim == 4]
        if any(recording.occurrence or recording.computation for recording in complete):
            complete = []  # windows, or several images: their order is unknown
        matches = [Match(_named_block(x, "self"), x, 0.0, "nothing") for x in complete]
        left = []
    output = main_output(run.outputs)
    is_alike = output.shape == reference.output.shape  # a random model may write more
    difference = _max_difference(output, reference.output) if is_alike else math.inf
    return _Found(route, run.recordings, matches, [x for x in left if x.is_complete], difference)


def _towers(
    root: PreTrainedModel, reference: ReferenceMaps, matches: Sequence[Match], left: list[Recording]
) -> tuple[list[Match], list[Recording]]:
    """Match leftover recordings to maps of sub-models; return matches and the remaining rest."""
    taken: set[BlockName] = {match.block for match in matches}
    known_modules = [match.recording.module for match in matches]
    matched_towers: list[str] = []
    towers: list[Match] = []
    for name, call in sorted(reference.calls.items()):  # an outer model before its sub-models
        inside = [recording for recording in left if _is_within(recording.module, name)]
        if not inside or any(_is_within(m, name) for m in (*known_modules, *matched_towers)):
            continue
        tower = root.get_submodule(name)
        assert isinstance(tower, PreTrainedModel)
        block = tower_block(name, tower)
        if block is None or block in taken:
            continue
        maps = read_tower_reference(tower, call)
        matched = match_maps({block: maps}, inside) if maps else None
        if matched is None:
            continue
        matched_towers.append(name)
        taken.add(block)
        towers += matched[0]
        used = {x.place for match in matched[0] for x in (match.recording, *match.copies)}
        left = [x for x in left if x.place not in used]
    return towers, left


def _is_within(module: str, name: str) -> bool:
    return f"{module}.".startswith(f"{name}.")


def _renamed(root: PreTrainedModel, matches: list[Match]) -> list[Match]:
    """Name the blocks: a single stack is `self`, and so is the text of a generating model. Layers
    that attend to another stack are `cross`, even if returned among the others (Mllama).
    """
    tower = _returned_tower(root, matches)
    if tower is not None:
        matches = [replace(m, block=tower) if m.block == "self" else m for m in matches]
    crossing = [
        m for m in matches if m.block == "self" and _named_block(m.recording, m.block) == "cross"
    ]
    blocks = {m.block for m in matches}
    if "cross" not in blocks and len(crossing) < sum(m.block == "self" for m in matches):
        for m in crossing:
            m.block = "cross"
    is_alone = len(blocks) == 1 and all(map(is_tower, blocks))
    if is_alone or (not blocks & {"self", "decoder"} and root.can_generate()):
        return [replace(m, block="self") if is_alone or m.block == "text" else m for m in matches]
    return matches


def _returned_tower(root: PreTrainedModel, matches: Sequence[Match]) -> BlockName | None:
    """Return the sub-model whose maps the model returns as its own (BLIP's image), or None."""
    blocks = {match.block for match in matches}
    own_modules = [match.recording.module for match in matches if match.block == "self"]
    for name, part in root.named_modules() if {"self", "text"} <= blocks else ():
        contains_all = all(_is_within(module, name) for module in own_modules)
        if name and isinstance(part, PreTrainedModel) and contains_all:
            tower = tower_block(name, part)
            if tower not in (None, *blocks):
                return tower
    return None


def _whole_stacks(found: _Found, n_rows: int) -> list[Match]:
    """Return the matches if every map is queries by keys, else nothing; drop towers in windows."""
    matches = list(found.matches)
    for block in dict.fromkeys(match.block for match in matches):
        group = [match for match in matches if match.block == block]
        shapes = {match.recording.weights.shape for match in group}
        # All maps of a block have the same queries and keys: no windows, no pooling.
        if len({(shape[0], *shape[2:]) for shape in shapes}) == 1 and all(
            len(shape) == 4
            and (is_tower(block) or shape[0] == n_rows)
            and (block == "cross" or shape[2] == shape[3])
            for shape in shapes
        ):
            continue
        if not is_tower(block):
            return []
        matches = [match for match in matches if match.block != block]
        found.left += [match.recording for match in group]
    return matches


def _sites(matches: Sequence[Match]) -> tuple[tuple[Site, ...], tuple[Site, ...]]:
    """Return a site for each match, in order, and the sites of the copies."""
    layers: dict[int, int] = {}
    for block in dict.fromkeys(match.block for match in matches):
        group = [index for index, match in enumerate(matches) if match.block == block]
        # Numbers in module names, because hybrids skip layers; else the order of calls.
        found = [re.search(r"\.(\d+)\.", f".{matches[i].recording.module}.") for i in group]
        numbers = [int(number[1]) if number else -1 for number in found]
        if numbers[0] < 0 or any(a >= b for a, b in itertools.pairwise(numbers)):
            numbers = list(range(len(group)))
        layers |= dict(zip(group, numbers, strict=True))
    sites = tuple(proved_site(match, layers[index]) for index, match in enumerate(matches))
    copies = tuple(
        replace(site, occurrence=copy.occurrence, computation=copy.computation, is_copy=True)
        for site, match in zip(sites, matches, strict=True)
        for copy in match.copies
    )
    return sites, copies


def _named_block(recording: Recording, block: BlockName) -> BlockName:
    is_cross = re.search(r"cross|enc_?dec|encoder_attn", recording.module.lower())
    return "cross" if is_cross else block
