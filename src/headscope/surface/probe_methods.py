"""The methods of probes, their tables and examples, and of maps: prediction and figures."""

# mypy: disable-error-code="misc"
# `self` is of the one class that inherits the methods, which mypy cannot know.

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import os

    from matplotlib.figure import Figure

    from headscope.heads.bias_table import BiasTable
    from headscope.heads.head_map import HeadMap
    from headscope.heads.probe_table import ProbeTable
    from headscope.model.model import Model
    from headscope.probes.decode import Decoding
    from headscope.probes.vectors import WordVectors
    from headscope.results.probe import Probe
    from headscope.results.probe_example import ProbeExamples
    from headscope.results.result import Result
    from headscope.text.document import Document


class ProbeMethods:
    """What one does with a trained probe: parse with it, and see which heads it relies on."""

    __slots__ = ()

    def predict(
        self: Probe,
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

    def figure(self: Probe) -> Figure:
        """How much the probe relies on each head, for both directions (`reliance`)."""
        from headscope.figures.probe_weights import reliance_figure

        return reliance_figure(self.reliance, title=self.title)


class ProbeTableMethods:
    """What one does with the table of a probe besides printing it."""

    __slots__ = ()

    def figure(self: ProbeTable) -> Figure:
        """The best heads beside their baselines.

        A dot with its 95 % interval; a ring for the honest accuracy, of heads chosen on the
        other half of the documents; baselines in orange.
        """
        from headscope.figures.best_heads import probe_figure

        return probe_figure(self)


class BiasTableMethods:
    """What one does with the table of bias besides printing it."""

    __slots__ = ()

    def figure(self: BiasTable) -> Figure:
        """Each head's accuracy where the pronoun fits the stereotype, and where it does not."""
        from headscope.figures.bias_heads import bias_figure

        return bias_figure(self)


class ProbeExamplesMethods:
    """What one does with example sentences."""

    __slots__ = ()

    def figure(self: ProbeExamples, title: str | None = None, *, columns: int = 3) -> Figure:
        """Attention between words, a panel for each sentence (Clark et al. 2019, Figure 5).

        The word that predicts is on the left, what it attends to on the right; a line is
        darker the more attention it stands for. Words of the relation are colored: blue where
        the word attends most to its target, red where it does not, with the target it missed
        as a dashed line.

        Args:
            title: over all panels; the head and the relation by default.
            columns: panels in a row.
        """
        from headscope.figures.probe_sentences import example_figure

        return example_figure(self, title, columns=columns)


class HeadMapMethods:
    """What one does with a map of heads."""

    __slots__ = ()

    def figure(self: HeadMap, name: Literal["clark-6", "clusters"] = "clark-6") -> Figure:
        """The map by behavior and by layer (Clark et al. 2019, Figure 6), or its clusters."""
        from headscope.figures.clark_map import draw_map

        return draw_map(self, name)

    def save_page(
        self: HeadMap,
        path: str | os.PathLike[str],
        *results: Result,
        explorer: str | None = None,
    ) -> None:
        """Write the map as one HTML file: point at a head to read what was measured about it.

        Args:
            path: the file to write; it appears whole or not at all.
            results: of the model, for what the page says of each head (`Result.explain`).
            explorer: address of an explorer page of the same model; heads then link into it.
        """
        from headscope.reporting.map_page import save_map_page

        save_map_page(self, path, results, explorer=explorer)
