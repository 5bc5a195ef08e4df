"""Error rates of causal statements: effects, patching, importance, variability, tags.

    python -m studies.errors --data FOLDER --causal

Each model reads 60 documents of a corpus once, cut to 32 tokens; the numbers of each document are
kept. Samples are drawn from them, and tests are made of each sample as results and reports make
them. Procedures were chosen on GUM; EWT was read when all were settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

import headscope as hs
from headscope.batch import Axes
from headscope.metrics.variability import Variability
from headscope.probes.probe_coreference import cut_documents
from headscope.reporting.hypothesis_tests import scaled
from headscope.results.result import Result
from headscope.statistics.differences import in_most, over_texts, p_most
from headscope.statistics.intervals import holm, interval, p_above, p_differs
from headscope.statistics.jackknife import Jackknife, ratio_jackknife
from headscope.text.document import Document
from studies.errors.populations import TITLES, _named
from studies.errors.rates import is_listed
from studies.errors.record import Rate, upper_bound
from studies.gum.corpora import draw_per_document, read_gum

DOCUMENTS, TOKENS, SENTENCES = 60, 32, 3
MIN_WORDS = 32
"""Words of a document of EWT, at least: half of its documents are shorter."""
MIN_CUT = 8
"""Words of what is read of a document, at least: an address can have more tokens than are read."""
CORPORA = ("GUM", "EWT")
WAYS = ("most", "total")
HELD_OUT = ("EWT",)
N_HEADS = 16
"""Heads of effects and of patching, drawn once."""
SIZES = (8, 20, 64)
Arrays = dict[str, np.ndarray]
Outcome = dict[str, float]
"""Of one sample: share of intervals that hold (`now`, `before`), `effective` documents, `width`
relative to before, and whether anything is claimed that is not there (`false`, `false before`)."""
Sample = Callable[[np.ndarray], Outcome]
"""From the documents drawn."""


def causal_rates(
    data: Path, out: Path, model: str, corpus: str, repetitions: int
) -> Iterator[Rate]:
    """All rates of this module, for one model over one corpus."""
    arrays = read_arrays(data, out, model, corpus)
    population = f"{TITLES[model]}, {corpus}"
    for variable, (n_documents, sample, times) in _samples(arrays).items():
        for n in SIZES:
            few = max(repetitions // times, 2)
            generator = np.random.default_rng(n)
            drawn = [sample(generator.integers(0, n_documents, n)) for _ in range(few)]
            by_name = {key: [one[key] for one in drawn] for key in drawn[0]}
            mean = {key: float(np.nanmean(values)) for key, values in by_name.items()}
            if "now" in mean:
                yield Rate(
                    "causal coverage", population, variable, n, few, mean["now"],
                    before=mean.get("before", np.nan), effective=mean["effective"],
                    width=mean.get("width", np.nan),
                )  # fmt: skip
            if "false" in mean:
                yield Rate(
                    "causal claim", population, variable, n, few, mean["false"],
                    upper_bound(by_name["false"]), mean.get("false before", np.nan),
                )  # fmt: skip


def _samples(arrays: Arrays) -> dict[str, tuple[int, Sample, int]]:
    """By statement: documents, what is made of a sample, and a divisor of the repetitions."""
    effects = arrays["effects"]
    found: dict[str, tuple[int, Sample, int]] = {
        "effects over texts": (len(effects), _mean_effects(effects, np.ones_like(effects)), 1)
    }
    if "rises" in arrays:
        tokens = np.broadcast_to(arrays["tokens"][:, None], arrays["rises"].shape)
        of_most, in_total = (_mean_effects(arrays["rises"], tokens, way) for way in WAYS)
        found["heads change the loss"] = (len(tokens), of_most, 1)
        found["heads change the loss, alike in total"] = (len(tokens), in_total, 1)
        sums = arrays["gradients"], arrays["pairs"]
        found["importance of classes"] = (len(tokens), _classes(*sums), 2)
        sums = arrays["estimates"], arrays["estimated_tokens"][..., None]
        found["removal estimate"] = (len(tokens), _estimates(*sums), 2)
    if "gaps" in arrays:
        gaps = np.broadcast_to(arrays["gaps"][:, None], arrays["closed"].shape)
        found["patching"] = (len(gaps), _mean_effects(arrays["closed"], gaps), 1)
    found["tags"] = (len(arrays["tags"]), _tags(arrays["tags"], arrays["tags_all"]), 2)
    n = len(np.unique(arrays["sources"]))
    found["variability"] = (n, _variability(arrays), 5)
    return found


def _mean_effects(a: np.ndarray, b: np.ndarray, way: str = "") -> Sample:
    """Effects centred to 0: `hs.effects` over texts and corpora, `hs.patch`. Distances, which are
    never 0, are not centred, and nothing is claimed of them. Effects on the loss (`way`) are listed
    if most documents agree: claims are false of heads centred to 0 in most documents, or in total.
    """
    truth = a.sum(0) / b.sum(0)
    is_signed = bool((a < 0).any())
    centered, truth = (a - truth * b, 0.0 * truth) if is_signed else (a, truth)

    claimed = a - np.median(a / b, axis=0) * b if way == "most" else centered

    def sample(drawn: np.ndarray) -> Outcome:
        sides = centered[drawn], b[drawn]
        now, plain = (
            over_texts(*sides, np.arange(len(drawn)), is_distance=not is_signed),
            ratio_jackknife(*sides),
        )
        before = interval(plain)
        outcome = {
            "now": _holds(now.low, now.high, truth),
            "before": _holds(before.low, before.high, truth),
            "effective": float(np.nanmedian(now.documents)),
            "width": float(np.nanmedian((now.high - now.low) / (before.high - before.low))),
        }
        if is_signed:
            sums = claimed[drawn]
            tested = over_texts(sums, b[drawn], np.arange(len(drawn)))
            p = in_most(tested, sums).p if way else tested.p
            outcome["false"] = float(is_listed(p).any())
            outcome["false before"] = float(is_listed(p_differs(plain)).any())
        return outcome

    return sample


def _holds(low: np.ndarray, high: np.ndarray, truth: np.ndarray) -> float:
    is_given = np.isfinite(low)
    return float(((low <= truth) & (truth <= high))[is_given].mean()) if is_given.any() else np.nan


def _shifted(estimate: Jackknife, truth: np.ndarray) -> Jackknife:
    """The estimate less its true value: nothing is there to find."""
    return replace(estimate, value=estimate.value - truth)


def _classes(a: np.ndarray, b: np.ndarray) -> Sample:
    """“Gradients are larger at …”: each class of keys against all, averaged over heads."""

    def difference(some: np.ndarray) -> Jackknife:
        means = ratio_jackknife(a[some], b[some], "positive").mean((0, 1))
        return means - means.at(slice(-1, None))

    truth = difference(np.arange(len(a))).value

    def sample(drawn: np.ndarray) -> Outcome:
        of = _shifted(difference(drawn), truth)
        bounds = interval(of)
        claimed = np.nan_to_num(holm(p_differs(of)[:-1]), nan=1.0) < 0.05
        zero = np.zeros_like(truth)[:-1]
        return {
            "now": _holds(bounds.low[:-1], bounds.high[:-1], zero),
            "effective": float(np.nanmedian(bounds.documents)),
            "false": float(claimed.any()),
        }

    return sample


def _estimates(a: np.ndarray, b: np.ndarray) -> Sample:
    """Intervals of `removal_estimate`, by head, of all keys."""
    b = np.broadcast_to(b, a.shape)[..., -1]
    a = a[..., -1]
    truth = a.sum(0) / b.sum(0)

    def sample(drawn: np.ndarray) -> Outcome:
        bounds = interval(ratio_jackknife(a[drawn], b[drawn]))
        effective = float(np.nanmedian(bounds.documents))
        return {"now": _holds(bounds.low, bounds.high, truth), "effective": effective}

    return sample


def _tags(a: np.ndarray, b: np.ndarray) -> Sample:
    """“For n tags there is a head with more than twice the mean”: every head is exactly at it."""

    def sides(some: np.ndarray) -> tuple[Jackknife, Jackknife]:
        share = ratio_jackknife(a[some], b[some][..., None], "logit")
        return share, scaled(share.mean((0, 1)), 2).at(None, None)

    def off(some: np.ndarray) -> np.ndarray:
        share, twice = sides(some)
        return share.bucket_values - twice.bucket_values

    everything = np.arange(len(a))
    truth = np.subtract(*(side.value for side in sides(everything)))
    middle = np.nanmedian(off(everything), axis=0)

    def sample(drawn: np.ndarray) -> Outcome:
        share, twice = sides(drawn)
        alone = p_above(_shifted(share - twice, truth))
        p = np.where(np.isfinite(alone), np.fmax(alone, p_most(off(drawn) - middle)), np.nan)
        n = np.isfinite(p).sum((0, 1))
        lowest = np.where(n > 0, np.nan_to_num(p, nan=1.0).min((0, 1)), np.nan)
        claimed = np.nan_to_num(holm(np.minimum(lowest * n, 1.0)), nan=1.0) < 0.05
        return {"false": float(claimed.any())}

    return sample


def _variability(arrays: Arrays) -> Sample:
    """Intervals of variability, against its mean over samples of one size; “the least variable
    head is below the mean”, of heads alike.
    """
    weights = arrays["weights"].reshape(len(arrays["weights"]), -1, arrays["weights"].shape[-1])
    weights = weights[:, np.random.default_rng(0).permutation(weights.shape[1])[:N_HEADS]]
    sources = np.unique(arrays["sources"], return_inverse=True)[1]
    pieces = [np.flatnonzero(sources == source) for source in range(sources.max() + 1)]
    means: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def estimate(drawn: np.ndarray) -> Jackknife:
        some = np.concatenate([pieces[document] for document in drawn])
        unit = np.repeat(np.arange(len(drawn)), [len(pieces[document]) for document in drawn])
        state = {
            "order": np.zeros((1, len(some))),
            "bucket": unit[None].astype(float),
            "size": arrays["sizes"][some][None],
            "values": weights[some][None],
        }
        units = np.arange(len(drawn))
        return Variability().jackknives(state, Axes(), units)["variability"].at(0)

    def off(of: Jackknife) -> np.ndarray:
        return of.mean((0,)).at(None).bucket_values - of.bucket_values

    def expected(n: int) -> tuple[np.ndarray, np.ndarray]:
        """The mean, and the median of how far parts are below the mean over heads."""
        if n not in means:
            generator = np.random.default_rng(1000 + n)
            drawn = [estimate(generator.integers(0, len(pieces), n)) for _ in range(100)]
            middle = np.nanmedian(np.concatenate([off(of) for of in drawn]), axis=0)
            means[n] = np.mean([of.value for of in drawn], axis=0), middle
        return means[n]

    def sample(drawn: np.ndarray) -> Outcome:
        of, (truth, middle) = estimate(drawn), expected(len(drawn))
        bounds = interval(of)
        below = of.mean((0,)).at(None) - of
        alone = p_above(_shifted(below, truth.mean() - truth))
        most = p_most(off(of) - middle)
        p = holm(np.where(np.isfinite(alone), np.fmax(alone, most), np.nan))
        return {
            "now": _holds(bounds.low, bounds.high, truth),
            "effective": float(np.nanmedian(bounds.documents)),
            "false": float((np.nan_to_num(p, nan=1.0) < 0.05).any()),
        }

    return sample


def _documents(data: Path, corpus: str) -> list[Document]:
    if corpus == "GUM":
        return read_gum(data / "gum")[:DOCUMENTS]
    read = hs.read(data / "ud_ewt" / "en_ewt-ud-dev.conllu", unit="document")
    return [document for document in read if len(document.words) >= MIN_WORDS][:DOCUMENTS]


def read_arrays(data: Path, out: Path, model: str, corpus: str) -> Arrays:
    """The numbers of each document, measured at the first call and kept in files."""
    kinds = (_texts, _losses, _pairs, _metrics)
    name = f"causal-{model}-{corpus.lower()}"
    paths = {measure: out / f"{name}{measure.__name__}.npz" for measure in kinds}
    if not all(path.is_file() for path in paths.values()):
        out.mkdir(parents=True, exist_ok=True)
        loaded = hs.load(model)
        documents = _documents(data, corpus)
        pieces = cut_documents(loaded, hs.read(documents), TOKENS)
        cut = [piece for piece in pieces if len(piece.words) >= MIN_CUT]
        for measure, path in paths.items():
            if not path.is_file():
                read = documents if measure is _metrics else cut
                np.savez_compressed(path, **measure(loaded, read))  # type: ignore[arg-type]
    arrays: Arrays = {}
    for path in paths.values():
        with np.load(path) as file:
            arrays |= dict(file)
    return arrays


def _some_heads(model: hs.Model) -> list[tuple[int, int]]:
    every = [
        (site.layer, head)
        for site in model.wiring.of_block(model.wiring.main_block())
        for head in range(site.n_heads)
    ]
    order = np.random.default_rng(0).permutation(len(every))[:N_HEADS]
    return [every[i] for i in sorted(order)]


def _metrics(model: hs.Model, documents: Sequence[Document]) -> Arrays:
    """Sums by document of attention to tags, and weights of the first tokens."""
    pieces = (piece for document in documents for piece in document.split("sentence"))
    corpus = hs.read([_named(piece) for piece in draw_per_document(pieces, SENTENCES)])
    result = hs.analyze(model, corpus, ["pos_to", "variability"], by="source")
    tags, weights = (_states(result)[name] for name in ("pos_to", "variability"))
    return {
        "tags": tags["numerator"].transpose("bucket", "layer", "head", ...).values,
        "tags_all": tags["denominator"].transpose("bucket", "layer", "head").values,
        "weights": weights["values"].transpose("sampled", "layer", "head", "pair").values,
        "sizes": weights["size"].isel(layer=0).values,
        "sources": weights["bucket"].isel(layer=0).values,
    }


def _texts(model: hs.Model, documents: Sequence[Document]) -> Arrays:
    """`document head`: effects on the prediction after each text, or on its vector."""
    heads = _some_heads(model)
    layers, columns = np.array(heads).T
    effects = [hs.effects(model, document.text, heads=heads) for document in documents]
    return {"effects": np.stack([one.values[layers, columns] for one in effects])}


def _pairs(model: hs.Model, documents: Sequence[Document]) -> Arrays:
    """`document head`: the closed part of the gap to the same text with “a” for the first “the”."""
    if model.info.objective is None:
        return {}
    heads = _some_heads(model)
    layers, columns = np.array(heads).T
    texts = [document.text for document in documents if " the " in document.text]
    pairs = [(text, text.replace(" the ", " a ", 1)) for text in texts]
    patched = [hs.patch(model, [pair], " the", " a", heads=heads) for pair in pairs]
    gaps = np.abs([float(one["gap"][0]) for one in patched])
    shares = np.stack([one["share"].values[layers, columns] for one in patched])
    return {"gaps": gaps, "closed": shares * gaps[:, None]}


def _losses(model: hs.Model, documents: Sequence[Document]) -> Arrays:
    """Rises of the loss by document, and gradients."""
    if model.info.objective is None:
        return {}
    heads = _some_heads(model)
    layers, columns = np.array(heads).T
    measured = [
        hs.effects(model, hs.read([document]), heads=heads, max_tokens=TOKENS, progress=False)
        for document in documents
    ]
    tokens = np.array([float(one.attrs["tokens"]) for one in measured])
    rises = np.stack([one.values[layers, columns] for one in measured]) * tokens[:, None]
    named = [_named(document) for document in documents]
    result = hs.importance(model, hs.read(named), by="source", max_tokens=TOKENS)
    states = [_states(result)[name] for name in ("importance", "removal_estimate")]
    names = ("gradients", "pairs", "estimates", "estimated_tokens")
    sums = [state[side] for state in states for side in ("numerator", "denominator")]
    by_document = [array.transpose("bucket", "layer", ...).values for array in sums]
    return {"rises": rises, "tokens": tokens, **dict(zip(names, by_document, strict=True))}


def _states(result: Result) -> dict[str, xr.Dataset]:
    return dict(result.states[next(iter(result.blocks))])
