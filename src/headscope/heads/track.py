"""`headscope.HeadTracker`: measure every head while a model is trained, or over its checkpoints.

Training is not touched: random states, modes, gradients and wrappers are as they were. All steps
read the same documents, so that differences of steps are paired.
"""

from __future__ import annotations

import functools
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_callback import CallbackHandler

from headscope.arguments import finite_number, whole_number
from headscope.causal.effects import effects as measure_effects
from headscope.errors import HeadscopeError, InputError, warn
from headscope.heads.detect import detect_heads
from headscope.heads.roles import ROLE_VARIABLES
from headscope.metrics.core.contract import Metric
from headscope.model.identity import weights_sha256
from headscope.model.load import load, unwrap
from headscope.model.model import Model
from headscope.model.private_api import COMPILED_CALL, UNWRAPPED_FORWARD
from headscope.results.display import is_shown
from headscope.results.effect_data import result_of_effects
from headscope.results.files import RESULT_FILE
from headscope.results.files import open as open_file
from headscope.results.result import HEADS, Result
from headscope.results.steps import check_same, stack_steps, with_previous
from headscope.results.trace import Trace
from headscope.run.analyze import analyze
from headscope.run.merge import merge
from headscope.text.corpus import Corpus
from headscope.text.document import Document
from headscope.text.readers.read import Readable, as_corpus

METRICS = (*ROLE_VARIABLES, "null_share", "duplicate_token", "induction")
"""Default metrics: those that roles are read from."""
FIRST_CHUNK = 16
"""Documents of the first chunk; each further chunk doubles their number."""
FIRST_SECONDS = 20.0
"""Time after which the first step stops adding chunks."""
MAX_DOCUMENTS = 512
STEPS = "steps"
TRACES = "traces"


@contextmanager
def untouched(module: nn.Module) -> Iterator[None]:
    """Within the block, run a model in eval mode; afterwards its training goes on as without it.

    Restored: random states of torch, NumPy and Python; the mode of each part; buffers; gradients;
    compiled calls and mixed-precision wrappers, which do not run within the block.
    """
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    parts = list(module.modules())
    modes = [part.training for part in parts]
    buffers = [dict(part.named_buffers(recurse=False)) for part in parts]
    gradients = [(p, p.grad) for p in module.parameters()]
    wrappers = [_wrappers(part) for part in parts]
    device = next((p.device.type for p in module.parameters()), "cpu")
    try:
        for part, kept in zip(parts, wrappers, strict=True):
            for name in kept:
                del vars(part)[name]
            part.training = False
        with torch.autocast(device, enabled=False):
            yield
    finally:
        for part, mode, tensors, kept in zip(parts, modes, buffers, wrappers, strict=True):
            vars(part).update(kept)
            part.training = mode
            for name, tensor in tensors.items():
                if getattr(part, name) is not tensor:
                    setattr(part, name, tensor)
        for parameter, gradient in gradients:
            if parameter.grad is not gradient:
                parameter.grad = gradient
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])
        if cuda:
            torch.cuda.set_rng_state_all(cuda)


def _wrappers(part: nn.Module) -> dict[str, object]:
    """Return the attributes that make a call of the part run other code than its class's."""
    own = vars(part)
    names = [COMPILED_CALL] if own.get(COMPILED_CALL) is not None else []
    if UNWRAPPED_FORWARD in own and "forward" in own:  # mixed precision of accelerate
        names.append("forward")
    return {name: own[name] for name in names}


