"""`headscope.train_probe`: train probes on the attention of all heads, and score them.

Clark et al. 2019, section 5.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from headscope.arguments import whole_number
from headscope.errors import InputError, UnknownName, warn
from headscope.model.identity import describe_model, versions
from headscope.model.load import as_model, kept_parameters, randomized
from headscope.model.model import Model
from headscope.probes import features, training
from headscope.probes.predict import DECODINGS, decode
from headscope.probes.word_vectors import WordVectors, load_vectors
from headscope.results.probe import Probe
from headscope.run.options import Over
from headscope.run.progress import Meter, phase
from headscope.statistics.intervals import BOUNDS, interval
from headscope.statistics.jackknife import ratio_jackknife
from headscope.text.corpus import Corpus
from headscope.text.readers.read import Readable

PUNCTUATION_SCORES = ("without", "with")


def evaluate(
    scorer: training.Scorer,
    examples: training.TreebankExamples,
    is_punctuation: Sequence[np.ndarray],
    texts: Sequence[str],
) -> xr.Dataset:
    """Score every sentence once: attachment by both decodings, and reliance on heads."""
    right = np.zeros((len(examples), len(DECODINGS), len(PUNCTUATION_SCORES)))
    baseline = np.zeros((len(examples), len(PUNCTUATION_SCORES)))
    counts = np.zeros((len(examples), len(PUNCTUATION_SCORES)))
    spread = _Reliance()
    for numbers in training.ordered_batches(examples):
        batch = training.make_batch(examples, numbers)
        with torch.inference_mode():
            scores = scorer(batch).double().numpy()
            if isinstance(scorer, training.AttentionScorer):
                spread.add(scorer, batch)
        for row, number in enumerate(numbers):
            length = int(examples.lengths[number])
            columns = [*range(length), scores.shape[2] - 1]
            sentence_scores = scores[row, :length][:, columns]
            target = examples.targets[number]
            masks = np.stack((target >= 0, target >= 0))  # words that count, by punctuation
            masks[0] &= ~is_punctuation[number]
            counts[number] = masks.sum(1)
            baseline[number] = (masks & (features.right_branching(length) == target)).sum(1)
            for place, decoding in enumerate(DECODINGS):
                is_right = decode(sentence_scores, decoding) == target
                right[number, place] = (masks & is_right).sum(1)
    accuracies = attachment(right, baseline, counts, texts)
    return accuracies if not spread.n else accuracies.assign(spread.values())


def attachment(
    right: np.ndarray, baseline: np.ndarray, counts: np.ndarray, texts: Sequence[str]
) -> xr.Dataset:
    """Return `uas` and `right_branching` with intervals.

    Over `sentence decoding punctuation`: `right`, words with the correct parent; over `sentence
    punctuation`: `baseline`, the same for right-branching, and `counts`, words that count.
    Intervals are over source texts, because sentences of one text are not independent.
    """
    names, text_of = np.unique(np.asarray(texts), return_inverse=True)
    sums = [np.zeros((len(names), *array.shape[1:])) for array in (right, baseline, counts)]
    for total, array in zip(sums, (right, baseline, counts), strict=True):
        np.add.at(total, text_of, array)
    dims = ("decoding", "punctuation")
    with np.errstate(invalid="ignore"):
        n = counts.sum(0)
        uas, chain = right.sum(0) / n, baseline.sum(0) / n
    uas_interval = interval(ratio_jackknife(sums[0], sums[2][:, None], "logit"))
    chain_interval = interval(ratio_jackknife(sums[1], sums[2], "logit"))
    attrs = {"units": "1", "long_name": "share of words whose parent was found"}
    return xr.Dataset(
        {
            "uas": (dims, uas, {**attrs, "paper": "Clark et al. 2019, section 5, Table 3"}),
            "uas_interval": (("bound", *dims), uas_interval.bounds),
            "uas_n_eff": (dims, uas_interval.documents),
            "right_branching": ("punctuation", chain, attrs),
            "right_branching_interval": (("bound", "punctuation"), chain_interval.bounds),
            "words": ("punctuation", n.astype(np.int64)),
            "right": (("sentence", *dims), right.astype(np.int32)),
            "counted": (("sentence", "punctuation"), counts.astype(np.int32)),
            "text": ("sentence", text_of.astype(np.int32)),
        },
        coords={
            "decoding": list(DECODINGS),
            "punctuation": list(PUNCTUATION_SCORES),
            "bound": list(BOUNDS),
        },
    )


class _Reliance:
    """Mean over words of the spread of a head's contribution over the candidates."""

    def __init__(self) -> None:
        self.n = 0
        self._sum: np.ndarray = np.zeros(())

    def add(self, scorer: training.AttentionScorer, batch: training.ProbeBatch) -> None:
        for row in range(len(batch.targets)):
            counted = batch.targets[row] >= 0
            has_tokens = batch.candidates[row]
            if int(has_tokens.sum()) < 3 or not bool(counted.any()):
                continue
            parts = contributions(scorer, batch, row)[:, counted][:, :, has_tokens]
            is_itself = counted.nonzero() == has_tokens.nonzero()[:, 0]
            others = parts.masked_fill(is_itself[None, :, :, None], 0.0)
            n = (~is_itself).sum(1)[None, :, None].float()
            mean = others.sum(2) / n
            deviations = (others - mean[:, :, None]).masked_fill(is_itself[None, :, :, None], 0.0)
            spread = (deviations.square().sum(2) / n).sqrt()
            self._sum = self._sum + spread.double().sum(1).numpy()
            self.n += int(counted.sum())

    def values(self) -> dict[str, tuple[tuple[str, str], np.ndarray, dict[str, str]]]:
        attrs = {
            "units": "nats",
            "long_name": "spread of a head's part of the score over a word's candidates",
        }
        return {"reliance": (("direction", "input"), self._sum / self.n, attrs)}


