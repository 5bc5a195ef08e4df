"""Find a model's attention and prove that the tap reads it right.

Before a model is trusted, it runs on a small random input as transformers runs it, asked for
its official `output_attentions`, and again with every attention computation recorded. Each
official map is then looked up among the recordings *by its values*. That gives each
computation its place (block, layer) without a word of the model's naming, and it is the proof
that what we read is what the model computes. A last run shows that edits act.

The last part of the self-check: the tap itself reads and edits, and both are held to account.

What it reads must be what was recorded, layer by layer. And silencing a layer must change what
its attention module hands on: else the weights that are read are not those the model uses.

Why a model's attention cannot be read, said with what was seen.
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
from headscope.model.tap.dispatch import AllRead, Attachment, suspended
from headscope.model.tap.example import examples, lengthened, media_of
from headscope.model.tap.interface import eager_attention, locked_modules, modules_of
from headscope.model.tap.recording import (
    TOLERANCE,
    Against,
    Match,
    Recording,
    Run,
    equals,
    is_causal,
    is_tower,
    match,
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
    uncached,
)
from headscope.model.tap.sites import Route, Site, Stops, Wiring
from headscope.model.tap.tap import Tap


def reason_of(maps: Maps, again: Maps, recordings: Sequence[Recording], n_rows: int) -> str:
    """Why a model's attention could not be wired.

    Args:
        maps: the official ones.
        again: those of the same inputs, asked for once more.
        recordings: the attention that was seen.
        n_rows: how many rows the inputs are.
    """
    complete = [one for one in recordings if one.is_complete]
    own = [m for block, some in maps.items() if block != "cross" for m in some]
    if _differ(maps, again):
        return (
            "its attention is another one each time it runs on the same input: it draws lots, so "
            "nothing can be compared"
        )
    official = [m for m in own if m.ndim == 4]
    is_short = any(m.shape[-1] < m.shape[-2] for m in official)  # of the keys, only those nearby
    is_even = len({m.shape[-2] for m in maps.get("encoder", own)}) == 1  # nothing is pooled
    if not complete and official:
        named = ", ".join(dict.fromkeys(str(tuple(m.shape)) for m in official))
        how = (
            "in windows, so a head has no single matrix to read"
            if is_short
            else "where the tap sees no softmax (in a fused function of torch, or in another way)"
        )
        return f"its attention (official shapes {named} for {n_rows} rows) is computed {how}"
    if not complete:
        return (
            "it has no softmax attention (state-space, Fourier and convolutional models have none)"
        )
    seen = ", ".join(dict.fromkeys(str(tuple(one.weights.shape)) for one in complete))
    shapes = ", ".join(dict.fromkeys(str(tuple(m.shape)) for m in own)) or seen
    if own and all(m.ndim == 4 and len(m) < n_rows and n_rows % len(m) == 0 for m in own):
        return (
            "several rows of its input make one sequence, as codebooks and packed pictures do "
            f"({n_rows} rows, attention of shapes {shapes}), so a trace could not say which row a "
            "token is of"
        )
    if (is_short and is_even) or any(m.ndim != 4 or len(m) != n_rows for m in own):
        return (
            f"its attention is laid out in windows or blocks (shapes {shapes} for {n_rows} rows), "
            "not as queries by keys, so a head has no single matrix to read"
        )
    if len({m.shape[-2:] for m in own}) > 1 or any(m.shape[-1] != m.shape[-2] for m in own):
        return (
            "its layers attend over pooled sequences, not over one sequence of tokens (shapes "
            f"{shapes})"
        )
    if not own:
        return (
            "it returns no attention to compare with, and what it computes is not queries by keys "
            f"of one sequence (softmaxes of shapes {seen}, for {n_rows} rows)"
        )
    return (
        f"its {len(own)} official attention maps are not what it multiplies its values with "
        f"(official shapes {shapes}; softmaxes of shapes {seen})"
    )


def _differ(maps: Maps, again: Maps) -> bool:
    """Are two answers to the same question different?"""
    pairs = [
        pair for block in maps for pair in zip(maps[block], again.get(block, ()), strict=False)
    ]
    return any(
        a.shape != b.shape or not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs
    )


def refuse(root: PreTrainedModel, reason: str) -> NoReturn:
    """Refuse a model, with the reason."""
    raise TapUnsupported(f"The tap cannot read {root.config.model_type!r}: {reason}.")


Handed = dict[tuple[str, int], list[Tensor]]
"""Module and call → the tensors it handed on."""


@dataclass(frozen=True, eq=False)
class EndToEndCheck:
    """A model under its tap, as it will be used, on inputs whose attention was recorded."""

    root: PreTrainedModel
    inputs: Mapping[str, object]
    wiring: Wiring
    recordings: Mapping[Site, Recording]

    def prove(self) -> None:
        """Let the tap read and edit the model.

        Raises:
            TapUnsupported: it reads something else than was recorded, or an edit does nothing.
        """
        read: Counter[Site] = Counter()

        def compare(attention: Attention) -> None:
            site = self._site(attention)
            read[site] += 1
            if read[site] > 1:
                refuse(
                    self.root,
                    f"layer {site.layer} ({site.block}) was read twice in one forward pass. If a "
                    "hook of yours runs the model again inside its own forward pass, remove the "
                    "hook, or let it run a copy of the model",
                )
            expected = self.recordings[site].weights
            difference = float((attention.weights - expected).abs().nan_to_num().max())
            if not difference <= TOLERANCE:
                refuse(
                    self.root,
                    f"what it reads in layer {site.layer} ({site.block}) differs by "
                    f"{difference:.2g} from what the model computed before",
                )

        tap = Tap(self.root, self.wiring)
        tried = self._one_of_each_kind()
        with tap.attached(Attachment(reader=compare)), self._handed_on(tried) as before:
            output = main_output(self.root(**self.inputs))
        for site in self.recordings:
            if not read[site]:
                refuse(
                    self.root,
                    f"layer {site.layer} ({site.block}) was not read in a forward pass",
                )
        for site in tried:
            edits = tuple(
                Ablate(layer=site.layer, head=head, block=site.block)
                for head in range(site.n_heads)
            )
            with tap.attached(Attachment(edits=edits)), self._handed_on([site]) as after:
                edited = main_output(self.root(**self.inputs))
            place = site.module, site.occurrence
            weights, heads = self.recordings[site].weights, self.recordings[site].output
            pairs = [
                (a, b)
                for a, b in zip(before.get(place, ()), after.get(place, ()), strict=True)
                if a.numel() != weights.numel() or a.shape[-2:] != weights.shape[-2:]
            ] or [(output, edited)]
            is_silent = (heads is not None and not bool(heads.nan_to_num().any())) or all(
                not bool(a.nan_to_num().any()) for a, _ in pairs
            )
            if not is_silent and all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs):
                refuse(
                    self.root,
                    f"silencing all heads of layer {site.layer} ({site.block}) leaves what "
                    f"{site.module} hands on as it was: it makes nothing of what its heads put out "
                    "(an output projection of zeros?), or the weights seen there are not those the "
                    "model uses",
                )

    def find_stop(self) -> Stops | None:
        """How the forward pass can be left once every layer was read, with the very same attention.

        A cache is not needed then, but in some families it changes how keys lie in memory, and with
        that the last bits of their products.
        """
        if self._stops({**self.inputs, **uncached(self.root)}):
            return "uncached"
        return "as is" if self._stops(self.inputs) else None

    def _stops(self, inputs: Mapping[str, object]) -> bool:
        """Is the attention exact, layer by layer, if the pass is left after the last one?"""
        exact: Counter[Site] = Counter()

        def compare(attention: Attention) -> None:
            site = self._site(attention)
            expected = self.recordings[site].weights
            exact[site] += torch.equal(attention.weights.nan_to_num(), expected.nan_to_num())

        returns = not getattr(self.root, "_supports_sdpa", False)
        attachment = Attachment(reader=compare, returns_weights=returns, stops=True)
        try:
            with Tap(self.root, self.wiring).attached(attachment):
                self.root(**inputs)
        except AllRead:
            return len(exact) == len(self.recordings) and set(exact.values()) == {1}
        except Exception:  # the model makes something else of it: then it runs to its end
            return False
        return False

    def _site(self, attention: Attention) -> Site:
        return self.wiring.find(attention.block, attention.layer, None)

    def _one_of_each_kind(self) -> list[Site]:
        """The last site of each kind: layers of one class run the same code."""
        kinds = {
            (site.block, type(self.root.get_submodule(site.module)), site.computation): site
            for site in self.wiring.sites
        }
        return list(kinds.values())

    @contextmanager
    def _handed_on(self, sites: list[Site]) -> Iterator[Handed]:
        """Within the block, what the modules of these sites hand on is kept."""
        handed: Handed = {}
        calls: Counter[str] = Counter()
        with ExitStack() as stack:
            for name in {site.module for site in sites}:

                def keep(_: nn.Module, _args: object, result: object, name: str = name) -> None:
                    tensors = [x.clone() for x in tensors_in(result) if x.is_floating_point()]
                    handed[name, calls[name]] = tensors
                    calls[name] += 1

                hook = self.root.get_submodule(name).register_forward_hook(keep)
                stack.callback(hook.remove)
            yield handed


@dataclass(frozen=True, slots=True)
class Check:
    """What the self-check saw. `str()` says it in a line."""

    against: Against
    """What the official output holds: attention weights, scores before the softmax (compared
    after taking it), averages of the heads, or no attention (only outputs were compared)."""
    n_maps: int
    largest_difference: float
    """Between the tap's weights and the official ones."""
    output_difference: float
    """Between the model's outputs with and without the tap."""
    unread: tuple[str, ...] = ()
    """Modules that take a softmax which is in no official map, so that nobody reads it."""
    depends_on_cache: bool = False
    """Is the model's attention another one when it keeps a cache? It is read without one."""
    is_remembered: bool = False
    """Was the check made in an earlier process, of the same files with the same libraries?"""

    @property
    def is_exact(self) -> bool:
        """Bit for bit the official attention and the official output?"""
        return (
            self.against == "weights"
            and self.largest_difference == 0
            and self.output_difference == 0
        )

    def __str__(self) -> str:
        when = " (remembered)" if self.is_remembered else ""
        if self.is_exact:
            return f"{self.n_maps} maps, exactly the official attention and output{when}"
        official = {
            "weights": "the official attention",
            "scores": "the softmax of the official scores",
            "averages": "on average over heads the official attention",
            "nothing": "no official attention to compare with",
        }[self.against]
        compared = "" if self.against == "nothing" else f" to {self.largest_difference:.1e}"
        return (
            f"{self.n_maps} maps, {official}{compared}; "
            f"output differs by {self.output_difference:.1e}{when}"
        )