class HeadTracker(TrainerCallback):
    """Tracker of every head through a training.

    As a callback of a transformers `Trainer`, or in any loop:

        trainer = Trainer(model, args, callbacks=[hs.HeadTracker("dev.txt", out="track")], …)

        tracker = hs.HeadTracker("dev.txt", tokenizer=tokenizer, out="track")
        tracker.log(model, step)  # whenever a step is to be measured
        results = tracker.close()

    Scalars such as `headscope/L3.H1/induction` go where the Trainer reports to. Losses are
    bit-identical with and without the tracker. The self-check runs once.

    Attributes:
        seconds: time spent on tracking.
        traces: traces of `text` by step; `headscope.save_page(tracker.traces, "page.html")` writes
            a page with a scrubber.
        error: error that ended the tracking of a Trainer, whose training goes on.
    """

    def __init__(
        self,
        corpus: Corpus | Readable | None,
        metrics: str | Metric | Iterable[str | Metric] = METRICS,
        *,
        detect: bool = True,
        effects: bool = False,
        every: int = 100,
        out: str | Path | None = None,
        budget: float | None = 0.05,
        tokenizer: PreTrainedTokenizerBase | None = None,
        max_tokens: int = 128,
        text: str | None = None,
    ) -> None:
        """Make a tracker.

        Args:
            corpus: documents to measure on, the same at every step; None for detection alone.
            metrics: metrics of `analyze`; by default those that roles are read from.
            detect: also score heads on repeated random tokens (`detect_heads`).
            effects: also ablate each head on the first documents (`effects`, on the loss).
            every: steps of a Trainer between two measurements.
            out: folder for the steps and results; a stopped tracker goes on with it.
            budget: maximum share of the time, from the first step on, that tracking takes. It
                decides at the second step how many documents are read; scalars of the first step
                are of more. None: all documents.
            tokenizer: the model's tokenizer; a Trainer's processing class is the default.
            max_tokens: longer documents are cut.
            text: text to trace at each step, for a page (`traces`).
        """
        if corpus is None and (effects or not detect):
            raise InputError("Without a corpus a tracker can only detect: pass a corpus.")
        if budget is not None and not 0 < finite_number("budget", budget) < 1:
            raise InputError(f"budget={budget}; expected a share between 0 and 1, or None.")
        self.every = whole_number("every", every)
        self.seconds = 0.0
        self.error: HeadscopeError | None = None
        self._corpus = None if corpus is None else as_corpus(corpus)
        if self._corpus is not None and next(iter(self._corpus), None) is None:
            raise InputError(f"{self._corpus.name} has no documents to track.")
        self._metrics: str | Metric | list[str | Metric] = (
            metrics if isinstance(metrics, str | Metric) else list(metrics)
        )
        self._detects, self._ablates, self._budget = detect, effects, budget
        self._out = None if out is None else Path(out)
        self._tokenizer, self._max_tokens, self._text = tokenizer, max_tokens, text
        self.traces: dict[int, Trace] = {}
        self._model: Model | None = None
        self._results: dict[str, dict[int, Result]] = {}
        self._first: tuple[int, list[Result]] | None = None
        self._costs: list[float] = []
        self._fixed = self._first_end = 0.0
        self._clock: Callable[[], float] = time.perf_counter
        self._n_chunks = 1 if budget is None else None
        for kind in ("corpus", "detect", "effects") if self._out else ():
            for file in sorted(self._folder(kind).glob("*.nc")):
                self._results.setdefault(kind, {})[int(file.stem)] = _opened(file)
        for file in sorted(self._folder(TRACES).glob("*.nc")) if self._out and text else ():
            trace = open_file(file)
            if isinstance(trace, Trace) and trace.text.texts == (text,):
                self.traces[int(file.stem)] = trace
        for result in list(self._results.get("corpus", {}).values())[:1]:
            self._n_chunks = len(str(result.provenance["corpus"]["hash"]).split("+"))

    def log(self, model: Model | nn.Module, step: int) -> dict[str, float]:
        """Measure a model at a step; return the scalars by name.

        A step that was measured with the same weights is not measured again.

        Raises:
            InputError: the step was measured with other weights, or the model is sharded.
        """
        step = whole_number("step", step, 0)
        start = self._clock()
        module = unwrap(model.module if isinstance(model, Model) else model, compiled=True)[0]
        if not isinstance(module, PreTrainedModel):
            raise InputError(
                f"{type(model).__name__} is not a transformers model. Pass the model inside it."
            )
        for name, parameter in module.named_parameters():
            is_sharded = hasattr(parameter, "ds_id") or hasattr(parameter, "to_local")
            if parameter.numel() == 0 or is_sharded:
                raise InputError(
                    f"The weights are sharded ({name}), so one process cannot run the model. Track "
                    "saved checkpoints instead: headscope track checkpoints/*/ CORPUS -o track."
                )
        if self._model is None or self._model.module is not module:
            given = model if isinstance(model, Model) else None
            with untouched(module):
                self._model = given or load(module, self._tokenizer)
        with untouched(module):
            logged = self._measure(self._model, step, start)
            if self._text is not None and step not in self.traces:
                trace = self._model.trace(self._text, vectors=False)
                self.traces[step] = replace(trace, origin=None)
                if self._out is not None:
                    self._folder(TRACES).mkdir(parents=True, exist_ok=True)
                    trace.save(self._folder(TRACES) / f"{step:09d}.nc")
        end = self._clock()
        self.seconds += end - start
        if self._first is not None and self._first[0] == step:
            self._first_end = end
        return logged

    def _measure(self, model: Model, step: int, start: float) -> dict[str, float]:
        if self._is_known(model, step):
            return self._scalars(step)
        if self._first is not None:
            self._settle(start)
        fixed = self._clock()
        found: dict[str, Result] = {}
        if self._detects:
            found["detect"] = detect_heads(model, length=_length(model))
        if self._ablates:
            documents = replace(as_corpus(self._chunks[0]), label=self._name)
            effects = measure_effects(model, documents, max_tokens=self._max_tokens, progress=False)
            found["effects"] = result_of_effects(effects)
            found["effects"].provenance["corpus"]["hash"] = documents.summary().hash
        fixed = self._clock() - fixed
        if self._corpus is not None and self._n_chunks is None:
            self._fixed = fixed
            self._first = step, list(self._timed(model))
            found["corpus"] = functools.reduce(merge, self._first[1])
        elif self._corpus is not None:
            chunks = self._chunks[: self._n_chunks]
            found["corpus"] = functools.reduce(merge, (self._run(model, c) for c in chunks))
        for kind, result in found.items():
            if kind != "corpus" or self._first is None:
                self._keep(kind, step, result)
        return self._scalars(step) if self._first is None else _scalars_of(found)

    def _is_known(self, model: Model, step: int) -> bool:
        for kind, known in self._results.items():
            if step in known:
                recorded = known[step].provenance["model"]["weights_sha256"]
                if recorded != weights_sha256(model.module):
                    raise InputError(
                        f"Step {step} was tracked with other weights ({kind}, "
                        f"{self._out or 'this tracker'}). Track each training into its own folder."
                    )
        kinds = {"detect": self._detects, "effects": self._ablates, "corpus": bool(self._corpus)}
        return all(step in self._results.get(kind, {}) for kind, is_on in kinds.items() if is_on)

    @functools.cached_property
    def _chunks(self) -> list[list[Document]]:
        """Documents in random order: one chunk, or with a budget 16, 16, 32, 64 and so on."""
        assert self._corpus is not None
        documents = list(self._corpus)
        if self._budget is None:
            return [documents]
        order = np.random.default_rng(0).permutation(len(documents))[:MAX_DOCUMENTS]
        chunks, start, size = [], 0, FIRST_CHUNK
        while start < len(order):
            chunks.append([documents[i] for i in order[start : start + size]])
            start += size
            size = start
        if len(chunks) > 1 and len(chunks[-1]) < FIRST_CHUNK:
            chunks[-2:] = [chunks[-2] + chunks[-1]]
        return chunks

    @property
    def _name(self) -> str:
        return "" if self._corpus is None else self._corpus.name

    def _run(self, model: Model, documents: Sequence[Document]) -> Result:
        corpus = replace(as_corpus(list(documents)), label=self._name)
        return analyze(
            model, corpus, self._metrics, workers=1, progress=False, max_tokens=self._max_tokens
        )

    def _timed(self, model: Model) -> Iterator[Result]:
        """Yield the results of chunks until their time is up; keep what each prefix costs."""
        self._costs, start = [], self._clock()  # without those of a first step that failed
        for chunk in self._chunks:
            yield self._run(model, chunk)
            self._costs.append(self._clock() - start)
            if self._costs[-1] >= FIRST_SECONDS:
                return

    def _settle(self, now: float | None = None) -> None:
        """Choose the number of chunks from the time since the first step, and keep that step."""
        assert self._first is not None
        step, results = self._first
        n = len(results)
        if now is not None and self._budget is not None:
            elapsed = now - self._first_end
            # Of the whole time, which includes tracking: t / (t + elapsed) <= budget.
            allowed = self._budget / (1 - self._budget) * elapsed
            n = sum(self._fixed + cost <= allowed for cost in self._costs)
            if n == 0:
                n, least = 1, self._fixed + self._costs[0]
                warn(
                    f"Tracking takes {least:.2g} s a step for {len(self._chunks[0])} documents, "
                    f"and budget={self._budget:g} allows {allowed:.2g} s. Track "
                    f"{least / max(allowed, 1e-9):.0f} times less often, or pass budget=None."
                )
        self._first, self._n_chunks = None, n
        self._keep("corpus", step, functools.reduce(merge, results[:n]))

    def _folder(self, kind: str) -> Path:
        assert self._out is not None
        return self._out / kind / STEPS

    def _keep(self, kind: str, step: int, result: Result) -> None:
        known = self._results.setdefault(kind, {})
        for other, kept in list(known.items())[:1]:
            check_same(other, kept, step, result)
        if self._out is not None:
            self._folder(kind).mkdir(parents=True, exist_ok=True)
            result.save(self._folder(kind) / f"{step:09d}.nc")
        known[step] = result

    def _scalars(self, step: int) -> dict[str, float]:
        return _scalars_of({k: known[step] for k, known in self._results.items() if step in known})

    @property
    def results(self) -> dict[str, Result]:
        """Results with the axis `step`: `corpus`, `detect` and `effects`, those measured."""
        if self._first is not None:
            self._settle()
        return {kind: stack_steps(known) for kind, known in self._results.items()}

    def close(self) -> dict[str, Result]:
        """Write the results to `out` (`corpus/result.nc`, `detect/result.nc` …) and return them."""
        results = self.results
        for kind, result in results.items() if self._out is not None else ():
            result.save(self._folder(kind).parent / RESULT_FILE)
        return results

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the model before its first step; here an error ends the training."""
        if self._tokenizer is None:
            tokenizer = kwargs.get("processing_class")
            tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
            self._tokenizer = tokenizer if isinstance(tokenizer, PreTrainedTokenizerBase) else None
        if state.is_world_process_zero:
            self._report(args, state, control, **kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure every `every` steps and the last; an error is reported, and training goes on."""
        if state.global_step % self.every == 0 or state.global_step == state.max_steps:
            self._safely(state, lambda: self._report(args, state, control, **kwargs))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the last step, if training ended early, and write the results."""
        if self._safely(state, lambda: self.log(kwargs["model"], state.global_step)):
            self.close()

    def _safely(self, state: Any, run: Callable[[], object]) -> bool:
        """Call a function in the main process; False if there was an error, now or before."""
        if self.error is None and state.is_world_process_zero:
            try:
                run()
            except HeadscopeError as error:
                self.error = error
                warn(f"Tracking ended at step {state.global_step}, training goes on: {error}")
        return self.error is None and bool(state.is_world_process_zero)

    def _report(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        scalars = self.log(kwargs["model"], state.global_step)
        # Callbacks do not get their Trainer. Its handler is a caller of this function.
        frame = sys._getframe()
        while not isinstance(handler := frame.f_locals.get("self"), CallbackHandler):
            if frame.f_back is None:
                warn("The Trainer's reports were not found: scalars are in tracker.results alone.")
                return
            frame = frame.f_back
        for callback in handler.callbacks:
            is_console = type(callback).__module__.startswith(CONSOLE)
            if callback is not self and not is_console:
                callback.on_log(args, state, control, logs=dict(scalars), **kwargs)


CONSOLE = ("transformers.trainer_callback", "transformers.utils.notebook")
"""Modules of callbacks that print logs: hundreds of scalars would flood them."""


def _scalars_of(found: Mapping[str, Result]) -> dict[str, float]:
    """Return `headscope/L3.H1/induction`; scores on random tokens have the prefix `detect_`."""
    scalars = {}
    for kind, result in found.items():
        data = with_previous(result).dataset
        for name, array in data.data_vars.items():
            if array.dims == HEADS and is_shown(array):
                title = f"detect_{name}" if kind == "detect" and "corpus" in found else name
                for place in np.ndindex(array.shape):
                    value = float(array.values[place])
                    if np.isfinite(value):
                        layer, head = (int(array[HEADS[i]].values[n]) for i, n in enumerate(place))
                        scalars[f"headscope/L{layer}.H{head}/{title}"] = value
    return scalars


def _length(model: Model, usual: int = 32) -> int:
    """Return the length of random sequences: shorter for a small vocabulary or a short model."""
    limit = model.info.max_length or 2 * usual + 4
    return max(1, min(usual, (limit - 4) // 2, len(model.require_tokenizer()) // 2))


def _opened(file: Path) -> Result:
    opened = open_file(file)
    if not isinstance(opened, Result):
        raise InputError(f"{str(file)!r} is not a step of a tracker. Pass another folder.")
    return opened


def track_checkpoints(
    sources: Mapping[int, str | Path] | Iterable[str | Path],
    corpus: Corpus | Readable | None,
    *,
    revisions: Sequence[str] = (),
    out: str | Path | None = None,
    on_step: Callable[[int, str], object] = lambda step, source: None,
    **options: Any,
) -> dict[str, Result]:
    """Measure saved checkpoints of one training; a stopped run goes on with its folder.

    Args:
        sources: checkpoints by step, or folders whose names end in their steps
            (`checkpoint-500`); with `revisions`, one model on the hub.
        corpus: documents to measure on; None for detection alone.
        revisions: revisions on the hub, named after their steps (`step1000`).
        out: folder for the steps and results.
        on_step: function that is called before each step.
        options: `metrics`, `detect`, `effects`, `max_tokens`, `text` of `HeadTracker`.

    Returns:
        Results with the axis `step`: `corpus`, `detect`, `effects`.
    """
    given = sources if isinstance(sources, Mapping) else list(map(str, sources))
    if revisions and (isinstance(given, Mapping) or len(given) != 1):
        raise InputError(f"Revisions are of one model; {len(given)} were given.")
    if isinstance(given, Mapping):
        chosen: dict[int, tuple[str, str | None]] = {n: (str(s), None) for n, s in given.items()}
    else:
        pairs: list[tuple[str, str | None]] = [(given[0], r) for r in revisions]
        chosen = {}
        for source, revision in pairs or [(source, None) for source in given]:
            name = revision or Path(source).name
            numbers = re.findall(r"\d+", name)
            if not numbers:
                raise InputError(
                    f"{name!r} does not name its step. Rename it, such as checkpoint-500, or pass "
                    "a dict of checkpoints by step."
                )
            step = int(numbers[-1])
            if step in chosen:
                raise InputError(f"{source!r} and {chosen[step][0]!r} are both step {step}.")
            chosen[step] = source, revision
    tracker = HeadTracker(corpus, out=out, budget=None, **options)
    for step, (source, revision) in sorted(chosen.items()):
        on_step(step, source if revision is None else f"{source} at {revision}")
        tracker.log(load(source, revision=revision), step)
    return tracker.close()