def contributions(
    scorer: training.AttentionScorer, batch: training.ProbeBatch, row: int
) -> torch.Tensor:
    """Return `direction word candidate head`: contributions to the scores of one sentence."""
    assert batch.attention is not None
    n = batch.attention.shape[1]
    between = batch.attention[row, :, :n]
    to_dependent, from_dependent = between.transpose(0, 1), between
    parts = []
    for direction, attention in enumerate((to_dependent, from_dependent)):
        weight = scorer.weights[direction]
        if scorer.reads_words and batch.vectors is not None:
            candidate_weights, dependent_weights = scorer.word_weights[direction]
            vectors = batch.vectors[row]
            by_candidate, by_dependent = vectors @ candidate_weights, vectors @ dependent_weights
            weight = weight + by_candidate[None] + by_dependent[:, None]
        parts.append(attention * weight)
    return torch.stack(parts)


Coordinate = tuple[str, np.ndarray]


def train_probe(
    model: Model | str,
    train: Corpus | Readable,
    dev: Corpus | Readable,
    kind: training.Kind = "attention+words",
    *,
    seed: int = 0,
    vectors: WordVectors | str | Path | None = None,
    control: bool = False,
    epochs: int | None = None,
    over: Over = "attention",
    max_tokens: int = 512,
    cache: str | Path | bool = True,
    progress: bool | None = None,
) -> Probe:
    """Train a probe that predicts each word's parent from the attention of all heads.

    The model is frozen. Its attention between words is read once and stored on disk in float16
    (the size is printed first), so that the next kind of probe starts at once.

    Args:
        model: the model, or an argument of `headscope.load`.
        train: treebank for training, by sentence, or an argument of `headscope.read`.
        dev: treebank for scoring.
        kind: `attention`, a weight for each head and direction; `attention+words`, weights
            that depend on the two words; `distance+words`, a network over the words and their
            distance, without attention.
        seed: seed of the batches, of a network's initial weights and of a control's weights.
        vectors: word vectors, or an argument of `load_vectors`; GloVe by default.
        control: use the model's architecture with random weights, its embeddings kept.
        epochs: training epochs; by default 5, more for fewer than 4,000 sentences
            (`ceil(20,000 / sentences)`, at most 40); never chosen by a score. A warning is given
            if the loss was still falling at the end.
        over: `attention`, or `norm` for norm-weighted attention.
        max_tokens: longer sentences are cut, and counted.
        cache: True stores attention in the user's cache folder (`HEADSCOPE_CACHE`), at most
            8 GB, and removes the least recently used; a folder stores it there until the user
            removes it; False runs the model in every epoch.
        progress: show progress; by default on a terminal.

    Raises:
        InputError: a treebank lacks trees or is not by sentence, the kind is unknown, or the
            disk is full.
    """
    UnknownName.check("kind of probe", kind, training.PROBE_KINDS)
    if epochs is not None:
        whole_number("epochs", epochs)
    model = as_model(model)
    seconds: dict[str, dict[str, float]] = {}
    with _timed(seconds, "read"), phase("reading treebanks", progress):
        treebanks = {"train": features.read_treebank(train), "dev": features.read_treebank(dev)}
        options = training.TrainingOptions(
            epochs or training.epochs_for(len(treebanks["train"].documents))
        )
        words = None
        if kind != "attention":
            words = vectors if isinstance(vectors, WordVectors) else load_vectors(vectors)
        original = model
        model = randomized(model, seed) if control else model
        reader = features.AttentionReader(model, max_tokens=max_tokens, over=over)
        surveyed = {name: reader.survey(bank.documents) for name, bank in treebanks.items()}
    sources: dict[str, features.AttentionSource | None] = dict.fromkeys(treebanks)
    with _timed(seconds, "attention"):
        for name, bank in treebanks.items():
            if kind == "distance+words":
                continue
            if cache is False:
                sources[name] = features.Streamed(reader, bank)
                continue
            folder = None if cache is True else Path(cache)
            with closing(Meter(len(bank), shown=progress)) as meter:
                sources[name] = features.open_store(
                    reader, bank, surveyed[name], folder, say=meter.say, advance=meter.advance
                )
    examples = {
        name: _examples(bank, surveyed[name], words, sources[name])
        for name, bank in treebanks.items()
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        scorer = training.make_scorer(
            kind,
            n_heads=len(reader.heads),
            n_edges=len(reader.edges),
            n_dimensions=words.n_dimensions if words else 0,
        )
    if not any((target >= 0).any() for target in examples["train"].targets):
        raise InputError("No word of the training data has both a token and a known parent.")
    n_steps = options.epochs * len(examples["train"])
    with _timed(seconds, "training"), closing(Meter(n_steps, shown=progress)) as meter:

        def report(number: int, epoch: training.Epoch) -> None:
            meter.say(
                f"epoch {number + 1} of {options.epochs}: loss {epoch.loss:.3f} nats, "
                f"accuracy {epoch.accuracy:.1%} ({epoch.seconds:.0f} s)"
            )

        log = training.fit(
            scorer, examples["train"], options, seed, report=report, advance=meter.advance
        )
    _warn_if_unfinished(log)
    with _timed(seconds, "scoring"), phase("scoring", progress):
        bank = treebanks["dev"]
        scores = evaluate(
            scorer,
            examples["dev"],
            [features.punctuation(document) for document in bank.documents],
            [document.part_of or document.id for document in bank.documents],
        )
    provenance = {
        "model": describe_model(model),
        "control_seed": seed if control else None,
        "kept_parameters": list(kept_parameters(original)) if control else None,
        "edges": list(reader.edges),
        "seed": seed,
        "threads": torch.get_num_threads(),
        "options": {**asdict(options), "max_tokens": reader.settings.max_tokens, "over": over},
        "vectors": words.describe() if words else None,
        **{name: _counts(treebanks[name], surveyed[name], words) for name in treebanks},
        "is_streamed": cache is False,
        "seconds": seconds,
        "versions": versions(),
    }
    inputs = {
        "layer": ("input", np.array([layer for layer, _ in reader.heads])),
        "head": ("input", np.array([head for _, head in reader.heads])),
    }
    if "reliance" in scores:
        scores = scores.assign_coords({"direction": ["candidate", "dependent"], **inputs})
    columns = {name: [getattr(epoch, name) for epoch in log] for name in training.Epoch.__slots__}
    epochs_log = xr.Dataset(
        {name: ("epoch", np.array(values)) for name, values in columns.items()},
        coords={"epoch": np.arange(1, len(log) + 1)},
    )
    return Probe(kind, _parameters(scorer, inputs), scores, epochs_log, provenance)


def _examples(
    treebank: features.Treebank,
    surveyed: features.Surveyed,
    words: WordVectors | None,
    source: features.AttentionSource | None,
) -> training.TreebankExamples:
    pairs = zip(treebank.documents, surveyed.has_tokens, strict=True)
    parents = [features.targets(document, has_tokens) for document, has_tokens in pairs]
    rows = array = None
    if words is not None:
        vocabulary = sorted({word for document in treebank.documents for word in document.words})
        row_of = {word: row for row, word in enumerate(vocabulary)}
        array = torch.from_numpy(words.of(vocabulary))
        rows = [np.array([row_of[w] for w in d.words]) for d in treebank.documents]
    return training.TreebankExamples(
        treebank.lengths, surveyed.has_tokens, parents, rows, array, source
    )


def _warn_if_unfinished(log: list[training.Epoch]) -> None:
    can_fall = len(log) > 1 and log[-2].loss > 0
    fall = 1 - log[-1].loss / log[-2].loss if can_fall else 0.0
    if fall > training.STILL_FALLING:
        warn(
            f"The probe has not converged: in the last of {len(log)} epochs its loss still fell by "
            f"{fall:.1%}, to {log[-1].loss:.3f} nats. Its score is a lower bound; give more "
            f"epochs (epochs={2 * len(log)}) or more sentences."
        )


def _counts(
    treebank: features.Treebank, surveyed: features.Surveyed, words: WordVectors | None
) -> dict[str, str | int]:
    counts = treebank.describe() | {
        "tokens": surveyed.tokens,
        "truncated_sentences": surveyed.truncated,
        "words_without_tokens": int(sum((~has).sum() for has in surveyed.has_tokens)),
    }
    if words is not None:
        unknown = (not words.knows(w) for d in treebank.documents for w in d.words)
        counts["words_without_vector"] = sum(unknown)
    return counts


PARAMETER_DIMS = {
    "attention": {
        "weights": ("direction", "input"),
        "root_weights": ("edge", "input"),
        "root_bias": (),
        "word_weights": ("direction", "role", "dimension", "input"),
        "root_word_weights": ("edge", "dimension", "input"),
    },
    "distance": {
        "word_weights": ("role", "dimension", "unit"),
        "distance_weights": ("feature", "unit"),
        "root_vector": ("unit",),
        "bias": ("unit",),
        "out_weights": ("unit",),
    },
}


def _parameters(scorer: training.Scorer, inputs: Mapping[str, Coordinate]) -> xr.Dataset:
    dims = PARAMETER_DIMS["attention" if scorer.reads_attention else "distance"]
    data = xr.Dataset({name: (dims[name], array) for name, array in scorer.arrays().items()})
    coords: dict[str, Coordinate | list[str]] = dict(inputs) if "input" in data.dims else {}
    if "direction" in data.dims:
        coords["direction"] = ["candidate", "dependent"]
    if "role" in data.dims:
        coords["role"] = ["candidate", "dependent"]
    return data.assign_coords(coords)


@contextmanager
def _timed(seconds: dict[str, dict[str, float]], stage: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        seconds[stage] = {
            "wall": round(time.perf_counter() - wall, 2),
            "cpu": round(time.process_time() - cpu, 2),
        }
