"""The last part of the self-check: the tap itself reads and edits, and both are held to account.

What it reads must be what was recorded, layer by layer. And silencing a layer must change what
its attention module hands on: else the weights that are read are not those the model uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscope.attention import Attention
from headscope.errors import TapUnsupported
from headscope.model.edit import Ablate
from headscope.model.tap.attachment import AllRead, Attachment
from headscope.model.tap.match import TOLERANCE
from headscope.model.tap.official import main_output, tensors_in, uncached
from headscope.model.tap.record import Recording
from headscope.model.tap.sites import Site, Stops, Wiring
from headscope.model.tap.tap import Tap

Handed = dict[tuple[str, int], list[Tensor]]
"""Module and call → the tensors it handed on."""


def prove(
    root: PreTrainedModel,
    inputs: Mapping[str, object],
    wiring: Wiring,
    recordings: Mapping[Site, Recording],
) -> None:
    """Let the tap read and edit the model as it will be used.

    Raises:
        TapUnsupported: it reads something else than was recorded, or an edit does nothing.
    """
    family = root.config.model_type
    tap = Tap(root, wiring)
    places = {(site.block, site.layer): site for site in recordings}
    read: Counter[Site] = Counter()

    def compare(attention: Attention) -> None:
        site = places[attention.block, attention.layer]
        read[site] += 1
        if read[site] > 1:
            raise TapUnsupported(
                f"The tap cannot read {family!r}: layer {site.layer} ({site.block}) was read "
                "twice in one forward pass. If a hook of yours runs the model again inside its "
                "own forward pass, remove the hook, or let it run a copy of the model."
            )
        expected = recordings[site].weights
        difference = float((attention.weights - expected).abs().nan_to_num().max())
        if not difference <= TOLERANCE:
            raise TapUnsupported(
                f"The tap cannot read {family!r}: what it reads in layer {site.layer} "
                f"({site.block}) differs by {difference:.2g} from what the model computed before."
            )

    tried = _one_of_each_kind(root, wiring)
    with tap.attached(Attachment(reader=compare)), _handed_on(root, tried) as before:
        output = main_output(root(**inputs))
    for site in recordings:
        if not read[site]:
            raise TapUnsupported(
                f"The tap cannot read {family!r}: layer {site.layer} ({site.block}) was not read "
                "in a forward pass."
            )
    for site in tried:
        edits = tuple(
            Ablate(layer=site.layer, head=head, block=site.block) for head in range(site.n_heads)
        )
        with tap.attached(Attachment(edits=edits)), _handed_on(root, [site]) as after:
            edited = main_output(root(**inputs))
        place = site.module, site.occurrence
        weights = recordings[site].weights
        pairs = [
            (a, b)
            for a, b in zip(before.get(place, ()), after.get(place, ()), strict=True)
            if a.numel() != weights.numel() or a.shape[-2:] != weights.shape[-2:]
        ] or [(output, edited)]
        is_silent = all(not bool(a.abs().nan_to_num().any()) for a, _ in pairs)
        if not is_silent and all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs):
            raise TapUnsupported(
                f"The tap cannot read {family!r}: silencing all heads of layer {site.layer} "
                f"({site.block}) leaves what {site.module} hands on as it was, so the weights "
                "seen there are not those the model uses."
            )


def find_stop(
    root: PreTrainedModel,
    inputs: Mapping[str, object],
    wiring: Wiring,
    recordings: Mapping[Site, Recording],
) -> Stops | None:
    """How the forward pass can be left once every layer was read, with the very same attention.

    A cache is not needed then, but in some families it changes how keys lie in memory, and with
    that the last bits of their products.
    """
    if _stops(root, {**inputs, **uncached(root)}, wiring, recordings):
        return "uncached"
    return "as is" if _stops(root, inputs, wiring, recordings) else None


def _stops(
    root: PreTrainedModel,
    inputs: Mapping[str, object],
    wiring: Wiring,
    recordings: Mapping[Site, Recording],
) -> bool:
    places = {(site.block, site.layer): site for site in recordings}
    exact: Counter[Site] = Counter()

    def compare(attention: Attention) -> None:
        site = places[attention.block, attention.layer]
        expected = recordings[site].weights
        exact[site] += torch.equal(attention.weights.nan_to_num(), expected.nan_to_num())

    returns = not getattr(root, "_supports_sdpa", False)
    attachment = Attachment(reader=compare, returns_weights=returns, stops=True)
    try:
        with Tap(root, wiring).attached(attachment):
            root(**inputs)
    except AllRead:
        return len(exact) == len(recordings) and set(exact.values()) == {1}
    except Exception:  # the model makes something else of it: then it runs to its end
        return False
    return False


def _one_of_each_kind(root: nn.Module, wiring: Wiring) -> list[Site]:
    """The last site of each kind: layers of one class run the same code."""
    kinds = {
        (site.block, type(root.get_submodule(site.module)), site.computation): site
        for site in wiring.sites
    }
    return list(kinds.values())


@contextmanager
def _handed_on(root: nn.Module, sites: list[Site]) -> Iterator[Handed]:
    """Within the block, what the modules of these sites hand on is kept."""
    handed: Handed = {}
    calls: Counter[str] = Counter()
    hooks = []

    def keep_for(name: str) -> None:
        def keep(_module: nn.Module, _args: object, result: object) -> None:
            tensors = [x.clone() for x in tensors_in(result) if x.is_floating_point()]
            handed[name, calls[name]] = tensors
            calls[name] += 1

        hooks.append(root.get_submodule(name).register_forward_hook(keep))

    for name in dict.fromkeys(site.module for site in sites):
        keep_for(name)
    try:
        yield handed
    finally:
        for hook in hooks:
            hook.remove()
