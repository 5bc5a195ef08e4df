"""A trained probe: its weights, how good it is, and which heads it relies on.

Plain data, without the model and the word vectors it was trained with.

Sentences as a head sees them: attention between words, and what a probe asks about it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import xarray as xr

from headscope.errors import InputError
from headscope.notebook import facts_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.model.model import Model
    from headscope.probes.predict import Decoding
    from headscope.probes.word_vectors import WordVectors
    from headscope.text.document import Document


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
    """

    kind: str
    parameters: xr.Dataset
    scores: xr.Dataset
    log: xr.Dataset
    provenance: Mapping[str, Any]

    @property
    def uas(self) -> float:
        """Unlabeled attachment score as the paper reports it: greedy, without punctuation."""
        return float(self.scores["uas"].sel(decoding="greedy", punctuation="without"))

    @property
    def uas_interval(self) -> tuple[float, float]:
        """The 95 % interval of `uas`, over texts of the development data."""
        bounds = self.scores["uas_interval"].sel(decoding="greedy", punctuation="without")
        return float(bounds.sel(bound="low")), float(bounds.sel(bound="high"))

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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one netCDF file, which `headscope.open` and xarray read."""
        from headscope.results.files import save_probe

        save_probe(self, path)

    @property
    def title(self) -> str:
        """The model, the kind of probe and its score, for figures."""
        return f"{self.provenance['model']['name']} · {self.kind} · UAS {self.uas:.1%}"

    def __repr__(self) -> str:
        low, high = self.uas_interval
        return (
            f"<Probe {self.kind!r} of {self.provenance['model']['name']}: UAS {self.uas:.1%} "
            f"({low:.1%}–{high:.1%}) on {self._words:,} words>"
        )

    def _repr_html_(self) -> str:
        low, high = self.uas_interval
        facts = [
            ("model", self.provenance["model"]["name"]),
            ("kind", self.kind),
            ("UAS", f"{self.uas:.1%} ({low:.1%}–{high:.1%})"),
            ("words", f"{self._words:,}"),
        ]
        return facts_table("Probe", facts)

    @property
    def _words(self) -> int:
        """Words it was scored on, without punctuation."""
        return int(self.scores["words"].sel(punctuation="without"))

    def predict(
        self,
        document: Document | str,
        model: Model | str,
        *,
        decoding: Decoding = "greedy",
        vectors: WordVectors | None = None,
    ) -> tuple[int, ...]:
        """The parent of each word, -1 for a root: as in `Document.parents`.

        Args:
            document: a document, parsed sentence by sentence; or a text.
            model: the model it was trained on, whose weights are checked. A probe of the
                random-weights control takes the model itself, and draws its weights again.
            decoding: `greedy`, each word's best candidate (not always a tree); or `tree`, the
                best tree with one root.
            vectors: the word vectors it was trained with; by default they are loaded from
                where they were.

        Raises:
            InputError: another model, or other vectors, than it was trained with.
        """
        from headscope.probes.predict import predict

        return predict(self, document, model, decoding=decoding, vectors=vectors)

    def figure(self) -> Figure:
        """How much the probe relies on each head, for both directions (`reliance`)."""
        from headscope.figures.heat_maps import reliance_figure

        return reliance_figure(self.reliance, title=self.title)


@dataclass(frozen=True, slots=True)
class ProbeArc:
    """One question of a probe: which word does this one attend to most?"""

    query: int
    """The word that predicts."""
    predicted: int | None
    """The word it attends to most; None where it attends to no other word."""
    target: int
    """The word it should attend to."""
    is_right: bool


@dataclass(frozen=True, slots=True, eq=False)
class ProbeExample:
    """One sentence under one head."""

    id: str
    words: tuple[str, ...]
    weights: np.ndarray
    """`word word`: from the predicting word to the other. Where the parent attends to its
    dependent (direction `head`), this is the transpose of what the model computes."""
    arcs: tuple[ProbeArc, ...]

    @property
    def is_right(self) -> bool:
        """Are all its arcs right?"""
        return all(arc.is_right for arc in self.arcs)


@dataclass(frozen=True, eq=False)
class ProbeExamples(Sequence[ProbeExample]):
    """Sentences of one relation under one head; those it gets right come first."""

    title: str
    """The model, the head and the relation."""
    sentences: tuple[ProbeExample, ...]

    @overload
    def __getitem__(self, index: int) -> ProbeExample: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[ProbeExample, ...]: ...

    def __getitem__(self, index: int | slice) -> ProbeExample | tuple[ProbeExample, ...]:
        return self.sentences[index]

    def __len__(self) -> int:
        return len(self.sentences)

    def __repr__(self) -> str:
        right = sum(sentence.is_right for sentence in self.sentences)
        return f"<ProbeExamples of {self.title}: {right} right, {len(self) - right} wrong>"

    def figure(self, title: str | None = None, *, columns: int = 3) -> Figure:
        """Attention between words, a panel for each sentence (Clark et al. 2019, Figure 5).

        The word that predicts is on the left, what it attends to on the right; a line is
        darker the more attention it stands for. Words of the relation are colored: blue where
        the word attends most to its target, red where it does not, with the target it missed
        as a dashed line.

        Args:
            title: over all panels; the head and the relation by default.
            columns: panels in a row.
        """
        from headscope.figures.example_sentences import example_figure

        return example_figure(self, title, columns=columns)
