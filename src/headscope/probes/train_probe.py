"""`headscope.train_probe`: how much syntax the attention of all heads together holds.

Clark et al. 2019, section 5.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from headscope.arguments import whole_number
from headscope.errors import InputError, UnknownName, warn
from headscope.model.control import kept_parameters, randomized
from headscope.model.fingerprint import describe_model, versions
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.probes.evaluate import evaluate
from headscope.probes.features import AttentionReader, Surveyed
from headscope.probes.scorers import KINDS, Kind, Scorer, make_scorer
from headscope.probes.store import Source, Streamed, open_store
from headscope.probes.training import (
    STILL_FALLING,
    Epoch,
    Examples,
    Options,
    epochs_for,
    fall_of_last,
    fit,
)
from headscope.probes.treebank import Treebank, punctuation, read_treebank, targets
from headscope.probes.vectors import WordVectors, load_vectors
from headscope.results.probe import Probe
from headscope.run.options import Over
from headscope.run.progress import Meter, phase
from headscope.text.corpus import Corpus
from headscope.text.readers.read import Readable

Texts = Corpus | Readable
Coordinate = tuple[str, np.ndarray]


def train_probe(
    model: Model | str,
    train: Texts,
    dev: Texts,
    kind: Kind = "attention+words",
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

    The model is frozen; its attention between words is read once and kept on disk in
    float16 (its size is shown first), so that the next kind of probe starts at once.

    Args:
        model: the model, or what `headscope.load` takes.
        train: a treebank to learn from, by sentence, or what `headscope.read` takes.
        dev: a treebank to score on.
        kind: `attention`, a weight for each head and direction; `attention+words`, weights
            that depend on the two words; `distance+words`, a network that sees the words and
            how far apart they are and no attention.
        seed: of the batches, of a network's first weights and of a control's weights.
        vectors: word vectors, or what `load_vectors` takes: a file; GloVe by default.
        control: use the model's architecture with random weights, its embeddings kept.
        epochs: times the training data is seen; by default 5, more for fewer than 4,000
            sentences (`ceil(20,000 / sentences)`, at most 40); never chosen by a score. A
            warning says so where the loss was still falling at the end.
        over: `attention`, or `norm` for attention times the length of what it fetches.
        max_tokens: longer sentences are cut, and counted.
        cache: True keeps attention in the user's cache folder (`HEADSCOPE_CACHE`), at most
            8 GB, and removes what was used longest ago when it needs room; a folder keeps it
            there until you remove it; False keeps none and runs the model in every epoch.
        progress: show progress; by default on a terminal.

    Raises:
        InputError: a treebank without trees, or not by sentence; an unknown kind; no room for
            the cache.
    """
    if kind not in KINDS:
        raise UnknownName.of("kind of probe", kind, KINDS)
    if epochs is not None:
        whole_number("epochs", epochs)
    model = as_model(model)
    clock = _Clock()
    with clock.stage("read"), phase("reading treebanks", progress):
        treebanks = {"train": read_treebank(train), "dev": read_treebank(dev)}
        options = Options(epochs or epochs_for(len(treebanks["train"].documents)))
        words = _vectors(kind, vectors)
        original = model
        model = randomized(model, seed) if control else model
        reader = AttentionReader(model, max_tokens=max_tokens, over=over)
        surveyed = {name: reader.survey(bank.documents) for name, bank in treebanks.items()}
    with clock.stage("attention"):
        sources = {
            name: _source(kind, reader, bank, surveyed[name], cache, progress)
            for name, bank in treebanks.items()
        }
    examples = {
        name: _examples(bank, surveyed[name], words, sources[name])
        for name, bank in treebanks.items()
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        scorer = make_scorer(
            kind,
            n_heads=len(reader.heads),
            n_edges=len(reader.edges),
            n_dimensions=words.n_dimensions if words else 0,
        )
    with clock.stage("training"):
        log = _train(scorer, examples["train"], options, seed, progress)
        _warn_if_unfinished(log)
    with clock.stage("scoring"), phase("scoring", progress):
        bank = treebanks["dev"]
        scores = evaluate(
            scorer,
            examples["dev"],
            [punctuation(document) for document in bank.documents],
            [document.part_of or document.id for document in bank.documents],
        )
    provenance = {
        "model": describe_model(model),
        "control_seed": seed if control else None,
        "kept_parameters": list(kept_parameters(original)) if control else None,
        "edges": list(reader.edges),
        "seed": seed,
        "threads": torch.get_num_threads(),
        "options": {
            **asdict(options),
            "max_tokens": reader.settings.max_tokens,
            "over": over,
        },
        "vectors": words.describe() if words else None,
        **{name: _about(treebanks[name], surveyed[name], words) for name in treebanks},
        "is_streamed": cache is False,
        "seconds": clock.seconds,
        "versions": versions(),
    }
    inputs = {
        "layer": ("input", np.array([layer for layer, _ in reader.heads])),
        "head": ("input", np.array([head for _, head in reader.heads])),
    }
    if "reliance" in scores:
        scores = scores.assign_coords({"direction": ["candidate", "dependent"], **inputs})
    return Probe(kind, _parameters(scorer, inputs), scores, _log(log), provenance)


def _vectors(kind: Kind, vectors: WordVectors | str | Path | None) -> WordVectors | None:
    if kind == "attention":
        return None
    return vectors if isinstance(vectors, WordVectors) else load_vectors(vectors)


def _source(
    kind: Kind,
    reader: AttentionReader,
    treebank: Treebank,
    surveyed: Surveyed,
    cache: str | Path | bool,
    progress: bool | None,
) -> Source | None:
    if kind == "distance+words":
        return None
    if cache is False:
        return Streamed(reader, treebank)
    meter = Meter(len(treebank), shown=progress)
    try:
        folder = None if cache is True else Path(cache)
        return open_store(reader, treebank, surveyed, folder, say=meter.say, advance=meter.advance)
    finally:
        meter.close()


def _examples(
    treebank: Treebank, surveyed: Surveyed, words: WordVectors | None, source: Source | None
) -> Examples:
    pairs = zip(treebank.documents, surveyed.has_tokens, strict=True)
    parents = [targets(document, has) for document, has in pairs]
    rows = array = None
    if words is not None:
        known = sorted({word for document in treebank.documents for word in document.words})
        place = {word: row for row, word in enumerate(known)}
        array = torch.from_numpy(words.of(known))
        rows = [np.array([place[w] for w in d.words]) for d in treebank.documents]
    return Examples(treebank.lengths, surveyed.has_tokens, parents, rows, array, source)


def _train(
    scorer: Scorer, examples: Examples, options: Options, seed: int, progress: bool | None
) -> list[Epoch]:
    if not any((target >= 0).any() for target in examples.targets):
        raise InputError("No word of the training data has both a token and a known parent.")
    meter = Meter(options.epochs * len(examples), shown=progress)

    def tell(number: int, epoch: Epoch) -> None:
        meter.say(
            f"epoch {number + 1} of {options.epochs}: loss {epoch.loss:.3f} nats, "
            f"accuracy {epoch.accuracy:.1%} ({epoch.seconds:.0f} s)"
        )

    try:
        return fit(scorer, examples, options, seed, tell=tell, advance=meter.advance)
    finally:
        meter.close()


def _warn_if_unfinished(log: list[Epoch]) -> None:
    fall = fall_of_last(log)
    if fall > STILL_FALLING:
        warn(
            f"The probe has not converged: in the last of {len(log)} epochs its loss still fell by "
            f"{fall:.1%}, to {log[-1].loss:.3f} nats. Its score is a lower bound; give more "
            f"epochs (epochs={2 * len(log)}) or more sentences.",
        )


def _about(
    treebank: Treebank, surveyed: Surveyed, words: WordVectors | None
) -> dict[str, str | int]:
    about = treebank.describe() | {
        "tokens": surveyed.tokens,
        "truncated_sentences": surveyed.truncated,
        "words_without_tokens": int(sum((~has).sum() for has in surveyed.has_tokens)),
    }
    if words is not None:
        unknown = (not words.knows(w) for d in treebank.documents for w in d.words)
        about["words_without_vector"] = sum(unknown)
    return about


DIMS = {
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
"""The axes of a scorer's parameters."""


def _parameters(scorer: Scorer, inputs: Mapping[str, Coordinate]) -> xr.Dataset:
    dims = DIMS["attention" if scorer.reads_attention else "distance"]
    data = xr.Dataset({name: (dims[name], array) for name, array in scorer.arrays().items()})
    coords: dict[str, Coordinate | list[str]] = dict(inputs) if "input" in data.dims else {}
    if "direction" in data.dims:
        coords["direction"] = ["candidate", "dependent"]
    if "role" in data.dims:
        coords["role"] = ["candidate", "dependent"]
    return data.assign_coords(coords)


def _log(log: list[Epoch]) -> xr.Dataset:
    values = {
        name: ("epoch", np.array([getattr(epoch, name) for epoch in log]))
        for name in ("loss", "accuracy", "seconds")
    }
    return xr.Dataset(values, coords={"epoch": np.arange(1, len(log) + 1)})


@dataclass
class _Clock:
    """Wall and CPU seconds of each stage."""

    seconds: dict[str, dict[str, float]] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block of code."""
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.seconds[name] = {
                "wall": round(time.perf_counter() - wall, 2),
                "cpu": round(time.process_time() - cpu, 2),
            }