def wire(
    root: PreTrainedModel, example: Mapping[str, object] | None = None
) -> tuple[Wiring, Check]:
    """Find every attention computation of a model and check the tap against the model's own.

    The model is checked as it is: edits in effect are suspended meanwhile.

    Args:
        root: the model.
        example: inputs to try it with, where none can be made up.
    """
    if getattr(root.config, "attention_type", None) == "block_sparse":
        # Its attention is dense on short inputs, like the example, and sparse on long ones.
        refuse(root, "its attention is block-sparse. Load it with attention_type='original_full'")
    modules = modules_of(root)
    is_offloaded = any(hasattr(module, "_hf_hook") for module in modules)  # weights come when used
    if not is_offloaded and any(weights.is_meta for weights in root.parameters()):
        refuse(root, "its weights are on the meta device, which holds no numbers: load them first")
    with locked_modules(modules), suspended(), torch.inference_mode(), eager_attention(root):
        given, answer = _asked(root, example)
        depends_on_cache = _depends_on_cache(root, given, answer)
        if depends_on_cache:
            given |= uncached(root)
            answer = read_reference(root, given)
        found = _find(root, given, answer)
        n_rows = _n_rows(given)
        matches = _whole_stacks(found, n_rows)
        if not matches:
            again = read_reference(root, given).maps
            refuse(root, reason_of(answer.maps, again, found.recordings, n_rows))
        if not found.fits(answer):
            refuse(
                root,
                f"the model's output changes by {found.difference:.2g} under the tap, so what "
                "the tap reads is not what the model computes",
            )
        sites, copies = _sites(matches)
        wiring = Wiring(
            found.route,
            sites,
            _causal_blocks(matches),
            media_of(given),
            copies,
            may_cache=not depends_on_cache,
        )
        recordings = {s: m.recording for s, m in zip(sites, matches, strict=True)}
        rehearsal = EndToEndCheck(root, given, wiring, recordings)
        # First, so that what follows also shows that leaving early leaves nothing behind.
        wiring = replace(wiring, stops=rehearsal.find_stop())
        rehearsal.prove()
    return wiring, Check(
        against=max(matches, key=lambda one: one.against != "weights").against,
        n_maps=len(matches),
        largest_difference=max(one.difference for one in matches),
        output_difference=found.difference,
        unread=tuple(dict.fromkeys(other.module for other in found.left)),
        depends_on_cache=depends_on_cache,
    )


