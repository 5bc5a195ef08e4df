"""The methods of a result that need rooms above `results`: figures, tables, reports."""

# mypy: disable-error-code="misc"
# `self` is of the one class that inherits the methods, which mypy cannot know.

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import xarray as xr
    from matplotlib.figure import Figure

    from headscope.attention import Block
    from headscope.heads.bias_table import BiasTable
    from headscope.heads.card import HeadCard
    from headscope.heads.head_map import HeadMap
    from headscope.heads.probe_table import ProbeTable
    from headscope.heads.significant import SignificantHeads
    from headscope.model.model import Model
    from headscope.results.probe import Probe
    from headscope.results.probe_example import ProbeExamples
    from headscope.results.result import Result
    from headscope.text.corpus import Corpus
    from headscope.text.readers.read import Readable


class ResultMethods:
    """What one does with a result: compare it, draw it, put it in a table or a report."""

    __slots__ = ()

    def group(self: Result, name: str) -> Result:
        """The documents of one group (a genre) as a result of its own.

        Without the metrics whose states are not kept for each group: exemplars, divergences.
        """
        from headscope.run.merge import group_result

        return group_result(self, name)

    def compare(self: Result, other: Result) -> xr.Dataset:
        """Differences, this result minus the other, with 95 % intervals and p values.

        Two models over one corpus, or two genres under one model (`result.group`). Variables
        are compared head by head where both models have the same layers and heads; their
        means over heads (`…_mean`) always. Results of the same documents are paired, and the
        attribute `comparison` says so. `…_p` is the two-sided p value of each difference;
        `…_p_adjusted` is corrected for all heads of the variable (Benjamini & Hochberg): read
        this one in a list. Variability is left out where the sides kept different numbers of
        documents: fewer make it smaller. Metrics of your own are left out, with a warning, where
        their classes are not registered (`headscope.register_metric`).

        Args:
            other: the result to compare with.
        """
        from headscope.run.compare import compare

        return compare(self, other)

    def significant(
        self: Result,
        name: str,
        *,
        against: float | str | Result = "mean",
        level: float = 0.05,
        block: str | None = None,
        **labels: str | int,
    ) -> SignificantHeads:
        """The heads whose value is above something, corrected for looking at all heads.

        One p value for each head, from the same standard errors as its interval, corrected by
        Benjamini & Hochberg: of the heads listed, a share of at most `level` is expected to be
        there by chance. Where few documents skew its error, p is more careful than the interval.

        Args:
            name: a variable over layer and head.
            against: a number; the name of another variable of this result (`dep_baseline`);
                `mean`, the mean over heads; or another result, from which heads may differ
                either way.
            level: of the corrected p values.
            block: another attention of the model: `decoder`.
            labels: one for each other axis: `result.significant("pos_to", tag="NOUN")`.
        """
        from headscope.heads.significant import significant_heads

        return significant_heads(self, name, against=against, level=level, block=block, **labels)

    def figure(self: Result, name: str, **options: object) -> Figure:
        """One figure of the papers, or of ours, as matplotlib draws it.

        Save it with `figure.savefig(path)`.

        Args:
            name: `vb-5` … `vb-12`, `vb-a1` and `vb-a2` are those of Vig & Belinkov (2019),
                `vb-exemplars` their Tables 1 to 3 for one head; `clark-1` to `clark-4` and
                `clark-6` those of Clark et al. (2019); `genres` sets groups side by side. Or a
                variable over layer and head, also of a metric of your own: a heat map.
            options: `layer`, `head`, `n` and `block` for `vb-exemplars`; `probes`, `effects`,
                `thresholds`, `seed` and `starts` of `map_heads` for `clark-6`.

        Raises:
            UnknownName: there is no such figure.
            InputError: the result lacks what it shows, or an option is missing or unknown.
        """
        from headscope.figures.papers import draw

        return draw(self, name, **options)

    def save_figures(
        self: Result,
        folder: str | os.PathLike[str],
        *,
        figures: Iterable[str] | None = None,
        formats: Iterable[str] = ("svg", "pdf", "png"),
        exemplars: Iterable[tuple[int, int]] = (),
    ) -> list[Path]:
        """Write figures to files: all that the result allows, in SVG, PDF and PNG.

        Args:
            folder: where to; made if need be.
            figures: which, by their names.
            formats: file formats that matplotlib knows.
            exemplars: also `vb-exemplars` for each of these heads (layer, head).
        """
        from headscope.figures.papers import save_figures

        return save_figures(self, folder, figures=figures, formats=formats, exemplars=exemplars)

    def explain(
        self: Result,
        layer: int,
        head: int,
        *others: Result,
        heads: HeadMap | None = None,
        n_exemplars: int = 3,
    ) -> HeadCard:
        """Everything measured about one head, on one page.

        Args:
            layer: counted from 0.
            head: counted from 0.
            others: more results of the same model (`importance`, probes).
            heads: a map, for the nearest heads; without it they are taken from `js` if there.
            n_exemplars: how many of its highest weights to show.
        """
        from headscope.heads.explain import explain_head

        return explain_head([self, *others], layer, head, heads=heads, n_exemplars=n_exemplars)

    def table(
        self: Result,
        heads: Result | Iterable[tuple[int, int]] | None = None,
        *,
        n: int = 5,
        block: str | None = None,
    ) -> ProbeTable | BiasTable:
        """A probe's result as a table.

        Of `probe_dependencies` and `probe_coreference`: the best head of each relation (Clark
        et al. 2019, Table 1) or kind of mention (Table 2). Of `probe_bias`: the heads that
        find antecedents, and how a stereotype moves them.

        Args:
            heads: for `probe_bias`: which heads to show, as (layer, head), or a result of
                `probe_coreference` with the same model, whose `n` best are shown. By default
                the `n` that find the antecedent most often in these sentences.
            n: how many heads, for `probe_bias`.
            block: another attention of the model: `decoder`.

        Raises:
            InputError: the result is not of a probe.
        """
        from headscope.heads.tables import table_of

        return table_of(self, heads, n=n, block=block)

    def examples(
        self: Result,
        model: Model | str,
        corpus: Corpus | Readable,
        relation: str,
        *,
        layer: int | None = None,
        head: int | None = None,
        direction: str | None = None,
        right: int = 3,
        wrong: int = 3,
        max_words: int = 16,
        block: Block | None = None,
    ) -> ProbeExamples:
        """Sentences in which a head finds a relation, and some in which it does not.

        Of a result of `probe_dependencies`. `.figure()` draws them (Clark et al. 2019,
        Figure 5).

        Args:
            model: the model that was probed, or what `headscope.load` takes.
            corpus: parsed documents, or what `headscope.read` takes (then split into
                sentences).
            relation: as the table names it.
            layer: of the head; by default that of the relation's best head.
            head: likewise.
            direction: `dependent`: the dependent attends to its parent; `head`: the other
                way. By default that in which the best head is best.
            right: how many sentences in which the head is always right.
            wrong: how many in which it is not.
            max_words: longer sentences are passed over.
            block: which attention, in encoder-decoders.
        """
        from headscope.heads.examples import examples_of

        return examples_of(
            self,
            model,
            corpus,
            relation,
            layer=layer,
            head=head,
            direction=direction,
            right=right,
            wrong=wrong,
            max_words=max_words,
            block=block,
        )

    def report(
        self: Result,
        path: str | os.PathLike[str],
        *others: Result | Probe | str | os.PathLike[str],
        title: str | None = None,
        pages: Mapping[str, str] | None = None,
    ) -> Path:
        """Write a report: findings, figures and a card for every head in one HTML file.

        `headscope.report` says what is in it.

        Args:
            path: the file to write; it appears whole or not at all.
            others: more results, run folders or files of results, and trained probes.
            title: of the report; names the models by default.
            pages: addresses of explorer pages by the model's name.
        """
        from headscope.reporting.report import report

        return report([self, *others], path, title=title, pages=pages)

    def export(
        self: Result,
        form: str,
        folder: str | os.PathLike[str],
        *,
        block: str | None = None,
    ) -> Path:
        """Write the result as files that another tool reads.

        `headvis` is the folder of HeadVis (Luger, Kamath et al. 2026), which Neuronpedia reads
        too: a point and a file per head. The run must have measured `head_samples`. HeadVis's
        own scores count the first token and have no intervals; what headscope measured is beside
        them as `headscope_…`, with `…_low` and `…_high`.

        Args:
            form: `headvis`.
            folder: where to; it appears whole or not at all, and replaces an earlier export.
            block: another attention of the model: `decoder`.

        Raises:
            UnknownName: there is no such form.
            InputError: the result has no `head_samples`, or the folder holds something else.
        """
        from headscope.errors import UnknownName
        from headscope.heads.headvis import export_headvis

        if form != "headvis":
            raise UnknownName.of("form", form, ["headvis"])
        return export_headvis(self, folder, block=block)
