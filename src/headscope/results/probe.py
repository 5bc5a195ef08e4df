"""A trained probe: its weights, how good it is, which heads it relies on, and what it parses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from headscope.errors import InputError, UnknownName
from headscope.probes.decode import DECODINGS, Decoding, decode
from headscope.text.document import ROOT, Document
from headscope.text.readers.read import read

if TYPE_CHECKING:
    from headscope.model.model import Model
    from headscope.probes.vectors import WordVectors

__all__ = ["Probe"]


@dataclass(frozen=True, eq=False)
class Probe:
    """A probe over all heads (Clark et al. 2019, section 5). Made by `headscope.train_probe`.

    Attributes:
        kind: `attention`, `attention+words` or `distance+words`.
        parameters: its weights by name, over named axes; `input` is a head, with coordinates
            `layer` and `head`. They apply to attention and vectors as they are.
        scores: `uas` over `decoding` and `punctuation`, `right_branching`, their intervals,
            and `right` and `counted` for each sentence of the development data.
        log: loss, accuracy and seconds of each epoch.
        provenance: model, treebanks, vectors, seed, options, versions, times, what was left out.
        model: what it was trained on; None where the probe was opened from a file.
        vectors: its word vectors, likewise.
    """

    kind: str
    parameters: xr.Dataset
    scores: xr.Dataset
    log: xr.Dataset
    provenance: Mapping[str, Any]
    model: Model | None = field(default=None, repr=False)
    vectors: WordVectors | None = field(default=None, repr=False)

    @property
    def uas(self) -> float:
        """Unlabeled attachment score as the paper reports it: greedy, without punctuation."""
        return float(self.scores["uas"].sel(decoding="greedy", punctuation="without"))

    @property
    def uas_interval(self) -> tuple[float, float]:
        """Its 95 % interval, over texts of the development data."""
        found = self.scores["uas_interval"].sel(decoding="greedy", punctuation="without")
        return float(found.sel(bound="low")), float(found.sel(bound="high"))

    @property
    def reliance(self) -> xr.DataArray:
        """How much the probe relies on each head: `direction layer head`, in nats.

        A head's part of the score of candidate i for word j is w_k a_k[i, j] (direction
        `candidate`: the candidate attends to the word) or u_k a_k[j, i] (`dependent`).
        Only differences between candidates count in a softmax, so the measure is the
        standard deviation of that part over a word's candidates, averaged over words. A
        large weight on attention that is the same everywhere relies on nothing.
        """
        if "reliance" not in self.scores:
            raise InputError(f"A {self.kind} probe reads no attention: it relies on no head.")
        values = self.scores["reliance"]
        layers, heads = values["layer"].values, values["head"].values
        rows = sorted(set(layers.tolist()))
        shape = (values.sizes["direction"], len(rows), int(heads.max()) + 1)
        array = np.full(shape, np.nan)
        array[:, [rows.index(layer) for layer in layers], heads] = values.values
        coords = {"direction": values["direction"].values, "layer": rows}
        return xr.DataArray(
            array,
            dims=("direction", "layer", "head"),
            coords={**coords, "head": np.arange(shape[2])},
            name="reliance",
            attrs=values.attrs,
        )

    def predict(
        self,
        document: Document | str,
        *,
        decoding: Decoding = "greedy",
        model: Model | None = None,
        vectors: WordVectors | None = None,
    ) -> tuple[int, ...]:
        """The parent of each word, -1 for a root: as in `Document.parents`.

        Args:
            document: a document, sentence by sentence; or a text.
            decoding: `greedy`, each word's best candidate (not always a tree); or `tree`, the
                best tree with one root.
            model: for a probe opened from a file: the model it was trained on (also for a
                control, whose random weights are made again).
            vectors: for a probe opened from a file; by default those of its training are
                loaded from where they were.
        """
        from headscope.probes.predict import sentence_scores

        if decoding not in DECODINGS:
            raise UnknownName.of("decoding", decoding, DECODINGS)
        if isinstance(document, str):
            document = next(iter(read([document])))
        heads: list[int] = []
        for sentence in document.split("sentence"):
            start, n = len(heads), len(sentence)
            scores = sentence_scores(self, sentence, model, vectors)
            found = decode(scores, decoding)
            heads += [ROOT if head == n else start + int(head) for head in found]
        return tuple(heads)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one netCDF file, which `headscope.open` and xarray read."""
        from headscope.results.probe_file import save_probe

        save_probe(self, path)

    def __repr__(self) -> str:
        low, high = self.uas_interval
        words = int(self.scores["words"].sel(punctuation="without"))
        return (
            f"<Probe {self.kind!r} of {self.provenance['model']['name']}: UAS {self.uas:.1%} "
            f"({low:.1%}–{high:.1%}) on {words:,} words>"
        )