def _asked(
    root: PreTrainedModel, example: Mapping[str, object] | None
) -> tuple[dict[str, object], ReferenceMaps]:
    """Inputs on which the model runs, and its official answer."""
    if example is not None:
        longer = lengthened(example)
        return longer, read_reference(root, longer)
    refusal: TapUnsupported | None = None
    for inputs in examples(root):
        try:
            return dict(inputs), read_reference(root, inputs)
        except TapUnsupported as error:  # the first says best what is missing
            refusal = refusal or error
    if refusal is None:
        refuse(
            root,
            "headscope does not know what it takes (its main input is "
            f"{root.main_input_name!r}). Pass inputs: headscope.load(model, example={{…}})",
        )
    raise refusal


def _depends_on_cache(
    root: PreTrainedModel, inputs: dict[str, object], answer: ReferenceMaps
) -> bool:
    """Does the model attend otherwise when it keeps no cache?"""
    if "use_cache" in inputs or not uncached(root):
        return False
    without = read_reference(root, inputs | uncached(root))
    pairs = [
        (ours, theirs)
        for block, maps in answer.maps.items()
        for ours, theirs in zip(maps, without.maps.get(block, ()), strict=False)
    ]
    return any(
        a.shape != b.shape or float((a - b).abs().nan_to_num().max()) > TOLERANCE for a, b in pairs
    )


