"""Error rates of sentences about several runs: antecedents, norms, probes, replication, training.

    python -m studies.errors --data FOLDER --sentences

Each model reads a few sentences of each document once; the sums of each document are kept.
Documents are drawn with replacement and joined to results like those of `headscope.analyze`. The
package's own functions speak about them: `Result.replicates`, `planned_findings`, `find_onsets`,
`attachment`, the rules of reports. Null hypotheses are made true in the sums of all documents. GUM
and EWT were used when the tests behind these sentences were chosen; PYDOC was not.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xarray as xr

import headscope as hs
from headscope.figures.chart_data import ModelResults
from headscope.heads.replication import HOLDS, planned_findings
from headscope.heads.significant import Onset, find_onsets
from headscope.metrics.core.contract import Metric
from headscope.metrics.core.finalize import finalize_all, label_states
from headscope.metrics.coreference import RULES
from headscope.probes.train_probe import attachment
from headscope.reporting.findings import norms
from headscope.results.result import Result
from headscope.results.steps import stack_steps
from headscope.run.compare import compare
from headscope.run.merge import axes_of, registered_metrics_of
from headscope.run.options import RunOptions
from headscope.statistics.jackknife import Scale
from headscope.text.document import Document
from studies.errors.draws import N_PARTS, draw
from studies.errors.lists import _medians, alike
from studies.errors.populations import _named, read_docstrings
from studies.errors.record import Rate, upper_bound
from studies.gum.corpora import draw_per_document, read_gum

CORPORA = ("GUM", "EWT", "PYDOC")
HELD_OUT = ("PYDOC",)
SENTENCES = 2
"""Of each document, at most."""
TRAINED_ON = 200
"""Sentences of another corpus that a probe is trained on."""
METRICS = ("null_share", "distance", "offset_share", "dep_accuracy", "dep_offset")
VARIABLES: dict[str, Scale] = {"null_share": "logit", "distance": "positive"}
"""Of which heads are found."""
SPOKEN = (
    "antecedents", "first", "first, before", "norms", "norms, coverage", "onsets",
    "onsets, of the first", "planned", "planned, one", "planned, total", "planned, total, one",
    "probes", "replicates", "replicates, total",
)  # fmt: skip
"""All questions of this module."""
SIZES = (20,)
STEPS = 6
"""Of a made-up training."""
N_TRAINED, FIRST, LAST, WIDTH = 12, -3.0, 1.5, 0.5
"""Heads of it, their log odds at the start and at the end, and how many steps the rise takes."""
TINY = 1e-9
Outcomes = dict[str, float]
"""By question, 1 or 0: is anything said that is false, does an interval or a set hold?"""
Sample = Callable[[np.ndarray, np.ndarray, int], Outcomes]
"""From the documents of a sample, their buckets, and its number."""
Samples = dict[str, tuple[int, Callable[[int], Sample]]]
"""By name: the number of documents, and the sample for samples of some size."""


def documents_of(data: Path, corpus: str) -> list[Document]:
    """All documents of a corpus."""
    if corpus == "GUM":
        return read_gum(data / "gum")
    if corpus == "EWT":
        return list(hs.read(data / "ud_ewt" / "en_ewt-ud-dev.conllu", unit="document"))
    return read_docstrings()


def _pieces(documents: Sequence[Document]) -> list[Document]:
    pieces = (piece for document in documents for piece in document.split("sentence"))
    return [_named(piece) for piece in draw_per_document(pieces, SENTENCES)]


def read_results(data: Path, out: Path, model: str, corpus: str) -> dict[str, Result]:
    """Runs with a group for each document, measured at the first call and kept in files."""
    folder = out / f"sentences-{model}-{corpus.lower()}"
    kinds = ["plain", "norm", *(["coreference"] if corpus == "GUM" else [])]
    if not all((folder / f"{kind}.nc").is_file() for kind in kinds):
        folder.mkdir(parents=True, exist_ok=True)
        loaded, documents = hs.load(model), documents_of(data, corpus)
        read = hs.read(_pieces(documents), name=corpus)
        options: RunOptions = {"by": "source", "progress": False, "workers": 1}
        made = {
            "plain": hs.analyze(loaded, read, METRICS, **options),
            "norm": hs.analyze(loaded, read, ["null_share"], over="norm", **options),
        }
        if "coreference" in kinds:
            whole = hs.read([_named(document) for document in documents], name=corpus)
            made["coreference"] = hs.probe_coreference(loaded, whole, **options)
        for kind, result in made.items():
            result.save(folder / f"{kind}.nc")
    return {kind: hs.open(folder / f"{kind}.nc") for kind in kinds}


def read_probe(data: Path, out: Path, model: str, corpus: str) -> xr.Dataset:
    """`sentence …`: scores of a probe that was trained on another corpus, and the documents."""
    path = out / f"sentences-{model}-{corpus.lower()}" / "probe.nc"
    if not path.is_file():
        other = _pieces(documents_of(data, "GUM" if corpus == "EWT" else "EWT"))
        dev = _pieces(documents_of(data, corpus))
        probe = hs.train_probe(
            model, hs.read(other[:TRAINED_ON]), hs.read(dev), "attention",
            cache=path.with_name("attention"), progress=False,
        )  # fmt: skip
        probe.scores[["right", "counted", "text"]].to_netcdf(path, engine="h5netcdf")
    return xr.load_dataset(path, engine="h5netcdf")


def sentence_rates(
    population: str, asked: Samples, repetitions: int, processes: int | None
) -> Iterator[Rate]:
    """All rates of this module, of one population, in several processes."""
    times = {"probes": 25}  # which are quick
    jobs = [
        (population, name, n, repetitions * times.get(name, 1)) for name in asked for n in SIZES
    ]
    global _asked
    _asked = asked
    with ProcessPoolExecutor(processes, multiprocessing.get_context("fork")) as pool:
        for rates in pool.map(_counted, *zip(*jobs, strict=True)):
            yield from rates


_asked: Samples = {}
"""Inherited by processes."""


def _counted(population: str, variable: str, n: int, repetitions: int) -> list[Rate]:
    n_documents, make = _asked[variable]
    return [
        Rate(
            question, population, variable, n, len(outcomes),
            float(np.mean(outcomes)), upper_bound(outcomes),
        )
        for question, outcomes in counted(make(n), n_documents, n, repetitions).items()
    ]  # fmt: skip


def asked_of(results: Mapping[str, Runs], scores: xr.Dataset) -> Samples:
    """What is asked of runs: by name, the number of documents and the sample."""
    plain, norm, offsets, relations = (
        results[name] for name in ("plain", "norm", "offsets", "relations")
    )
    asked: Samples = {
        "norms": (len(plain), lambda n: weighted(plain.only("null_share"), norm)),
        "probes": (int(scores["text"].max()) + 1, lambda n: probed(scores)),
        "onsets": (len(offsets), lambda n: trained(offsets)),
        "replicated, relations": (
            len(relations),
            lambda n: replicated(relations, tied_to_offsets(relations), "replicates"),
        ),
    }  # fmt: skip
    for way, end in (("most", ""), ("total", ", total")):

        def again(n: int, way: str = way, question: str = f"replicates{end}") -> Sample:
            return replicated(plain, alike_heads(plain, way, n), question)

        def before(n: int, way: str = way, question: str = f"planned{end}") -> Sample:
            return planned(alike_heads(plain, way, n), question)

        asked |= {
            f"replicated, {way}": (len(plain), again),
            f"planned, {way}": (len(plain), before),
        }
    if "coreference" in results:
        runs = results["coreference"]
        best = len(RULES) - 1  # the hardest: heads that are tied with it beat the others
        asked["tied with the best rule"] = (
            len(runs), lambda n: antecedents(tied_to_rule(runs, best), RULES[best])
        )  # fmt: skip
    return asked


def real_runs(data: Path, out: Path, model: str, corpus: str) -> tuple[dict[str, Runs], xr.Dataset]:
    """The runs of one model over one corpus, and the scores of its probe."""
    results = read_results(data, out, model, corpus)
    runs = {
        "plain": Runs.of(results["plain"], *VARIABLES),
        "norm": Runs.of(results["norm"], "null_share"),
        "offsets": Runs.of(results["plain"], "offset_share"),
        "relations": Runs.of(results["plain"], "dep_accuracy", "dep_offset"),
    }
    if "coreference" in results:
        runs["coreference"] = Runs.of(results["coreference"], "coref_accuracy", "coref_baseline")
    return runs, read_probe(data, out, model, corpus)


def counted(sample: Sample, n_documents: int, n: int, repetitions: int) -> dict[str, list[float]]:
    """Outcomes of all samples, by question; those without an interval or a test are left out."""
    outcomes: dict[str, list[float]] = {}
    for drawn in draw(n_documents, n, repetitions, n):
        for number, documents, parts in drawn:
            for question, outcome in sample(documents, parts, number).items():
                if not np.isnan(outcome):
                    outcomes.setdefault(question, []).append(outcome)
    return outcomes


@dataclass(frozen=True)
class Runs:
    """A result with the sums of each document, to draw results from."""

    result: Result
    states: dict[str, dict[str, np.ndarray]]
    """By metric and array, `document …`."""
    axes: dict[str, dict[str, int]]
    """By metric and array, the axis of the documents in the result."""
    metrics: tuple[Metric, ...]

    @classmethod
    def of(cls, result: Result, *names: str) -> Runs:
        """Some metrics of a result with a group for each document."""
        labeled = result.states[next(iter(result.blocks))]
        metrics = tuple(m for m in registered_metrics_of(result) if m.name in names)
        states: dict[str, dict[str, np.ndarray]] = {metric.name: {} for metric in metrics}
        axes: dict[str, dict[str, int]] = {metric.name: {} for metric in metrics}
        for metric in metrics:
            for name, array in labeled[metric.name].data_vars.items():
                at = axes[metric.name][str(name)] = array.dims.index("bucket")
                states[metric.name][str(name)] = np.moveaxis(array.values, at, 0)
        about = [m for m in result.provenance["metrics"] if m["name"] in names]
        kept = replace(result, groups={}, provenance={**result.provenance, "metrics": about})
        return cls(kept, states, axes, metrics)

    def __len__(self) -> int:
        return len(next(iter(next(iter(self.states.values())).values())))

    def only(self, metric: str) -> Runs:
        """The runs of one metric."""
        provenance = self.result.provenance
        about = [m for m in provenance["metrics"] if m["name"] == metric]
        result = replace(self.result, provenance={**provenance, "metrics": about})
        metrics = tuple(m for m in self.metrics if m.name == metric)
        return replace(self, result=result, states={metric: self.states[metric]}, metrics=metrics)

    def sums(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """`document head`: numerator and denominator of a variable over layer and head."""
        a, b = (self.states[metric][side] for side in ("numerator", "denominator"))
        return a.reshape(len(a), -1), np.broadcast_to(b, a.shape).reshape(len(a), -1)

    def changed(self, metric: str, **arrays: np.ndarray) -> Runs:
        """The runs with other sums of a metric."""
        old = self.states[metric]
        new = {name: array.reshape(old[name].shape) for name, array in arrays.items()}
        return replace(self, states={**self.states, metric: {**old, **new}})

    def drawn(self, documents: np.ndarray, parts: np.ndarray, corpus: str = "a") -> Result:
        """The result of some documents, each in its bucket."""
        deal = np.zeros((N_PARTS, len(self)))
        np.add.at(deal, (parts, documents), 1)
        states = {
            metric: {
                name: np.moveaxis(np.tensordot(deal, array, 1), 0, self.axes[metric][name])
                for name, array in arrays.items()
            }
            for metric, arrays in self.states.items()
        }
        block = next(iter(self.result.blocks))
        axes = replace(axes_of(self.result), groups=("",), buckets=(), buckets_per_group=N_PARTS)
        layers = {block: self.result.dataset["layer"].values.tolist()}
        blocks = finalize_all(
            {block: states}, self.metrics, axes, layers, has_intervals=False, over=self.result.over
        )
        n_read = ((), float(len(documents)))
        blocks[block] = blocks[block].assign(tokens_per_document_count=n_read)
        about = self.result.provenance
        named = {**about["corpus"], "name": corpus, "hash": corpus}
        provenance = {**about, "axes": axes.to_dict(), "corpus": named}
        return Result(blocks, label_states({block: states}, self.metrics), provenance)


def alike_in_most(a: np.ndarray, b: np.ndarray, scale: Scale, n: int) -> np.ndarray:
    """Numerators with which each head is above the mean over heads in half of the buckets of
    samples of `n` documents: no list may name it.
    """
    least = np.maximum(a, TINY)
    odds = np.log(least) - np.log(np.maximum(b - a, TINY) if scale == "logit" else b + TINY)
    shift = np.zeros(a.shape[1])
    for _ in range(6):
        moved = b / (1 + np.exp(-odds - shift)) if scale == "logit" else b * np.exp(odds + shift)
        samples = (len(a), n, 40, 0, a.shape[1])
        off = _medians(moved, b, lambda x: x - x.mean(-1, keepdims=True), *samples)
        values = moved.sum(0) / b.sum(0)
        shift -= off / (values * (1 - values) if scale == "logit" else values)
    return np.asarray(moved)


def alike_heads(runs: Runs, way: str, n: int) -> Runs:
    """The runs with heads alike, in most documents (`most`) or in total."""
    for metric, scale in VARIABLES.items():
        a, b = runs.sums(metric)
        same = alike_in_most(a, b, scale, n) if way == "most" else alike(a, b, scale)
        runs = runs.changed(metric, numerator=same)
    return runs


def tied_to_offsets(runs: Runs) -> Runs:
    """The runs with every head as often right about each relation as the best offset, in total."""
    ours, theirs = runs.states["dep_accuracy"], runs.states["dep_offset"]
    arrays = {}
    for end in ("", "_all"):
        right, cases = ours[f"right{end}"], ours[f"cases{end}"]
        n = np.maximum(cases.sum(0), 1)[..., None, None]
        best = theirs[f"right{end}"].sum(0).max(0)
        off = (right.sum(0) - best[..., None, None]) / n
        arrays[f"right{end}"] = right - off * cases[..., None, None]
    return runs.changed("dep_accuracy", **arrays)


def tied_to_rule(runs: Runs, rule: int) -> Runs:
    """The runs with every head as often right about antecedents as a rule, in total."""
    ours, theirs = runs.states["coref_accuracy"], runs.states["coref_baseline"]
    right, cases = ours["numerator"], ours["denominator"]
    best = theirs["numerator"][..., rule].sum(0)
    cases = np.broadcast_to(cases.reshape(*cases.shape[:2], -1, cases.shape[-1]), right.shape)
    off = (right.sum(0) - best) / np.maximum(cases.sum(0), 1)
    return runs.changed("coref_accuracy", numerator=right - off * cases)


def replicated(runs: Runs, other: Runs, question: str) -> Sample:
    """Does any finding of one sample hold in another, where nothing is to be found?"""

    def sample(documents: np.ndarray, parts: np.ndarray, number: int) -> Outcomes:
        generator = np.random.default_rng((number, len(documents)))
        more = generator.integers(0, len(other), len(documents)), generator.permuted(parts)
        table = runs.drawn(documents, parts).replicates(other.drawn(*more, "b"))
        heads = [row for claim, row in table.rows if " is above layer " not in claim.text]
        said = heads if question == "replicates" else [row for _, row in table.rows]
        return {question: float(any(one.verdict == HOLDS for (one,) in said))}

    return sample


def planned(runs: Runs, question: str) -> Sample:
    """Does any planned claim hold that is false? All heads are claimed, or one of them."""
    layers, heads = (runs.result.dataset[axis].values.tolist() for axis in ("layer", "head"))

    def sample(documents: np.ndarray, parts: np.ndarray, number: int) -> Outcomes:
        result = runs.drawn(documents, parts)
        generator = np.random.default_rng(number)
        one = {"layer": generator.choice(layers), "head": generator.choice(heads)}
        families = [list(VARIABLES)], [[(name, one)] for name in VARIABLES]
        said = [
            [
                any(e.verdict == HOLDS for _, e in planned_findings([result], some))
                for some in family
            ]
            for family in families
        ]
        return {question: float(np.mean(said[0])), f"{question}, one": float(np.mean(said[1]))}

    return sample


def weighted(plain: Runs, normed: Runs) -> Sample:
    """Does null attention “fall”, or “rise”, whose mean over heads is the same by norms?"""
    a, b = normed.sums("null_share")
    c, d = plain.sums("null_share")
    truth, odds = (c.sum(0) / d.sum(0)).mean(), np.log(a + TINY) - np.log(np.maximum(b - a, TINY))
    low, high = -30.0, 30.0
    for _ in range(60):
        middle = (low + high) / 2
        same = b / (1 + np.exp(-odds - middle))
        is_low = (same.sum(0) / b.sum(0)).mean() < truth
        low, high = (middle, high) if is_low else (low, middle)
    normed = normed.changed("null_share", numerator=same)

    def sample(documents: np.ndarray, parts: np.ndarray, number: int) -> Outcomes:
        sides = [runs.drawn(documents, parts) for runs in (plain, normed)]
        bounds = compare(sides[0], sides[1])["null_share_mean_interval"].values
        holds = np.nan if np.isnan(bounds[0]) else float(bounds[0] <= 0 <= bounds[1])
        said = norms(ModelResults("", (sides[0],), normed=sides[1]), 0)
        return {"norms": float(said is not None), "norms, coverage": holds}

    return sample


def antecedents(runs: Runs, rule: str) -> Sample:
    """Do heads find “more than” a rule with which all of them are tied?"""

    def sample(documents: np.ndarray, parts: np.ndarray, number: int) -> Outcomes:
        row = runs.drawn(documents, parts).table()["all"]
        return {"antecedents": float(row.gains[rule].is_clear)}

    return sample


def probed(scores: xr.Dataset) -> Sample:
    """Does the interval of a trained probe hold its score on all documents?"""
    right, counted, text = (scores[name].values for name in ("right", "counted", "text"))
    places = {"decoding": "greedy", "punctuation": "without"}
    truth = float((scores["right"].sum("sentence") / scores["counted"].sum("sentence")).sel(places))
    of_text = [np.flatnonzero(text == number) for number in range(text.max() + 1)]

    def sample(documents: np.ndarray, parts: np.ndarray, number: int) -> Outcomes:
        some = np.concatenate([of_text[document] for document in documents])
        texts = np.repeat(np.arange(len(documents)), [len(of_text[d]) for d in documents])
        baseline = np.zeros_like(counted[some])
        found = attachment(right[some], baseline, counted[some], texts.astype(str).tolist())
        low, high = found["uas_interval"].sel(places).values
        return {"probes": np.nan if np.isnan(low) else float(low <= truth <= high)}

    return sample


def trained(runs: Runs) -> Sample:
    """Do the intervals of onsets hold, is the first head the first, does its set hold that one?

    Heads rise to the previous token within a made-up training; documents are as uneven as they are
    for the heads that attend there most.
    """
    state, at = runs.states["offset_share"], runs.result.dataset["offset"].values.tolist().index(-1)
    a = state["numerator"][..., at].reshape(len(runs), -1)
    b = state["denominator"][..., at].reshape(len(runs), -1)
    most = np.argsort(-(a.sum(0) / b.sum(0)))[:N_TRAINED]
    numerator, denominator = np.maximum(a[:, most], TINY), b[:, most]
    odds = np.log(numerator) - np.log(np.maximum(denominator - numerator, TINY))
    level = np.log(numerator.sum(0)) - np.log((denominator - numerator).sum(0))
    spread = np.clip(odds - level, -6, 6)
    middle = np.random.default_rng(0).uniform(0.5, STEPS - 1.5, len(most))
    every, values = [], []
    for step in range(STEPS):
        rise = FIRST + (LAST - FIRST) / (1 + np.exp(-(step - middle) / WIDTH))
        shares = denominator / (1 + np.exp(-spread - rise))
        every.append(_previous(runs, shares, denominator, at))
        values.append(shares.sum(0) / denominator.sum(0))
    truth = np.array([_onset(np.stack(values)[:, head] >= 0.5) for head in range(len(most))])

    def sample(documents: np.ndarray, parts: np.ndarray, number: int) -> Outcomes:
        steps = {step: one.drawn(documents, parts) for step, one in enumerate(every)}
        found = find_onsets(stack_steps(steps), "previous_token")
        rows = found.rows
        if not rows:
            return {}
        first = {row.head for row in found.earliest}
        return {
            "onsets": float(np.mean([_holds(row, truth[row.head]) for row in rows])),
            "onsets, of the first": float(_holds(rows[0], truth[rows[0].head])),
            "first": float({*np.flatnonzero(truth == truth.min()).tolist()} <= first),
            "first, before": float(truth[rows[0].head] == truth.min()),
        }

    return sample


def _previous(runs: Runs, shares: np.ndarray, denominator: np.ndarray, at: int) -> Runs:
    """Runs of one layer, whose heads attend to the previous token."""
    count = denominator.reshape(len(runs), 1, -1)
    new = np.zeros((*count.shape, runs.states["offset_share"]["numerator"].shape[-1]))
    new[:, 0, :, at] = shares
    flat = {"denominator": np.broadcast_to(count[..., None], new.shape), "count": count}
    data = runs.result.dataset.isel(layer=slice(1), head=slice(1))
    block = next(iter(runs.result.blocks))
    result = replace(runs.result, blocks={block: data})
    return replace(runs, result=result, states={"offset_share": {"numerator": new, **flat}})


def _holds(row: Onset, truth: int) -> bool:
    return row.low <= truth and (row.high is None or truth <= row.high)


def _onset(is_above: np.ndarray) -> int:
    """The first step from which on all are true."""
    return int(len(is_above) - np.logical_and.accumulate(is_above[::-1]).sum())
