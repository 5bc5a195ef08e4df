"""`headscope.analyze`: measure all metrics over a corpus in one pass."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Unpack

from torch import nn

from headscope.errors import HeadscopeError, InputError, MetricError, warn
from headscope.metrics.catalog import METRICS
from headscope.metrics.core.accumulator import States
from headscope.metrics.core.contract import LayersMetric, Metric, reads_rows
from headscope.metrics.core.finalize import finalize_all, label_states
from headscope.metrics.core.layer_data import has_numba
from headscope.metrics.core.regions import Swept
from headscope.metrics.core.registry import facts_of, find_metrics, list_metrics
from headscope.metrics.gradients import Importance
from headscope.model.edits import describe_edits
from headscope.model.identity import describe_model, versions
from headscope.model.load import load
from headscope.model.model import Model
from headscope.model.objective import require_gradients
from headscope.results.display import counted
from headscope.results.files import RESULT_FILE
from headscope.results.result import MeasuredDocument, Result
from headscope.run import options as run_options
from headscope.run.batches import Encoder, cut_windows, key_classes_of, token_limit
from headscope.run.checkpoint import (
    FOLDER,
    ShardStore,
    check_plan,
    finished,
    locked,
    remove_checkpoints,
)
from headscope.run.engines.local import run_here, run_workers
from headscope.run.engines.processes import n_cores, stop_server, warm_up
from headscope.run.merge import used_documents, with_groups
from headscope.run.plan import Plan, Shard, Survey, axes_for, last_hashes, survey
from headscope.run.progress import Amount, Meter, phase
from headscope.run.shard import ShardSums
from headscope.text.corpus import Corpus, hold_documents
from headscope.text.readers.read import Readable, as_corpus
from headscope.text.readers.reader import ReadLog

COMPILED_FROM = 50_000
"""Minimum characters in the corpus for compiled loops: in shorter runs, loading them takes longer
than they save."""
COMPILED_FROM_PAIRS = 3e7
"""Minimum pairs of characters within documents for compiled loops: attention grows with pairs."""
CHARACTERS_PER_TOKEN = 4
ROWS = 128
"""Query rows of a block of attention: a multiple of 64, so that sums of columns are rounded at the
same rows for any number of blocks."""
SHARE_OF_MEMORY = 0.1
"""Largest share of the memory for the weights of one layer, which is copied several times."""
OPERATIONS_PER_SECOND = 4e10
"""Rough speed of a core in a forward pass; decides the number of workers, not the results."""
CORPUS_FACTS = ("name", "unit", "documents", "hash", "left_out")
SECONDS_PER_WORKER = 5
"""Seconds of work that justify another worker process."""


def analyze(
    model: Model | str,
    corpus: Corpus | Readable,
    metrics: str | Metric | Iterable[str | Metric] = "all",
    **options: Unpack[run_options.RunOptions],
) -> Result:
    """Measure every head over a corpus.

    All metrics share one forward pass per document. With `out`, finished shards are kept on
    disk: a stopped run continues when called again, and a complete run is opened. The result is
    bit-equal for any number of workers and interruptions.

    Args:
        model: the model, or a source for `headscope.load`.
        corpus: the documents, or a source for `headscope.read`: files are read by sentence, as
            in Vig & Belinkov; texts and documents are never cut.
        metrics: "all" for those that the annotations allow, names, or metrics with options.
        options: folder, workers, cutting of documents: see `RunOptions`. By default a document
            has at most 512 tokens, a batch 1,024.

    Raises:
        InputError: an unknown metric, an empty corpus, a folder with another run.
        FileFormatError: the result in `out` is damaged.
        KeyboardInterrupt: the run was stopped; the message says how to resume.
    """
    run_options.check_options(options)
    execution = run_options.Execution.of(options)
    if execution.engine == "local":
        warm_up(corpus, execution.workers)
    try:
        model = model if isinstance(model, Model) else load(model)
        with phase(f"checking {model.name}", execution.progress):
            limit = token_limit(model, options.get("max_tokens", run_options.MAX_TOKENS))
        settings = run_options.settings_of(options, limit)
        metrics = list_metrics(metrics)
        facts = facts_of(metrics)
        corpus = as_corpus(corpus)
        if settings.windows is not None:
            settings = replace(settings, windows=token_limit(model, settings.windows))
            corpus = cut_windows(model, corpus, settings.windows or limit)
        with phase(f"reading {corpus.name}", execution.progress):
            corpus = hold_documents(corpus)
            surveyed = survey(corpus, settings, facts)
        with phase("planning", execution.progress):
            plan = make_plan(model, surveyed, metrics, settings)
            _ = plan.hash  # computed once: each checkpoint names it
        job = _Job(model, corpus, surveyed, plan, execution)
        if execution.out is None:
            with tempfile.TemporaryDirectory(prefix="headscope-") as temporary:
                return job.run(Path(temporary))
        folder = execution.out
        with locked(folder):
            check_plan(folder, plan, resume=execution.resume)
            result = finished(folder, plan)
            if result is None:
                result = job.run(folder)
                with phase(f"writing {folder / RESULT_FILE}", execution.progress):
                    result.save(folder / RESULT_FILE)
            remove_checkpoints(folder, plan)
        return result
    finally:
        stop_server()


def make_plan(
    model: Model,
    surveyed: Survey,
    metrics: str | Metric | Iterable[str | Metric],
    settings: run_options.Settings,
) -> Plan:
    """Make the plan of a run."""
    chosen = find_metrics(metrics, surveyed.available | {"gradients", "loss"})
    with_gradients = [m.name for m in chosen if m.needs & {"gradients", "loss"}]
    without = [m.name for m in chosen if m.name not in with_gradients and m.scope != "text"]
    has_scalar = any(isinstance(m, Importance) and m.scalar is not None for m in chosen)
    if with_gradients:
        require_gradients(model)
    if with_gradients and not has_scalar:
        model.require_objective(f"Measuring {with_gradients[0]}")
    if with_gradients and without:
        raise InputError(
            f"{with_gradients[0]} is measured with a backward pass over the model's own task, and "
            f"{without[0]} without one: run them apart (headscope.importance, headscope.analyze)."
        )
    if with_gradients and settings.over != "attention":
        raise InputError(
            f"{with_gradients[0]} is a gradient with respect to attention. Pass over='attention'."
        )
    available = sorted({site.layer for site in model.wiring.sites})
    chosen_layers = available if settings.layers is None else settings.layers
    if not chosen_layers or not set(chosen_layers) <= set(available):
        raise InputError(
            f"layers={[*chosen_layers]}: {model.name} has attention in layers {available[0]} to "
            f"{available[-1]}. Name at least one of them."
        )
    if settings.over != "attention":
        _ = model.projections  # an error if the norms of this model are unknown
    longest = CHARACTERS_PER_TOKEN * settings.max_tokens
    pairs = sum(min(length, longest) ** 2 for length in surveyed.lengths)
    is_long = sum(surveyed.lengths) >= COMPILED_FROM or pairs >= COMPILED_FROM_PAIRS
    is_compiled = is_long and has_numba()
    whole = [
        m.name
        for m in chosen
        if not reads_rows(m) or (isinstance(m, LayersMetric) and settings.over != "attention")
    ]
    has_rows = model.wiring.has_rows and (
        not with_gradients or all(site.is_plain for site in model.wiring.sites)
    )
    edits = [edit for edit in model.edits if with_gradients or not edit.acts_by_rows]
    why_whole = whole + ([f"edits ({describe_edits(edits)})"] if edits else [])
    rows = ROWS if has_rows and not why_whole else None
    if settings.windows is not None and (whole or with_gradients):
        raise InputError(
            f"{(whole or with_gradients)[0]} would count the overlap of windows twice. Leave it "
            "out, or pass windows=None."
        )
    if rows is None:
        n_kept = len(available) if any(isinstance(m, LayersMetric) for m in chosen) else 1
        check_length(model, settings, max(surveyed.lengths, default=0), why_whole, n_kept)
    is_swept = all(
        any(isinstance(r, Swept) for m in chosen if block in m.blocks for r in m.reductions)
        for block in model.info.blocks
    )
    can_fuse = is_swept and settings.over == "attention" and model.module.device.type == "cpu"
    return Plan(
        describe_model(model),
        {
            **{name: getattr(surveyed, name) for name in CORPUS_FACTS},
            "messages": list(surveyed.messages),
            **({"independence": surveyed.independence} if surveyed.independence else {}),
        },
        chosen,
        axes_for(surveyed, settings, key_classes_of(model)),
        settings,
        is_compiled=is_compiled,
        rows=rows,
        is_fused=rows is not None and is_compiled and can_fuse and not with_gradients,
        facts=surveyed.facts,
        last_hashes=last_hashes(surveyed.sample_hashes, chosen),
    )


def check_length(
    model: Model, settings: run_options.Settings, characters: int, whole: list[str], n_kept: int
) -> None:
    """Raise InputError if `n_kept` layers of the longest document do not fit in memory."""
    # A token has at least a character, mostly more.
    tokens = min(settings.max_tokens, characters)
    size = 4 * model.info.n_heads * tokens**2
    if size <= memory() * SHARE_OF_MEMORY and size * n_kept <= memory() / 2:
        return
    reason = (
        f"{', '.join(whole)} need whole layers"
        if whole
        else f"the attention of {model.info.family} cannot be read by rows"
    )
    raise InputError(
        f"Documents of up to {tokens:,} tokens have {size / 1e9:.1f} GB of attention in a layer of "
        f"{model.info.n_heads} heads, {n_kept} kept at once, and {reason}. This machine has "
        f"{memory() / 1e9:.0f} GB. Pass max_tokens={run_options.MAX_TOKENS}"
        f"{', or leave these out' if whole else ''}."
    )


def memory() -> int:
    """Return the bytes of memory of this machine; a large number if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 40