@dataclass(slots=True)
class _Found:
    """The official maps, found among the recordings of one route."""

    route: Route
    recordings: list[Recording]
    matches: list[Match]
    """Empty where an official map is not among the recordings."""
    left: list[Recording]
    """Attention that is in no official map."""
    difference: float
    """Between the output of the recorded run and the official one."""

    def fits(self, answer: ReferenceMaps) -> bool:
        """Was everything found, and the model's output the same?"""
        size = max(1.0, float(answer.output.abs().nan_to_num().max()))
        return bool(self.matches) and self.difference <= TOLERANCE * size


def _find(root: PreTrainedModel, inputs: Mapping[str, object], answer: ReferenceMaps) -> _Found:
    """Look for the official maps through the interface, and where they are not all there,
    by watching every module.
    """
    run = record_interface(root, inputs)
    found = _among("interface", run, root, answer)
    if found.matches and run.n_softmaxes <= len(run.recordings):
        return found
    watched = record_fallback(root, inputs)
    if not found.matches:
        return _among("fallback", watched, root, answer)
    known = [one.recording.weights for one in found.matches]
    hidden = [r for r in watched.recordings if not any(equals(r.weights, w) for w in known)]
    found.left = [one for one in hidden if one.is_complete]
    return found


def _among(route: Route, run: Run, root: PreTrainedModel, answer: ReferenceMaps) -> _Found:
    matched = match(answer.maps, run.recordings)
    matches, left = matched if matched is not None else ([], [])
    if matched is not None:
        towers, left = _towers(root, answer, matches, left)
        matches = _renamed(root, matches + towers)
    if not answer.maps and not matches and route == "fallback":
        complete = [one for one in run.recordings if one.is_complete and one.weights.ndim == 4]
        if any(one.occurrence or one.computation for one in complete):
            complete = []  # windows, or several pictures: nothing says which is which
        matches = [Match("self", one, 0.0, "nothing") for one in complete]
        matches = [replace(one, block=_named_block(one)) for one in matches]
        left = []
    output = main_output(run.outputs)
    is_alike = output.shape == answer.output.shape  # a model that draws lots may write more
    difference = float((output - answer.output).abs().nan_to_num().max()) if is_alike else math.inf
    return _Found(route, run.recordings, matches, [x for x in left if x.is_complete], difference)


