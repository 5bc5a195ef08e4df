"""Trained probes and example sentences of probes, as plain data without a model."""

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
    """Probe over all heads (Clark et al. 2019, section 5). Made by `headscope.train_probe`.

    Attributes:
        kind: `attention`, `attention+words` or `distance+words`.
        parameters: weights by name, over named axes; `input` is a head, with coordinates `layer`
            and `head`. They apply to attention and vectors without scaling.
        scores: `uas` over `decoding` and `punctuation`, `right_branching`, their intervals,
            and `right` and `counted` for each sentence of the development data.
        log: loss, accuracy and seconds of each epoch.
        provenance: model, treebanks, vectors, seed, options, versions, times, omitted sentences.
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
        """95 % interval of `uas`, over texts of the development data."""
        bounds = self.scores["uas_interval"].sel(decoding="greedy", punctuation="without")
        return float(bounds.sel(bound="low")), float(bounds.sel(bound="high"))

    @property
    def reliance(self) -> xr.DataArray:
        """Reliance of the probe on each head: `direction layer head`, in nats.

        A head contributes w_k a_k[i, j] to the score of candidate i for word j (direction
        `candidate`: the candidate attends to the word) or u_k a_k[j, i] (`dependent`). A softmax
        depends only on differences between candidates. Reliance is therefore the standard
        deviation of the contribution over a word's candidates, averaged over words.
        """
        if "reliance" not in self.scores:
            raise InputError(f"A {self.kind} probe reads no attention: it relies on no head.")
        by_head = self.scores["reliance"].set_index(input=["layer", "head"]).unstack("input")
        heads = np.arange(int(by_head["head"].max()) + 1)
        return by_head.astype(float).reindex(head=heads).rename("reliance")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the probe to one netCDF file, readable by `headscope.open` and xarray."""
        from headscope.results.files import save_probe

        save_probe(self, path)

    @property
    def title(self) -> str:
        """Model, kind of probe and score, for figures."""
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
        return int(self.scores["words"].sel(punctuation="without"))

    def predict(
        self,
        document: Document | str,
        model: Model | str,
        *,
        decoding: Decoding = "greedy",
        vectors: WordVectors | None = None,
    ) -> tuple[int, ...]:
        """Predict the parent of each word, -1 for a root, as in `Document.parents`.

        Args:
            document: document, parsed sentence by sentence; or a text.
            model: the model of the training, whose weights are checked. A random-weights control
                takes the original model, and randomizes its weights again.
            decoding: `greedy`, each word's best candidate (not always a tree); or `tree`, the
                best tree with one root.
            vectors: the word vectors of the training; by default loaded from their source.

        Raises:
            InputError: the model or the vectors differ from those of the training.
        """
        from headscope.probes.predict import predict

        return predict(self, document, model, decoding=decoding, vectors=vectors)

    def figure(self) -> Figure:
        """Draw `reliance` for both directions."""
        from headscope.figures.table_charts import reliance_figure

        return reliance_figure(self.reliance, title=self.title)


@dataclass(frozen=True, slots=True)
class ProbeArc:
    """Prediction of one word: the other word that it attends to most."""

    query: int
    predicted: int | None
    """Word with the highest attention; None without attention to other words."""
    target: int
    is_right: bool


@dataclass(frozen=True, slots=True, eq=False)
class ProbeExample:
    """Sentence under one head."""

    id: str
    words: tuple[str, ...]
    weights: np.ndarray
    """`word word`: from the predicting word to the other. In direction `head`, this is the
    transpose of the model's attention."""
    arcs: tuple[ProbeArc, ...]

    @property
    def is_right(self) -> bool:
        """True if all arcs are right."""
        return all(arc.is_right for arc in self.arcs)


@dataclass(frozen=True, eq=False)
class ProbeExamples(Sequence[ProbeExample]):
    """Sentences of one relation under one head, the right ones first."""

    title: str
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
        """Draw attention between words, a panel for each sentence (Clark et al. 2019, Figure 5).

        The predicting words are on the left, the attended words on the right; darker lines are
        higher weights. Words of the relation are blue if the word attends most to its target,
        and red otherwise, with a dashed line to the missed target.

        Args:
            title: title of the figure; by default the head and the relation.
            columns: panels in a row.
        """
        from headscope.figures.table_charts import example_figure

        return example_figure(self, title, columns=columns)