@dataclass(frozen=True, eq=False)
class _Job:
    model: Model
    corpus: Corpus
    surveyed: Survey
    plan: Plan
    execution: run_options.Execution

    def run(self, folder: Path) -> Result:
        sizes = self.plan.shard_sizes(self.surveyed.lengths)
        store = ShardStore(folder, self.plan, len(sizes), is_kept=self.execution.out is not None)
        done = store.done
        shards = partial(self.plan.shards, self.corpus, self.surveyed.lengths, done)
        left = sum((size for number, size in enumerate(sizes) if number not in done), Amount())
        n_documents = self.surveyed.documents
        n_done = n_documents - left.documents
        meter = Meter(n_documents, done=n_done, shown=self.execution.progress, left=left)
        try:
            if len(done) < len(sizes):
                self._measure(shards, store, meter, len(sizes) - len(done))
            store.merge()
        except KeyboardInterrupt:
            with contextlib.suppress(KeyboardInterrupt, OSError):  # Ctrl-C was pressed twice
                store.merge(flush=True)
            raise KeyboardInterrupt(
                f"Stopped with {len(store.done)} of {len(sizes)} shards done. "
                + self._advice(f"Run the same again to go on (out={str(folder)!r}).")
            ) from None
        except MetricError as error:
            # Without the frames of the forward pass, in which the metric was called.
            raise error.with_traceback(None) from error.__cause__
        except ConnectionError as error:
            raise HeadscopeError(
                f"{error} "
                + self._advice(
                    "The shards measured so far are kept: run the same again to go on, on Ray or "
                    f"with engine='local' (out={str(folder)!r})."
                )
            ) from None
        except OSError as error:
            action = "It was renamed or removed during the run: put it back"
            if (folder / FOLDER).is_dir():
                action = "The shards written so far are complete: make room"
            raise HeadscopeError(
                f"A checkpoint could not be written to {folder}: {error} "
                + self._advice(f"{action} and run the same again to go on.")
            ) from error
        finally:
            meter.close()
        if not store.is_complete:
            raise HeadscopeError(
                f"{len(sizes) - len(store.done)} of {len(sizes)} shards are missing. Run the "
                "same again."
            )
        with phase("finalizing metrics", self.execution.progress):
            return self._result(store.total())

    def _advice(self, how_to_resume: str) -> str:
        is_kept = self.execution.out is not None
        return how_to_resume if is_kept else "Nothing is kept without a folder: pass out=…."

    def _measure(
        self, shards: Callable[[], Iterator[Shard]], store: ShardStore, meter: Meter, n_left: int
    ) -> None:
        model, plan = self.model, self.plan
        if self.execution.engine == "ray":
            from headscope.run.engines.ray import run_ray

            run_ray(model, plan, shards, store, meter, self.execution)
            return
        workers = min(n_left, self.execution.workers or worthwhile_workers(model, self.surveyed))
        if workers == 1:
            stop_server()  # if one was started, it is not needed
            run_here(model, plan, shards(), store, meter)
        else:
            run_workers(model, plan, shards(), store, meter, workers)

    def _result(self, measured: ShardSums) -> Result:
        report = measured.report
        if not measured.states:
            first = report.failed[0] if report.failed else {"id": "?", "reason": "?"}
            raise HeadscopeError(
                f"No document could be measured. The first, {first['id']!r}: {first['reason']}"
            )
        plan, layers = self.plan, report.layers
        if report.failed:
            shown = "; ".join(f"{f['id']} ({f['reason']})" for f in report.failed[:3])
            warn(
                f"{counted(len(report.failed))} could not be measured (left out): {shown}. "
                "All are in result.provenance['failed']."
            )
        if report.truncated:
            limit = plan.settings.max_tokens
            verb = "was" if report.truncated == 1 else "were"
            is_all = limit == self.model.info.max_length
            why = f", all that {self.model.name} takes" if is_all else " (max_tokens)"
            warn(f"{counted(report.truncated)} {verb} cut to {limit} tokens{why}.")
        order = [block for block in self.model.info.blocks if block in measured.states]
        states: States = {block: measured.states[block] for block in order}
        blocks = finalize_all(states, plan.metrics, plan.axes, layers, over=plan.settings.over)
        content, counts = plan.to_dict(), report.to_dict()
        del counts["layers"]
        size, seed = self.corpus.sample_size, self.corpus.seed
        sampling = {} if size is None else {"sample": size, "seed": seed}
        provenance = {
            "model": content["model"],
            "corpus": {**content["corpus"], **sampling},
            "settings": {**content["settings"], "unit": self.surveyed.unit},
            "metrics": content["metrics"],
            "not_measured": [
                name for name in METRICS if name not in {m.name for m in plan.metrics}
            ],
            "axes": content["axes"],
            "plan": plan.hash,
            "compiled": plan.is_compiled,
            "counts": {**counts, "failed": len(report.failed)},
            "failed": report.failed,
            "versions": versions(),
        }
        documents = self._exemplars(used_documents(blocks))
        result = Result(blocks, label_states(states, plan.metrics), provenance, documents)
        return with_groups(result)

    def _exemplars(self, numbers: list[int]) -> dict[int, MeasuredDocument]:
        """Return the documents of the exemplars with their tokens; reads the corpus once more."""
        if not numbers:
            return {}
        read, chosen = enumerate(self.corpus.read(ReadLog(self.corpus.on_error))), set(numbers)
        found = (numbered for numbered in read if numbered[0] in chosen)
        exemplars = list(itertools.islice(found, len(numbers)))
        shown = {
            encoded.numbered[0]: {name: tokens.tokens for name, tokens in encoded.stacks.items()}
            for encoded in Encoder.of(self.model, self.plan).encode(exemplars)
        }
        return {n: MeasuredDocument(document.id, shown[n]) for n, document in exemplars}


def worthwhile_workers(model: Model, surveyed: Survey) -> int:
    """Return the number of workers that have more to do than their start takes; one for a GPU."""
    if model.module.device.type != "cpu":
        return 1
    looked_up = {id(m.weight) for m in model.module.modules() if isinstance(m, nn.Embedding)}
    multiplied = sum(p.numel() for p in model.module.parameters() if id(p) not in looked_up)
    seconds = 2 * multiplied * sum(surveyed.lengths) / CHARACTERS_PER_TOKEN / OPERATIONS_PER_SECOND
    return max(1, min(n_cores(), int(seconds / SECONDS_PER_WORKER)))
