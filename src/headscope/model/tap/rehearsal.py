"""The last part of the self-check: the tap itself reads and edits, and both are held to account.

What it reads must be what was recorded, layer by layer. And silencing a layer must change what
its attention module hands on: else the weights that are read are not those the model uses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headscope.attention import Attention
from headscope.model.edit import Ablate
from headscope.model.tap.attachment import AllRead, Attachment
from headscope.model.tap.match import TOLERANCE
from headscope.model.tap.official import main_output, tensors_in, uncached
from headscope.model.tap.record import Recording
from headscope.model.tap.refusal import refuse
from headscope.model.tap.sites import Site, Stops, Wiring
from headscope.model.tap.tap import Tap

Handed = dict[tuple[str, int], list[Tensor]]
"""Module and call → the tensors it handed on."""


@dataclass(frozen=True, eq=False)
class Rehearsal:
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