def _towers(
    root: PreTrainedModel, answer: ReferenceMaps, matches: Sequence[Match], left: list[Recording]
) -> tuple[list[Match], list[Recording]]:
    """Those of the recordings left over that are maps of a model within the model which the
    outer one does not return; and the rest.
    """
    taken: set[BlockName] = {one.block for one in matches}
    known = [one.recording.module for one in matches]
    asked: list[str] = []
    towers: list[Match] = []
    for name, call in sorted(answer.calls.items()):  # an outer model before those within it
        inside = [one for one in left if _is_within(one.module, name)]
        if not inside or any(_is_within(module, name) for module in (*known, *asked)):
            continue
        tower = root.get_submodule(name)
        assert isinstance(tower, PreTrainedModel)
        block = tower_block(name, tower)
        maps = read_tower_reference(tower, call) if block is not None and block not in taken else []
        matched = match({block: maps}, inside) if block is not None and maps else None
        if matched is None:
            continue
        assert block is not None
        asked.append(name)
        taken.add(block)
        towers += matched[0]
        left = [one for one in left if not _was_used(one, matched[0])]
    return towers, left


def _was_used(recording: Recording, matches: Sequence[Match]) -> bool:
    place = recording.module, recording.occurrence, recording.computation
    return any(
        (r.module, r.occurrence, r.computation) == place
        for one in matches
        for r in (one.recording, *one.copies)
    )


def _is_within(module: str, name: str) -> bool:
    return module == name or module.startswith(f"{name}.")


def _renamed(root: PreTrainedModel, matches: list[Match]) -> list[Match]:
    """One stack alone is `self`, and so is the text of a model that writes. Layers that attend
    to another stack are `cross`, also where the model returns them among the others (Mllama).
    """
    tower = _own_tower(root, matches)
    if tower is not None:
        matches = [replace(one, block=tower) if one.block == "self" else one for one in matches]
    crossing = [one for one in matches if one.block == "self" and _named_block(one) == "cross"]
    blocks = {one.block for one in matches}
    if "cross" not in blocks and len(crossing) < sum(one.block == "self" for one in matches):
        for one in crossing:
            one.block = "cross"
    if len(blocks) == 1 and is_tower(next(iter(blocks))):
        return [replace(one, block="self") for one in matches]
    if "self" not in blocks and "decoder" not in blocks and root.can_generate():
        return [replace(one, block="self" if one.block == "text" else one.block) for one in matches]
    return matches


