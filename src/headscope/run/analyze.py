"""`headscope.analyze`: every metric over a corpus, in one pass."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, get_args

import filelock

from headscope.arguments import expect, whole_number
from headscope.batch import NullKeys
from headscope.errors import (
    FileFormatError,
    HeadscopeError,
    HeadscopeWarning,
    InputError,
    UnknownName,
)
from headscope.measuring.assemble import States, assemble, label_states
from headscope.measuring.contract import Metric
from headscope.measuring.kernels import has_numba
from headscope.measuring.labels import Tagset
from headscope.metrics.catalog import METRICS, find_metrics
from headscope.model.fingerprint import describe_model, versions
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.results.opening import RESULT
from headscope.results.opening import open as open_file
from headscope.results.result import MeasuredDocument, Result
from headscope.run.batches import Encoder, key_classes_of, token_limit
from headscope.run.checkpoint import Ledger, check_plan
from headscope.run.combine import used_documents, with_groups
from headscope.run.engines.local import run_here, run_workers
from headscope.run.plan import Plan, Settings, Shard, Survey, axes_for, survey
from headscope.run.progress import Meter
from headscope.run.shard import Measured
from headscope.text.corpus import Corpus
from headscope.text.readers.lines import Report
from headscope.text.readers.read import read

__all__ = ["Engine", "analyze"]

Engine = Literal["local", "ray"]
COMPILED_FROM = 50_000
"""Characters of a corpus from which on compiled loops make up for the time to load them."""


def analyze(
    model: Model | str,
    corpus: Corpus | str | Path | Iterable[Any],
    metrics: str | Metric | Iterable[str | Metric] = "all",
    *,
    out: str | Path | None = None,
    engine: Engine = "local",
    workers: int = 1,
    resume: bool = True,
    by: str | None = None,
    tagset: Tagset = "universal",
    null_keys: NullKeys = "auto",
    max_tokens: int = 512,
    batch_tokens: int = 1024,
    threads: int = 1,
    address: str | None = None,
    progress: bool | None = None,
) -> Result:
    """Measure what every head does over a corpus.

    One forward pass per document for all metrics. With `out`, finished shards are kept on
    disk: a run that was stopped or killed goes on where it was when called again, and a
    run that is complete is opened. The result is the same, bit for bit, however many
    workers there were and however often it was stopped.

    Args:
        model: the model, or what `headscope.load` takes.
        corpus: the documents, or what `headscope.read` takes (then split into sentences,
            the documents of Vig & Belinkov).
        metrics: "all" for those that the annotations allow, names, or metrics with options.
        out: a folder for checkpoints and the result.
        engine: `local`, or `ray` for a Ray cluster.
        workers: worker processes (or Ray actors); 1 measures in this process.
        resume: go on with what is in `out`; False replaces it.
        by: also give the values of each group of documents, by a name in their meta
            (`genre`).
        tagset: `universal` tags or the language's `specific` ones.
        null_keys: which keys are null attention: `first`, `special`, or by the model.
        max_tokens: longer documents are cut, and counted.
        batch_tokens: tokens of a batch.
        threads: of each worker.
        address: of a Ray cluster; a local one by default.
        progress: show progress; by default on a terminal.

    Raises:
        InputError: an unknown metric, an empty corpus, a folder with another run.
        FileFormatError: `out` holds a result that is damaged.
        KeyboardInterrupt: stopped; says how to resume.
    """
    if engine not in get_args(Engine):
        raise UnknownName.of("engine", engine, get_args(Engine))
    workers = whole_number("workers", workers)
    expect("out", out, str | os.PathLike | None, "the name of a folder, or None")
    model = as_model(model)
    corpus = corpus if isinstance(corpus, Corpus) else read(corpus, unit="sentence")
    settings = Settings(
        by=by,
        tagset=tagset,
        null_keys=null_keys,
        max_tokens=token_limit(model, max_tokens),
        batch_tokens=batch_tokens,
        threads=threads,
    )
    found = survey(corpus, settings)
    plan = make_plan(model, found, metrics, settings)
    job = _Job(model, corpus, found, plan, engine, workers, address, progress, out is not None)
    if out is None:
        with _temporary() as folder:
            return job.run(folder)
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"out={str(folder)!r} is a file; give the name of a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        check_plan(folder, plan, resume=resume)
        if (folder / RESULT).is_file():
            return _finished(folder / RESULT)
        result = job.run(folder)
        result.save(folder / RESULT)
        shutil.rmtree(folder / "shards")
    return result


def make_plan(
    model: Model,
    found: Survey,
    metrics: str | Metric | Iterable[str | Metric],
    settings: Settings,
) -> Plan:
    """The plan of a run."""
    key_classes = key_classes_of(model)
    chosen = find_metrics(metrics, found.available)
    _check_reads(model, chosen)
    return Plan(
        describe_model(model),
        {
            "name": found.name,
            "unit": found.unit,
            "documents": found.documents,
            "hash": found.hash,
            "left_out": found.left_out,
            "messages": list(found.messages),
        },
        chosen,
        axes_for(found, settings, key_classes),
        settings,
        is_compiled=sum(found.lengths) >= COMPILED_FROM and has_numba(),
    )


def _check_reads(model: Model, metrics: Iterable[Metric]) -> None:
    """Gradients need a model with a loss, and are not measured beside attention: an
    encoder's tokens are masked for them.
    """
    of_gradients = [metric.name for metric in metrics if metric.reads == "gradients"]
    of_attention = [m.name for m in metrics if m.reads == "attention" and m.scope != "tokens"]
    if of_gradients:
        model.need_head(f"Measuring {of_gradients[0]}")
    if of_gradients and of_attention:
        raise InputError(
            f"{of_gradients[0]} is measured with a backward pass over the model's own task and "
            f"{of_attention[0]} without: run them apart (headscope.importance, headscope.analyze)."
        )


@dataclass(frozen=True, eq=False)
class _Job:
    """One call of `analyze`."""

    model: Model
    corpus: Corpus
    found: Survey
    plan: Plan
    engine: Engine
    workers: int
    address: str | None
    progress: bool | None
    is_kept: bool
    """Do the shards outlive the call?"""

    def run(self, folder: Path) -> Result:
        """Measure all shards that are not done, and make the result."""
        sizes = self.plan.shard_sizes(self.found.lengths)
        ledger = Ledger(folder, self.plan, len(sizes))
        done = ledger.done
        shards = partial(self.plan.shards, self.corpus, self.found.lengths, done)
        n_done = sum(sizes[shard_id] for shard_id in done)
        meter = Meter(self.found.documents, done=n_done, shown=self.progress)
        try:
            if len(done) < len(sizes):
                self._measure(shards, ledger, meter, len(sizes) - len(done))
            ledger.fold()
        except KeyboardInterrupt:
            ledger.fold(flush=True)
            raise KeyboardInterrupt(
                f"Stopped with {len(ledger.done)} of {len(sizes)} shards done. "
                + self._advice(f"Run the same again to go on (out={str(folder)!r}).")
            ) from None
        except OSError as error:
            raise HeadscopeError(
                f"A checkpoint could not be written to {folder}: {error}. "
                + self._advice(
                    "The shards written so far are complete: make room and run the same again "
                    "to go on."
                )
            ) from error
        finally:
            meter.close()
        if not ledger.is_complete:
            raise HeadscopeError(
                f"{len(sizes) - len(ledger.done)} of {len(sizes)} shards are missing. Run the "
                "same again."
            )
        return self._result(ledger.total())

    def _advice(self, how_to_go_on: str) -> str:
        return how_to_go_on if self.is_kept else "Nothing is kept without a folder: pass out=…."

    def _measure(
        self, shards: Callable[[], Iterator[Shard]], ledger: Ledger, meter: Meter, n_left: int
    ) -> None:
        workers = min(self.workers, n_left)
        if self.engine == "ray":
            from headscope.run.engines.ray import run_ray

            run_ray(self.model, self.plan, shards, ledger, meter, self.workers, self.address)
        elif workers == 1:
            run_here(self.model, self.plan, shards(), ledger, meter)
        else:
            run_workers(self.model, self.plan, shards(), ledger, meter, workers)

    def _result(self, measured: Measured) -> Result:
        report = measured.report
        if not measured.states:
            first = report.failed[0] if report.failed else {"id": "?", "reason": "?"}
            raise HeadscopeError(
                f"No document could be measured. The first, {first['id']!r}: {first['reason']}"
            )
        _warn(report.failed, report.truncated, self.plan.settings.max_tokens)
        plan, layers = self.plan, report.layers
        order = [block for block in self.model.info.blocks if block in measured.states]
        states: States = {block: measured.states[block] for block in order}
        blocks = assemble(states, plan.metrics, plan.axes, layers)
        content = plan.to_dict()
        provenance = {
            "model": content["model"],
            "corpus": content["corpus"],
            "settings": {**content["settings"], "unit": self.found.unit},
            "metrics": content["metrics"],
            "not_measured": [
                name for name in METRICS if name not in {m.name for m in plan.metrics}
            ],
            "axes": content["axes"],
            "plan": plan.hash,
            "compiled": plan.is_compiled,
            "counts": {
                "documents": report.documents,
                "tokens": report.tokens,
                "truncated": report.truncated,
                "failed": len(report.failed),
            },
            "failed": report.failed,
            "versions": versions(),
        }
        documents = self._exemplars(used_documents(blocks))
        result = Result(blocks, label_states(states, plan.metrics), provenance, documents)
        return with_groups(result)

    def _exemplars(self, numbers: list[int]) -> dict[int, MeasuredDocument]:
        """The exemplars' documents with their tokens: the corpus is read once more."""
        if not numbers:
            return {}
        encoder = Encoder.of(self.model, self.plan)
        wanted = set(numbers)
        found: dict[int, MeasuredDocument] = {}
        for number, document in enumerate(self.corpus.read(Report(self.corpus.on_error))):
            if number in wanted:
                encoded = encoder.encode([(number, document)])[0]
                found[number] = MeasuredDocument(document.id, encoder.shown(encoded))
            if len(found) == len(wanted):
                break
        return found


def _finished(file: Path) -> Result:
    """The result of a run that is complete."""
    try:
        found = open_file(file)
    except FileFormatError as error:
        raise FileFormatError(
            f"{error} Pass resume=False (--no-resume) to measure everything again."
        ) from error
    expect(str(file), found, Result, "the result of a run")
    return cast("Result", found)


def _warn(failed: list[dict[str, str]], truncated: int, max_tokens: int) -> None:
    if failed:
        shown = "; ".join(f"{f['id']} ({f['reason']})" for f in failed[:3])
        warnings.warn(
            f"{len(failed)} documents could not be measured and are left out: {shown}. All are "
            "in result.provenance['failed'].",
            HeadscopeWarning,
            stacklevel=5,
        )
    if truncated:
        warnings.warn(
            f"{truncated} documents were cut to {max_tokens} tokens (max_tokens).",
            HeadscopeWarning,
            stacklevel=5,
        )


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="headscope-") as folder:
        yield Path(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise InputError(f"Another run is at work in {folder}. Wait for it, or stop it.") from None
    try:
        yield
    finally:
        lock.release()
