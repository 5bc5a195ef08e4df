"""Result of a run over a corpus: values, the states behind them, and provenance.

Values are xarray datasets, one for each attention block of the model. The states allow results
to be merged and compared later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import xarray as xr

from headscope.arguments import place_of, whole_number
from headscope.attention import key_stack, query_stack
from headscope.errors import InputError, UnknownName
from headscope.notebook import facts_table
from headscope.results.display import CURE, is_shown

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Iterable
    from pathlib import Path

    import pandas as pd
    from matplotlib.figure import Figure

    from headscope.attention import BlockName
    from headscope.heads.cards import HeadCard
    from headscope.heads.head_map import HeadMap
    from headscope.heads.replication import TestedFindings
    from headscope.heads.significant import Onsets, SignificantHeads
    from headscope.model.model import Model
    from headscope.probes.tables import BiasTable, ProbeTable
    from headscope.results.effect_data import Comparison
    from headscope.results.probe import Probe, ProbeExamples
    from headscope.text.corpus import Corpus
    from headscope.text.readers.read import Readable


def short_name(path: str) -> str:
    """Return the last part of a path."""
    return path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class MeasuredDocument:
    """Document with an exemplar of some head."""

    id: str
    tokens: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Exemplar:
    """Document with one of a head's highest weights, and the arc."""

    weight: float
    document: MeasuredDocument
    query: int
    key: int
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]

    def __str__(self) -> str:
        arc = f"{self.query_tokens[self.query].strip()} → {self.key_tokens[self.key].strip()}"
        between = "" if any(token.startswith(" ") for token in self.query_tokens) else " "
        return f"{self.weight:.3f} {arc}: {between.join(self.query_tokens).strip()}"