def _own_tower(root: PreTrainedModel, matches: Sequence[Match]) -> BlockName | None:
    """The tower that the maps are of which a model returns as its own, beside those of its text:
    BLIP's are of its image. None where they are the model's own indeed.
    """
    blocks = {one.block for one in matches}
    own = [one.recording.module for one in matches if one.block == "self"]
    for name, part in root.named_modules():
        if name and isinstance(part, PreTrainedModel) and all(_is_within(m, name) for m in own):
            tower = tower_block(name, part)
            if {"self", "text"} <= blocks and tower not in (None, *blocks):
                return tower
    return None


def _n_rows(inputs: Mapping[str, object]) -> int:
    """How many rows the inputs are; where pictures come as one list of patches, how many."""
    grid = inputs.get("grid_thw")
    if isinstance(grid, Tensor):
        return len(grid)
    return next(len(x) for x in inputs.values() if isinstance(x, Tensor) and x.ndim)


def _whole_stacks(found: _Found, n_rows: int) -> list[Match]:
    """The matches, if every map is queries by keys. A tower that is laid out otherwise (in
    windows, or pooled) is left unread; any other stack must be whole.
    """
    matches = list(found.matches)
    for block in dict.fromkeys(one.block for one in matches):
        group = [one for one in matches if one.block == block]
        if _is_square(group, None if is_tower(block) else n_rows):
            continue
        if not is_tower(block):
            return []
        matches = [one for one in matches if one.block != block]
        found.left += [one.recording for one in group]
    return matches


def _is_square(matches: Sequence[Match], n_rows: int | None) -> bool:
    """Is every map of a block over the same queries and keys (not windowed, not pooled)?"""
    shapes = set()
    for one in matches:
        weights = one.recording.weights
        if weights.ndim != 4:
            return False
        rows, _, n_queries, n_keys = weights.shape
        if (n_rows is not None and rows != n_rows) or (
            one.block != "cross" and n_queries != n_keys
        ):
            return False
        shapes.add((rows, n_queries, n_keys))
    return len(shapes) == 1


def _sites(matches: Sequence[Match]) -> tuple[tuple[Site, ...], tuple[Site, ...]]:
    """A site for each match, in order; and those of the copies."""
    layers: dict[int, int] = {}
    for block in dict.fromkeys(one.block for one in matches):
        group = [index for index, one in enumerate(matches) if one.block == block]
        modules = [matches[index].recording.module for index in group]
        layers |= dict(zip(group, _layer_numbers(modules), strict=True))
    sites = tuple(proved_site(one, layers[index]) for index, one in enumerate(matches))
    copies = tuple(
        replace(site, occurrence=copy.occurrence, computation=copy.computation, is_copy=True)
        for site, one in zip(sites, matches, strict=True)
        for copy in one.copies
    )
    return sites, copies


def _layer_numbers(modules: Sequence[str]) -> list[int]:
    """The model's own numbering where its names carry one (hybrid models have layers
    without attention), else the order of computation.
    """
    numbers = []
    for module in modules:
        number = re.search(r"\.(\d+)\.", f".{module}.")
        numbers.append(int(number[1]) if number else -1)
    increasing = all(a < b for a, b in itertools.pairwise(numbers))
    return numbers if increasing and numbers[0] >= 0 else list(range(len(numbers)))


def _causal_blocks(matches: Sequence[Match]) -> frozenset[BlockName]:
    """Blocks in which no query ever attends to a later key."""
    causal: dict[BlockName, bool] = {}
    for one in matches:
        if one.block != "cross":
            causal[one.block] = causal.get(one.block, True) and is_causal(one.recording.weights)
    return frozenset(block for block, looks_back in causal.items() if looks_back)


def _named_block(one: Match) -> BlockName:
    """The block by the module's name, where the model's answer does not tell."""
    is_cross = re.search(r"cross|enc_?dec|encoder_attn", one.recording.module.lower())
    return "cross" if is_cross else one.block
