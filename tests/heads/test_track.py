"""Heads through training: nothing of the training changes, and every number is a step's own."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

import headscope as hs
from headscope.errors import HeadscopeWarning, InputError
from headscope.heads.detect import detect_heads
from headscope.heads.significant import Onset, Onsets, _stays, find_onsets
from headscope.heads.track import track_checkpoints, untouched
from headscope.results.steps import stack_steps
from headscope.statistics.intervals import CONFIDENCE
from tests.conftest import byte_tokenizer

TEXTS = [f"the cat {i} sat on the cat {i} and the cat" for i in range(24)]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return byte_tokenizer()


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> GPT2LMHeadModel:
    """A small model with dropout."""
    torch.manual_seed(seed)
    ids = {"bos_token_id": 1, "eos_token_id": 1}
    config = GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=64, **ids
    )
    return GPT2LMHeadModel(config)


def batches(n: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(2, 200, (2, 12), generator=generator) for _ in range(n)]


def train(
    model: GPT2LMHeadModel, call: Any = None, log: Any = None, autocast: bool = False
) -> list[float]:
    """A bare loop with dropout and accumulated gradients; the log comes between two of them."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    model.train()
    run = model if call is None else call
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    for step, ids in enumerate(batches(6)):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = run(input_ids=ids, labels=ids).loss
        (loss * (1 + random.random() + np.random.rand())).backward()  # noqa: NPY002
        losses.append(loss.item())
        if log is not None and step % 2 == 0:
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                log(run, step)
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
    return losses


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # of the compiler
@pytest.mark.parametrize("wrapped", ["plain", "autocast", "compiled", "in place", "parallel"])
def test_losses_are_bit_identical(tokenizer: PreTrainedTokenizerFast, wrapped: str) -> None:
    def wrap(model: GPT2LMHeadModel) -> Any:
        if wrapped == "compiled":
            return torch.compile(model, backend="eager")
        if wrapped == "in place":
            model.compile(backend="eager")
        return torch.nn.DataParallel(model) if wrapped == "parallel" else model

    plain, tracked = make_model(tokenizer), make_model(tokenizer)
    is_auto = wrapped == "autocast"
    expected = train(plain, wrap(plain), autocast=is_auto)
    tracker = hs.HeadTracker(TEXTS, tokenizer=tokenizer, budget=None, effects=True)
    assert train(tracked, wrap(tracked), tracker.log, autocast=is_auto) == expected
    for mine, theirs in zip(tracked.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert tracker.results["corpus"].steps == [0, 2, 4]
    # What was measured is the model in float32 and eval mode, at that step.
    fresh = make_model(tokenizer).eval()
    fresh.load_state_dict(plain.state_dict())
    direct = hs.analyze(hs.load(fresh, tokenizer), TEXTS, ["null_share"], max_tokens=128)
    plain_tracker = hs.HeadTracker(TEXTS, ["null_share"], tokenizer=tokenizer, budget=None)
    plain_tracker.log(wrap(plain), 9)
    at_end = plain_tracker.results["corpus"].at_step(9)
    assert np.array_equal(at_end["null_share"].values, direct["null_share"].values)


def test_everything_is_restored(tokenizer: PreTrainedTokenizerFast) -> None:
    model = make_model(tokenizer)
    model.train()
    model.transformer.h[0].eval()  # a frozen part
    model(input_ids=batches(1)[0], labels=batches(1)[0]).loss.backward()
    before = [part.training for part in model.modules()]
    gradients = [(p.grad, p.grad.clone()) for p in model.parameters() if p.grad is not None]
    attributes = [set(vars(part)) for part in model.modules()]
    state = torch.get_rng_state()

    def fail() -> None:
        with untouched(model):
            assert not any(part.training for part in model.modules())
            torch.rand(3)
            for parameter in model.parameters():
                parameter.grad = None
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    hs.HeadTracker(TEXTS, tokenizer=tokenizer).log(model, 0)
    assert [part.training for part in model.modules()] == before
    assert torch.equal(torch.get_rng_state(), state)
    kept = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(a is b and torch.equal(a, c) for a, (b, c) in zip(kept, gradients, strict=True))
    new = [set(vars(p)) - a for p, a in zip(model.modules(), attributes, strict=True)]
    assert all(names <= {"_output_capturing_hooks_installed"} for names in new), new


def test_the_self_check_runs_once(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.model.tap.check import wire

    runs = []
    monkeypatch.setattr("headscope.model.tapped.wire", lambda *a: runs.append(1) or wire(*a))
    tracker = hs.HeadTracker(TEXTS, tokenizer=tokenizer, budget=None)
    train(make_model(tokenizer), log=tracker.log)
    assert len(runs) == 1


def test_steps_are_the_results_of_analyze_and_detect(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = make_model(tokenizer)
    metrics = ["null_share", "induction", "offset_share"]
    tracker = hs.HeadTracker(TEXTS, metrics, tokenizer=tokenizer, out=tmp_path, budget=None)
    direct = {}
    for step in (0, 10):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape) / 10)
        scalars = tracker.log(model, step)
        model.eval()
        loaded = hs.load(copy.deepcopy(model), tokenizer)
        direct[step] = hs.analyze(loaded, TEXTS, metrics), detect_heads(loaded, length=30)
        for layer, head in np.ndindex(2, 2):
            value = float(direct[step][0]["induction"][layer, head])
            assert scalars[f"headscope/L{layer}.H{head}/induction"] == value
            value = float(direct[step][0]["offset_share"].sel(offset=-1)[layer, head])
            assert scalars[f"headscope/L{layer}.H{head}/previous_token"] == value
            value = float(direct[step][1]["induction"][layer, head])
            assert scalars[f"headscope/L{layer}.H{head}/detect_induction"] == value
    tracker.close()
    saved = hs.open(tmp_path / "corpus")
    assert isinstance(saved, hs.Result)
    assert saved["null_share"].dims == ("step", "layer", "head")
    assert "2 steps × 2 layers" in repr(saved)
    for step, (result, _) in direct.items():
        part = saved.at_step(step)
        assert np.array_equal(part["null_share"].values, result["null_share"].values)
        assert (
            part.provenance["model"]["weights_sha256"]
            == (result.provenance["model"]["weights_sha256"])
        )
    mine = saved.at_step(10).compare(saved.at_step(0))
    theirs = direct[10][0].compare(direct[0][0])
    assert mine.attrs["comparison"].startswith("paired")
    assert np.array_equal(mine["null_share_p"].values, theirs["null_share_p"].values)
    with pytest.raises(InputError, match=r"There is no step 5 in this result: it has 0, 10"):
        saved.at_step(5)
    with pytest.raises(InputError, match="has no axis step"):
        direct[0][0].at_step(0)


def test_a_stopped_tracker_goes_on_and_refuses_another_training(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, other = make_model(tokenizer), make_model(tokenizer, seed=1)
    first = hs.HeadTracker(TEXTS, tokenizer=tokenizer, out=tmp_path, budget=None)
    scalars = first.log(model, 0)
    again = hs.HeadTracker(TEXTS, tokenizer=tokenizer, out=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("headscope.heads.track.analyze", None)  # nothing is measured again
        assert again.log(model, 0) == scalars
    with pytest.raises(InputError, match="Step 0 was tracked with other weights"):
        again.log(other, 0)
    with pytest.raises(InputError, match="Steps 0 and 1 cannot be joined: the list of metrics"):
        hs.HeadTracker(TEXTS, ["distance"], tokenizer=tokenizer, out=tmp_path, budget=None).log(
            model, 1
        )
    with pytest.raises(InputError, match="Steps 0 and 1 cannot be joined: corpus hash"):
        hs.HeadTracker(TEXTS[1:], tokenizer=tokenizer, out=tmp_path, budget=None).log(model, 1)


class Clock:
    """A clock on which a document takes a second, and a step of training what a test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("pause", "expected"), [(19 * 16, 16), (19 * 70, 64), (1e6, 100)])
def test_the_budget_chooses_documents(
    tokenizer: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
    pause: float,
    expected: int,
) -> None:
    """With 5 %, training of 19 seconds allows one second of tracking."""
    from headscope.heads import track
    from headscope.run.analyze import analyze as real

    clock = Clock()

    def timed(model: Any, corpus: Any, *args: Any, **options: Any) -> Any:
        clock.now += len(list(corpus))
        return real(model, corpus, *args, **options)

    monkeypatch.setattr(track, "analyze", timed)
    monkeypatch.setattr(track, "FIRST_SECONDS", 1e9)
    texts = [f"the cat {i}" for i in range(100)]
    tracker = hs.HeadTracker(texts, ["null_share"], detect=False, tokenizer=tokenizer)
    tracker._clock = clock
    model = make_model(tokenizer)
    tracker.log(model, 0)
    for step in (1, 2):
        clock.now += pause
        tracker.log(model, step)
    result = tracker.results["corpus"]
    assert result.n_documents == expected
    hashes = {str(m["weights_sha256"]) for m in result.provenance["steps"]}
    assert len(hashes) == 1
    # The weights did not change, so each step says the same: all read the same documents.
    assert np.array_equal(result["null_share"][0].values, result["null_share"][2].values)


def test_a_first_step_that_failed_does_not_count(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headscope.heads import track
    from headscope.run.analyze import analyze as real

    clock, calls = Clock(), []

    def timed(model: Any, corpus: Any, *args: Any, **options: Any) -> Any:
        calls.append(corpus)
        if len(calls) == 2:
            raise InputError("the second chunk fails")
        clock.now += len(list(corpus))
        return real(model, corpus, *args, **options)

    monkeypatch.setattr(track, "analyze", timed)
    monkeypatch.setattr(track, "FIRST_SECONDS", 1e9)
    texts = [f"the cat {i}" for i in range(100)]
    tracker = hs.HeadTracker(texts, ["null_share"], detect=False, tokenizer=tokenizer)
    tracker._clock = clock
    model = make_model(tokenizer)
    with pytest.raises(InputError, match="the second chunk fails"):
        tracker.log(model, 0)
    tracker.log(model, 0)
    clock.now += 19 * 40  # allows 40 seconds: 32 documents, not 64
    tracker.log(model, 1)
    assert tracker.results["corpus"].n_documents == 32


def test_a_budget_that_is_too_small_is_said(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = hs.HeadTracker(TEXTS, ["null_share"], detect=False, tokenizer=tokenizer)
    model = make_model(tokenizer)
    tracker.log(model, 0)
    with pytest.warns(
        HeadscopeWarning, match=r"budget=0\.05 allows .* times less often, or pass budget=None"
    ):
        tracker.log(model, 1)
    assert tracker.results["corpus"].n_documents == 24


def onset_by_hand(values: list[float], threshold: float) -> int | None:
    """The definition, step by step."""
    for first in range(len(values)):
        if all(value >= threshold for value in values[first:]):
            return first
    return None


def test_onsets(tokenizer: PreTrainedTokenizerFast) -> None:
    generator = np.random.default_rng(0)
    is_above = generator.random((7, 40)) < 0.6
    expected = [onset_by_hand(list(column), 1) for column in is_above.T]
    found = [int(n) if n < 7 else None for n in _stays(is_above)]
    assert found == expected
    assert None in found
    assert len({*found}) > 2

    model = hs.load(make_model(tokenizer).eval(), tokenizer)
    results = {}
    for step, strength in enumerate((0.0, 0.5, 0.2, 4.0, 8.0)):
        with torch.no_grad():
            positions = model.module.transformer.wpe.weight
            positions.copy_(torch.eye(64)[:, :16] * 4 + torch.roll(torch.eye(64), 16, 1)[:, :16])
            weight = model.module.transformer.h[0].attn.c_attn.weight
            weight[:, 16:32] = strength * torch.roll(weight[:, :16], 1, 0)
        results[100 * step] = hs.analyze(model, TEXTS, ["offset_share"])
    stacked = stack_steps(results)
    curve = stacked["offset_share"].sel(offset=-1)
    threshold = float(np.median(curve.values[-1]))
    table = find_onsets(stacked, "previous_token", threshold)
    assert len(table) == int((curve.values[-1] >= threshold).sum()) > 0
    for row in table.rows:
        values = curve.sel(layer=row.layer, head=row.head).values
        first = onset_by_hand(list(values), threshold)
        assert first is not None
        assert row.step == 100 * first
        # The bounds from the saved 95 % intervals, widened to all steps, on log odds.
        from scipy import stats

        lows, highs = [], []
        for result in results.values():
            at = {"offset": -1, "layer": row.layer, "head": row.head}
            value = float(result["offset_share"].sel(at))
            bounds = result["offset_share_interval"].sel(at).values
            df = float(result["offset_share_n_eff"].sel(at)) - 1
            wide = stats.t.ppf(1 - (1 - CONFIDENCE) / 10, df) / stats.t.ppf(0.975, df)
            odds = np.log(np.array([value, *bounds]) / (1 - np.array([value, *bounds])))
            low, high = 1 / (1 + np.exp(-(odds[0] + wide * (odds[1:] - odds[0]))))
            lows.append(-np.inf if np.isnan(low) else low)
            highs.append(np.inf if np.isnan(high) else high)
        low, high = onset_by_hand(highs, threshold), onset_by_hand(lows, threshold)
        assert row.low == 100 * low  # type: ignore[operator]
        assert row.high == (None if high is None else 100 * high)
        assert row.low <= row.step
        assert row.high is None or row.step <= row.high
    assert "first step" in str(table)
    assert r"\toprule" in table.to_latex()
    assert list(table.to_dataframe()["layer"]) == [row.layer for row in table.rows]
    with pytest.raises(InputError, match="needs two steps or more; this result has 0"):
        results[0].onsets("null_share")


def test_heads_that_may_have_been_first() -> None:
    steps = ((100, 0, 200), (200, 100, 300), (300, 201, None))
    rows = tuple(Onset(0, head, *of, 0.8) for head, of in enumerate(steps))
    assert [row.head for row in Onsets("", "", rows).earliest] == [0, 1]
    assert Onsets("", "", rows[2:] + rows[:1]).earliest == (rows[2], rows[0])  # never shown above
    assert Onsets("", "", ()).earliest == ()


def test_onset_intervals_cover() -> None:
    """Simulated curves: the interval of an onset holds the true step, at least 95 times of 100."""
    from headscope.statistics.intervals import interval
    from headscope.statistics.jackknife import ratio_jackknife

    generator = np.random.default_rng(5)
    truth = 1 / (1 + np.exp(-np.linspace(-3, 3, 12)))
    first = onset_by_hand(list(truth), 0.5)
    assert first is not None
    n_covered, n_runs = 0, 200
    for _ in range(n_runs):
        shared = generator.normal(0, 0.6, (40, 1))  # a document is alike at all steps
        odds = np.log(truth / (1 - truth)) + shared + generator.normal(0, 0.3, (40, 12))
        shares = 1 / (1 + np.exp(-odds))
        shares *= truth / shares.mean(0)  # keep the mean of the population near the truth
        sample = shares[generator.integers(0, 40, 40)].clip(0, 1)
        bounds = interval(ratio_jackknife(sample, np.ones_like(sample), "logit"), 1 - 0.05 / 12)
        low, high = (onset_by_hand(list(side), 0.5) for side in (bounds.high, bounds.low))
        n_covered += low is not None and low <= first and (high is None or first <= high)
    assert n_covered >= 0.95 * n_runs


class Recorder:
    """What a Trainer reports to, without a package."""

    @staticmethod
    def make() -> Any:
        from transformers import TrainerCallback

        class Recording(TrainerCallback):
            def __init__(self) -> None:
                self.logs: list[tuple[int, dict[str, float]]] = []

            def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
                logs = given["logs"]
                self.logs.append((state.global_step, dict(logs)))

        return Recording()


def run_trainer(
    tokenizer: PreTrainedTokenizerFast, folder: Path, callbacks: list[Any], **options: Any
) -> list[float]:
    pytest.importorskip("accelerate", reason="the Trainer needs accelerate")
    from transformers import Trainer, TrainingArguments

    data = [{"input_ids": row, "labels": row} for ids in batches(8) for row in ids.tolist()]
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=2,
        max_steps=6,
        logging_steps=1,
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        seed=5,
        **{"report_to": "none", **options},
    )
    trainer = Trainer(
        make_model(tokenizer),
        arguments,
        train_dataset=data,  # type: ignore[arg-type]
        processing_class=tokenizer,
        callbacks=callbacks,
    )
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("options", [{}, {"bf16": True}], ids=["float32", "bf16"])
def test_a_trainer_is_not_touched_and_gets_scalars(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, options: dict[str, Any]
) -> None:
    expected = run_trainer(tokenizer, tmp_path, [], **options)
    recorder = Recorder.make()
    tracker = hs.HeadTracker(TEXTS, every=2, out=tmp_path / "track", budget=None)
    assert run_trainer(tokenizer, tmp_path, [recorder, tracker], **options) == expected
    assert len(expected) == 6
    assert tracker.error is None
    scalars = {step: logs for step, logs in recorder.logs if "headscope/L1.H1/induction" in logs}
    assert sorted(scalars) == [0, 2, 4, 6]
    saved = hs.open(tmp_path / "track" / "corpus")
    assert isinstance(saved, hs.Result)
    assert saved.steps == [0, 2, 4, 6]
    for step, logs in scalars.items():
        value = float(saved["induction"].sel(step=step, layer=1, head=1))
        assert logs["headscope/L1.H1/induction"] == value


def test_tensorboard_has_the_scalars(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    tracker = hs.HeadTracker(TEXTS, every=4, budget=None)
    run_trainer(tokenizer, tmp_path, [tracker], report_to="tensorboard")
    (file,) = tmp_path.rglob("events.out.tfevents.*")
    events = EventAccumulator(str(file)).Reload()
    tag = "train/headscope/L0.H1/detect_previous_token"  # the Trainer adds train/
    values = {event.step: event.value for event in events.Scalars(tag)}
    curve = tracker.results["detect"]["previous_token"].sel(layer=0, head=1)
    assert list(values) == [0, 4, 6]  # the last step is tracked too
    assert list(values.values()) == pytest.approx(curve.values.tolist(), rel=1e-6)


def test_an_error_does_not_end_a_training(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    folder = tmp_path / "track"
    hs.HeadTracker(TEXTS, tokenizer=tokenizer, out=folder, budget=None).log(
        make_model(tokenizer, seed=9), 2
    )
    tracker = hs.HeadTracker(TEXTS, every=2, out=folder, budget=None)
    with pytest.warns(HeadscopeWarning, match="Tracking ended at step 2, training goes on: Step 2"):
        losses = run_trainer(tokenizer, tmp_path, [tracker])
    assert len(losses) == 6
    assert isinstance(tracker.error, InputError)


def test_checkpoints(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    folders = []
    for step in (200, 30):
        folder = tmp_path / f"checkpoint-{step}"
        make_model(tokenizer, seed=step).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        folders.append(folder)
    seen: list[int] = []
    options: dict[str, Any] = {"metrics": ["null_share"], "detect": False}
    found = track_checkpoints(
        folders, TEXTS, out=tmp_path / "t", on_step=lambda n, _: seen.append(n), **options
    )
    assert seen == found["corpus"].steps == [30, 200]
    direct = hs.analyze(hs.load(folders[1]), TEXTS, ["null_share"], max_tokens=128)
    at_30 = found["corpus"].at_step(30)
    assert np.array_equal(at_30["null_share"].values, direct["null_share"].values)
    by_step = track_checkpoints({1: folders[0], 2: folders[1]}, TEXTS, **options)
    assert by_step["corpus"].steps == [1, 2]
    with pytest.raises(InputError, match="does not name its step"):
        track_checkpoints([tmp_path], TEXTS) if not any(c.isdigit() for c in tmp_path.name) else (
            track_checkpoints(["model"], TEXTS)
        )
    with pytest.raises(InputError, match="are both step 30"):
        track_checkpoints(["a/checkpoint-30", "b/checkpoint-30"], TEXTS)
    with pytest.raises(InputError, match="Revisions are of one model; 2 were given"):
        track_checkpoints(["a", "b"], TEXTS, revisions=["step1"])


def test_a_text_is_traced_at_each_step(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = make_model(tokenizer)
    options: dict[str, Any] = {"tokenizer": tokenizer, "out": tmp_path, "budget": None}
    tracker = hs.HeadTracker(None, text="the cat sat", **options)
    losses = train(model, log=tracker.log)
    assert losses == train(make_model(tokenizer))
    assert sorted(tracker.traces) == [0, 2, 4]
    first, last = tracker.traces[0], tracker.traces[4]
    np.testing.assert_array_equal(
        first.attention, hs.load(make_model(tokenizer), tokenizer).trace("the cat sat").attention
    )
    assert not np.array_equal(first.attention, last.attention)
    again = hs.HeadTracker(None, text="the cat sat", **options)
    np.testing.assert_array_equal(again.traces[4].attention, last.attention)
    assert hs.HeadTracker(None, text="another", **options).traces == {}


def test_arguments(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(InputError, match="can only detect"):
        hs.HeadTracker(None, detect=False)
    with pytest.raises(InputError, match="between 0 and 1"):
        hs.HeadTracker(TEXTS, budget=1.5)
    with pytest.raises(InputError, match="has no documents to track"):
        hs.HeadTracker([])
    tracker = hs.HeadTracker(None, tokenizer=tokenizer)
    scalars = tracker.log(make_model(tokenizer), 0)
    assert "headscope/L0.H0/induction" in scalars
    with pytest.raises(InputError, match="Linear is not a transformers model"):
        tracker.log(torch.nn.Linear(1, 1), 1)
    sharded = make_model(tokenizer)
    sharded.transformer.ln_f.weight.data = torch.empty(0)
    with pytest.raises(InputError, match="sharded"):
        tracker.log(sharded, 1)