@dataclass(frozen=True, eq=False)
class Result:
    """Result of a run. `result["distance"]` is a DataArray over layer and head.

    Attributes:
        blocks: values, a dataset for each attention block.
        states: sums behind the values, by block and metric.
        provenance: model, corpus, plan, versions, counts, omitted documents.
        documents: documents of exemplars by their number in the corpus.
        groups: values of each group of documents (genres), if the run has groups.
    """

    blocks: Mapping[str, xr.Dataset]
    states: Mapping[str, Mapping[str, xr.Dataset]]
    provenance: Mapping[str, Any]
    documents: Mapping[int, MeasuredDocument] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, xr.Dataset]] = field(default_factory=dict)

    @property
    def dataset(self) -> xr.Dataset:
        """Values of the main attention (the only one, or the encoder's)."""
        return next(iter(self.blocks.values()))

    def __getitem__(self, name: str) -> xr.DataArray:
        if name not in self.dataset:
            raise UnknownName.of("variable", name, map(str, self.dataset.data_vars))
        return self.dataset[name]

    def __contains__(self, name: object) -> bool:
        return name in self.dataset

    def block(self, name: str) -> xr.Dataset:
        """Return the values of another block: `encoder`, `decoder` or `cross`."""
        UnknownName.check("block", name, self.blocks)
        return self.blocks[name]

    @property
    def model(self) -> str:
        """Name of the model."""
        return str(self.provenance["model"]["name"])

    @property
    def corpus_name(self) -> str:
        """Name of the corpus: its files without folders, and the group."""
        name = str(self.provenance.get("corpus", {}).get("name", "a corpus"))
        name = " + ".join(short_name(part) for part in name.split(" + "))
        group = self.provenance.get("group")
        return f"{name}, {group}" if group else name

    @property
    def over(self) -> str:
        """Measured weights: `attention`, or `norm` for norm-weighted attention."""
        return str(self.provenance.get("settings", {}).get("over", "attention"))

    @property
    def title(self) -> str:
        """Model, corpus, weighting and assumptions, for figures and tables."""
        weighting = "weighted by norms" * (self.over == "norm")
        parts = (self.model, self.corpus_name, weighting, self.independence)
        return " · ".join(filter(None, parts))

    @property
    def independence(self) -> str:
        """Units that intervals take as independent; empty if those are marked documents."""
        return str(self.provenance.get("corpus", {}).get("independence", ""))

    @property
    def n_documents(self) -> int:
        """Number of measured documents."""
        return int(self.dataset["tokens_per_document_count"].max())

    @property
    def steps(self) -> list[int]:
        """Training steps of a tracked model (`HeadTracker`); empty for other results."""
        from headscope.results.steps import steps_of

        return steps_of(self)

    def at_step(self, step: int) -> Result:
        """Return the result of one training step, as `analyze` gives it.

        Steps read the same documents: `result.at_step(900).compare(result.at_step(100))` is paired.
        """
        from headscope.results.steps import result_at

        return result_at(self, step)

    def onsets(
        self, name: str, threshold: float = 0.5, *, block: str | None = None, **labels: str | int
    ) -> Onsets:
        """Return when heads rose above a threshold: the first step after which each stays above.

        The interval holds the true step, among those tracked, with 95 % confidence for each head:
        bounds are simultaneous over all steps (Bonferroni). Needs a result with the axis `step`.

        Args:
            name: variable over layer and head; `previous_token` is `offset_share` at offset −1.
            threshold: the value to stay above; default: the share that a role needs.
            block: another attention block, such as `decoder`.
            labels: one label for each other axis.
        """
        from headscope.heads.significant import find_onsets

        return find_onsets(self, name, threshold, block=block, **labels)

    def exemplars(self, layer: int, head: int, block: str | None = None) -> list[Exemplar]:
        """Return documents with a head's highest weights, highest first."""
        name = block or next(iter(self.blocks))
        data = self.block(name)
        if "exemplar_weight" not in data:
            raise InputError("This result has no exemplars: the run did not measure them.")
        # Bare variables: `data.sel` would cut all of the result, and `data[…]` looks up labels.
        bare = data.variables
        place = [
            place_of(axis, value, bare[axis].values.tolist())
            for axis, value in (("layer", layer), ("head", head))
        ]
        weights, documents, queries, keys = (
            bare[f"exemplar_{array}"].transpose("layer", "head", "rank").values[tuple(place)]
            for array in ("weight", "document", "query", "key")
        )
        exemplars = []
        for weight, number, query, key in zip(weights, documents, queries, keys, strict=True):
            if number < 0:
                break
            document = self.documents[int(number)]
            exemplars.append(
                Exemplar(
                    float(weight),
                    document,
                    int(query),
                    int(key),
                    document.tokens[query_stack(name, document.tokens)],
                    document.tokens[key_stack(name, document.tokens)],
                )
            )
        return exemplars

    def top(
        self, name: str, n: int = 10, *, block: str | None = None, **labels: str | int
    ) -> list[tuple[int, int, float]]:
        """Return layer, head and value of the heads with the highest values of a variable.

        Args:
            name: variable over layer and head.
            n: number of heads.
            block: another attention block, such as `decoder`.
            labels: one label for each other axis: `result.top("pos_to", tag="NOUN")`.
        """
        n = whole_number("n", n)
        data = self.dataset if block is None else self.block(block)
        if name not in data:
            raise UnknownName.of("variable", name, map(str, data.data_vars))
        values = data[name]
        axes = [str(dim) for dim in values.dims if dim not in ("layer", "head")]
        check_labels(values, labels, axes, f"axis of {name}")
        values = values.sel(labels)
        if set(values.dims) != {"layer", "head"}:
            others = [dim for dim in values.dims if dim not in ("layer", "head")]
            first = others[0]
            labels_of = ", ".join(map(repr, values[first].values.tolist()[:4]))
            raise InputError(
                f"{name} also has the axes {', '.join(map(str, others))}: give a label of each, "
                f"such as one of {labels_of} for {first}."
            )
        flat = values.transpose("layer", "head").to_series().dropna()
        largest = flat.sort_values(key=lambda numbers: -numbers, kind="stable")[:n]
        return [(int(layer), int(head), float(value)) for (layer, head), value in largest.items()]

    def to_dataframe(
        self, *names: str, block: str | None = None, **labels: str | int
    ) -> pd.DataFrame:
        """Return variables as a pandas table: a row for each head, a column for each variable.

        Axes besides layer and head (`tag`, `relation`) are further levels of the index. Intervals
        are the columns `…_low` and `…_high`.

        Args:
            names: variables over the same axes; by default all with one value per head.
            block: another attention block, such as `decoder`.
            labels: labels of further axes, which are then dropped: `parent="either"`.

        Raises:
            UnknownName: a variable, axis or label does not exist.
            InputError: a variable is a single number, or the variables differ in their axes.
        """
        return make_frame(self.dataset if block is None else self.block(block), names, labels)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to one netCDF file, readable by `headscope.open` and xarray."""
        from headscope.results.files import save_result

        save_result(self, path)

    @property
    def summary(self) -> str:
        """Size of the corpus: `2,001 documents (sentences), 25,148 tokens, 3 cut to 512 tokens`.

        It also says what is taken as independent, and names the sums that one document dominates.
        """
        n, provenance = self.n_documents, self.provenance
        unit = str(provenance.get("corpus", {}).get("unit", ""))
        plural = unit.replace("document as given", "as given") + "s" * unit.isalpha()
        parts = [
            f"{n:,} document{'s' * (n != 1)}" + f" ({plural})" * (unit not in ("", "document"))
        ]
        counts = provenance.get("counts", {})
        if "tokens" in counts:
            parts.append(f"{counts['tokens']:,} tokens")
        if counts.get("truncated"):
            limit = provenance.get("settings", {}).get("max_tokens", "fewer")
            parts.append(f"{counts['truncated']:,} cut to {limit} tokens")
        if counts.get("long_words"):
            n, limit = counts["long_words"], provenance["settings"]["max_word_tokens"]
            parts.append(f"{n:,} word{'s' * (n != 1)} of over {limit} tokens left out")
        if counts.get("failed"):
            parts.append(f"{counts['failed']:,} left out")
        shares = {
            str(name).removesuffix("_n_eff"): float(array.attrs["largest_share"])
            for name, array in self.dataset.data_vars.items()
            if "largest_share" in array.attrs
        }
        size = "; ".join(filter(None, [", ".join(parts), self.independence]))
        if not shares:
            return size
        named = ", ".join(list(shares)[:3]) + f" and {len(shares) - 3} more" * (len(shares) > 3)
        return (
            f"{size}; one document holds {max(shares.values()):.0%} of {named}, and "
            f"intervals say little of others: {CURE}"
        )

    def __repr__(self) -> str:
        return (
            f"<Result of {self.model}: {self._size}; {self.summary}: {', '.join(self._measured)}>"
        )

    def _repr_html_(self) -> str:
        facts = [
            ("model", self.model),
            ("corpus", self.corpus_name),
            ("size", self._size),
            ("read", self.summary),
            ("groups", ", ".join(self.groups)),
            ("variables", ", ".join(self._measured)),
        ]
        return facts_table("Result", facts)

    @property
    def _size(self) -> str:
        sizes = self.dataset.sizes
        size = f"{sizes.get('layer', 0)} layers × {sizes.get('head', 0)} heads"
        return f"{len(self.steps)} steps × {size}" if self.steps else size

    @property
    def _measured(self) -> list[str]:
        names = map(str, self.dataset.data_vars)
        derived = (*DERIVED, "_count", "_by_layer", "_mean")
        return [name for name in names if not name.endswith(derived)]

    def group(self, name: str) -> Result:
        """Return the result of one group of documents (a genre).

        Exemplars and divergences are omitted: their states are not kept by group.
        """
        from headscope.run.merge import group_result

        return group_result(self, name)

    def compare(self, other: Result) -> Comparison:
        """Return differences, this result minus the other, with 95 % intervals and p values.

        Compares two models over one corpus, or two genres under one model (`result.group`).
        Variables are compared head by head if both models have the same layers and heads; their
        means over heads (`…_mean`) always. Results of the same documents are paired; the
        attribute `comparison` says so. Of probes of the same documents, `accuracy_best` and
        `coref_accuracy_best` compare best head with best head, also of models of other shape:
        cross-fitted, with intervals and tests that count the choice of the head, Holm-corrected
        over relations. `…_p` is the two-sided p value of each difference, and
        `…_p_adjusted` is corrected for all heads of the variable (Benjamini & Hochberg): use it
        in lists. Variability is omitted if the sides kept different numbers of documents, since
        fewer make it smaller. Unregistered metrics (`headscope.register_metric`) are omitted with
        a warning.

        Args:
            other: the result to compare with.
        """
        from headscope.run.compare import compare

        return compare(self, other)

    def significant(
        self,
        name: str,
        *,
        against: float | str | Result = "mean",
        level: float = 0.05,
        block: str | None = None,
        **labels: str | int,
    ) -> SignificantHeads:
        """List heads whose value is significantly high, corrected for all heads.

        Each head has one p value, from the standard error of its interval, corrected by Benjamini
        & Hochberg: the expected share of false heads in the list is at most `level`. If few
        documents skew the error, p is more conservative than the interval.

        Args:
            name: variable over layer and head.
            against: a number; another variable of this result; `mean`, the mean over heads;
                `baseline`, the variable's own (`dep_alignment`: uniform attention; `accuracy`:
                every fixed offset; `coref_accuracy`: every rule); or another result, for
                two-sided differences.
            level: level of the corrected p values.
            block: another attention block, such as `decoder`.
            labels: one label for each other axis: `result.significant("pos_to", tag="NOUN")`.
        """
        from headscope.heads.significant import significant_heads

        return significant_heads(self, name, against=against, level=level, block=block, **labels)

    def replicates(
        self, other: Result, names: Sequence[str] | None = None, *, n: int | None = 3
    ) -> TestedFindings:
        """Return which findings of this corpus hold on another corpus of the same model.

        Findings are heads above their baseline or the mean over heads (`significant`), the highest
        layer above the lowest, and the best heads of a probe above their baselines. A head chosen
        here is tested there as it is. Each test is one-sided, in the direction found here, and
        Holm-corrected over all findings: with p below 0.05 a finding holds. Documents that both
        corpora contain make findings hold too often.

        Args:
            other: result of the same model and metrics on other documents.
            names: variables; by default those over layer and head alone, `dep_alignment`,
                `offset_share` and a probe's accuracy. Of others (`pos_to`) each label is tested.
            n: number of heads of each list, those with the highest values; None for all. Fewer
                findings are corrected less.

        Raises:
            InputError: the models or weightings differ, or the documents are the same.
        """
        from headscope.heads.replication import replicate

        return replicate(self, other, names, n)

    def figure(self, name: str, **options: object) -> Figure:
        """Draw one figure of the papers, or of headscope, with matplotlib.

        Save it with `figure.savefig(path)`.

        Args:
            name: `vb-5` … `vb-12`, `vb-a1` and `vb-a2` are figures of Vig & Belinkov (2019),
                `vb-exemplars` their Tables 1 to 3 for one head; `clark-1` to `clark-4` and
                `clark-6` figures of Clark et al. (2019); `genres` compares groups. Any variable
                over layer and head gives a heat map.
            options: `layer`, `head`, `n` and `block` for `vb-exemplars`; `probes`, `effects`,
                `thresholds`, `seed` and `starts` of `map_heads` for `clark-6`.

        Raises:
            UnknownName: the figure does not exist.
            InputError: the result lacks a variable, or an option is missing or unknown.
        """
        from headscope.figures.papers import draw

        return draw(self, name, **options)

    def save_figures(
        self,
        folder: str | os.PathLike[str],
        *,
        figures: Iterable[str] | None = None,
        formats: Iterable[str] = ("svg", "pdf", "png"),
        exemplars: Iterable[tuple[int, int]] = (),
    ) -> list[Path]:
        """Write figures to files: by default all possible ones, in SVG, PDF and PNG.

        `exemplars` are heads (layer, head) for `vb-exemplars`.
        """
        from headscope.figures.papers import save_figures

        return save_figures(self, folder, figures=figures, formats=formats, exemplars=exemplars)

    def card(
        self,
        layer: int,
        head: int,
        *others: Result,
        heads: HeadMap | None = None,
        n_exemplars: int = 3,
    ) -> HeadCard:
        """Return all measurements of one head, also of more results of the same model.

        `heads` is a map for the nearest heads; by default they come from `js`, if measured.
        `n_exemplars` is the number of highest weights to show.
        """
        from headscope.heads.cards import make_card

        return make_card([self, *others], layer, head, heads=heads, n_exemplars=n_exemplars)

    def table(
        self,
        heads: Result | Iterable[tuple[int, int]] | None = None,
        *,
        n: int = 5,
        block: str | None = None,
        relations: Sequence[str] = (),
    ) -> ProbeTable | BiasTable:
        """Return the table of a probe's result.

        For `probe_dependencies` and `probe_coreference`: the best head of each relation (Clark
        et al. 2019, Table 1) or kind of mention (Table 2). For `probe_bias`: coreference heads on
        pro- and anti-stereotypical pronouns.

        Args:
            heads: for `probe_bias`: pairs (layer, head), or a result of `probe_coreference` with
                the same model, whose `n` best heads are used. By default the `n` heads with the
                highest accuracy in these sentences.
            n: number of heads, for `probe_bias`.
            block: another attention block, such as `decoder`.
            relations: planned rows, chosen before the run. They are corrected among themselves;
                all others are exploratory.

        Raises:
            InputError: the result is not of a probe.
        """
        from headscope.probes.tables import table_of

        return table_of(self, heads, n=n, block=block, relations=relations)

    def examples(
        self,
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
        block: BlockName | None = None,
    ) -> ProbeExamples:
        """Return sentences in which a head finds a relation, and some in which it does not.

        Needs a result of `probe_dependencies`. `.figure()` draws them (Clark et al. 2019,
        Figure 5).

        Args:
            model: the probed model, or an argument of `headscope.load`.
            corpus: parsed documents, or an argument of `headscope.read` (then by sentence).
            relation: label of a row of the table.
            layer: layer of the head; by default that of the relation's best head.
            head: head; by default the relation's best.
            direction: `dependent`: the dependent attends to its parent; `head`: the parent
                attends to its dependent. By default the best head's direction.
            right: number of sentences in which the head is always right.
            wrong: number of other sentences.
            max_words: longer sentences are skipped.
            block: attention block of an encoder-decoder.
        """
        from headscope.probes.probe_dependencies import examples_of

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
        self,
        path: str | os.PathLike[str],
        *others: Result | Probe | str | os.PathLike[str],
        title: str | None = None,
        pages: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Path:
        """Write a report: findings, figures and a card for every head. See `headscope.report`.

        `others` are more results, run folders or files of results, and trained probes; `options`
        are `replicate` and `hypotheses`.
        """
        from headscope.reporting.report import report

        return report([self, *others], path, title=title, pages=pages, **options)

    def export(
        self, form: str, folder: str | os.PathLike[str], *, block: str | None = None
    ) -> Path:
        """Write the result as files of another tool.

        `headvis` is the folder of HeadVis (Luger, Kamath et al. 2026), which Neuronpedia reads
        too: a point and a file per head. The run must have measured `head_samples`. HeadVis's
        scores count the first token and have no intervals; headscope's numbers are added as
        `headscope_…`, with `…_low` and `…_high`.

        Args:
            form: `headvis`.
            folder: folder to write; it appears when complete, and replaces an earlier export.
            block: another attention block, such as `decoder`.

        Raises:
            UnknownName: the form is unknown.
            InputError: the result lacks `head_samples`, or the folder holds something else.
        """
        from headscope.heads.headvis import export_headvis

        UnknownName.check("form", form, ["headvis"])
        return export_headvis(self, folder, block=block)


HEADS = ("layer", "head")
INTERVAL = "_interval"
DERIVED = (INTERVAL, "_n_eff", "_typical")


def check_labels(
    data: xr.Dataset | xr.DataArray,
    labels: Mapping[str, str | int],
    axes: Iterable[Hashable],
    noun: str,
) -> None:
    """Raise UnknownName for an axis that is not among `axes`, or a label it does not have."""
    names = list(map(str, axes))
    for axis, label in labels.items():
        UnknownName.check(noun, axis, names)
        known = data[axis].values.tolist()
        if label not in known:
            raise UnknownName.of(axis, str(label), map(str, known))


def make_frame(
    data: xr.Dataset, names: Sequence[str], labels: Mapping[str, str | int]
) -> pd.DataFrame:
    """Return variables as columns, with their axes as the index, layer and head first."""
    import pandas as pd  # opening a result does not need it

    check_labels(data, labels, data.coords, "axis")
    data = data.sel(labels)
    variables = [str(name) for name in data.data_vars if not str(name).endswith(DERIVED)]
    for name in names:
        UnknownName.check("variable", name, variables)
    chosen = list(names) or [
        name for name in variables if set(data[name].dims) == set(HEADS) and is_shown(data[name])
    ]
    if not chosen:
        raise InputError("This result has no variable over layer and head alone: name one.")
    order = {axis: place for place, axis in enumerate(HEADS)}
    axes = {
        name: sorted(map(str, data[name].dims), key=lambda axis: (order.get(axis, 2), axis))
        for name in chosen
    }
    first = axes[chosen[0]]
    for name in chosen:
        if not axes[name]:
            raise InputError(f'{name} is a single number: float(result["{name}"]).')
        if set(axes[name]) != set(first):
            raise InputError(
                f"{chosen[0]} is over {', '.join(first)}, {name} over {', '.join(axes[name])}. "
                "Variables of one table have the same axes: name a label of the others, such as "
                'parent="either", or ask for one table each.'
            )
    columns = {}
    for name in chosen:
        columns[name] = data[name].transpose(*first).to_series()
        if f"{name}{INTERVAL}" in data:
            bounds = data[f"{name}{INTERVAL}"]
            for bound in ("low", "high"):
                column = bounds.sel(bound=bound, drop=True).transpose(*first).to_series()
                columns[f"{name}_{bound}"] = column
    return pd.DataFrame(columns)
