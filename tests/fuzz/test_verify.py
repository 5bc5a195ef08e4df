"""Mutated folders and caches: `headscope verify` finds the damage, and caches are made again."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest

from headscope.app.cli.main import main
from headscope.model.packaged.pinned import MANIFEST, is_intact
from headscope.model.tap.check import Check
from headscope.model.tap.check_cache import load_check, store_check
from headscope.model.tap.sites import Site, Wiring
from headscope.probes.features import METADATA, VALUES, is_intact_store
from headscope.run.checkpoint import read_plan
from tests.fuzz.aimed import STATES, aimed, with_state
from tests.fuzz.test_runs import Files, runs, write_files
from tests.fuzz.watch import watch

__all__ = ["runs"]

CHECKED = (
    Wiring(
        "interface",
        (Site("self", 0, "encoder.layer.0", 0, 0, 2, 2, 8, 8, 0.35, True, True),),
        frozenset({"self"}),  # type: ignore[arg-type]
    ),
    Check("weights", 1, 0.0, 0.0),
)


def make_store() -> Files:
    """Return a small store of attention for probes."""
    file = io.BytesIO()
    np.save(file, np.arange(50, dtype=np.float16))
    hashes = {VALUES: hashlib.sha256(file.getvalue()).hexdigest()}
    metadata = {"model": "bert", "treebank": {"sentences": 3}, "files": hashes}
    return {METADATA: json.dumps(metadata, indent=1).encode(), VALUES: file.getvalue()}


def make_converted() -> Files:
    """Return the folder of a converted model, with a few bytes as weights."""
    files = {"config.json": b'{"model_type": "bert"}', "model.safetensors": bytes(range(200))}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return {**files, MANIFEST: json.dumps(hashes, indent=1).encode()}


def mutate(files: Files, chance: random.Random) -> tuple[str, str]:
    """Mutate, remove or add a file; return its name and the state of its seal."""
    name, state = chance.choice(sorted(files)), chance.choice(STATES)
    if chance.random() < 0.1:
        del files[name]
        return name, "removed"
    if chance.random() < 0.05:
        files[f"{name}.json"] = files[name]
        return f"{name}.json", "added"
    files[name] = with_state(aimed(files[name], chance), files[name], state, chance)
    return name, state


def hashed_part(content: bytes, name: str) -> object:
    """Return the part of a JSON file that counts: a plan, or the hashes of other files."""
    whole = json.loads(content)
    return whole["plan"] if name == "plan.json" else whole["files"] if name == METADATA else whole


def verify(files: Files, original: Files, name: str, state: str) -> str:
    """Verify a folder in the watched process."""
    shown = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), files)
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            try:
                main(["verify", folder, "--quiet"])
                code: object = 0
            except SystemExit as stop:
                code = stop.code or 0
        assert code in (0, 1, 2), shown.getvalue()
        assert "Traceback" not in shown.getvalue()
        if code == 0 and state in STATES:
            short = Path(name).name
            if short in ("plan.json", METADATA, MANIFEST):
                assert hashed_part(files[name], short) == hashed_part(original[name], short)
            else:
                assert state == "by a stranger"
        if code == 0 and Path(name).name == "plan.json" and state in STATES:
            assert read_plan(Path(folder) / name)
    return "sound" if code == 0 else "damaged"


def test_folders(
    runs: tuple[Files, Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("HEADSCOPE_CACHE", str(tmp_path))
        store_check("key", *CHECKED)
    folders = {
        "stopped": runs[0],
        "done": runs[1],
        "checks": {"key.json": (tmp_path / "checks" / "key.json").read_bytes()},
        "probes/attention-0": make_store(),
        "models/x": make_converted(),
    }
    original = {
        f"{folder}/{name}": x for folder, part in folders.items() for name, x in part.items()
    }
    assert watch("verified folders", verify, original, original, "", "") == "sound"
    for seed in watch.seeds("verified folders"):
        files = dict(original)
        name, state = mutate(files, random.Random(seed))
        case = f"{name} {state}, seed {seed}"
        watch("verified folders", verify, files, original, name, state, case=case)


def read_self_check(state: str, seed: int) -> str:
    """Load a mutated self-check in the watched process: the model must be checked again."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADSCOPE_CACHE", folder)
        store_check("key", *CHECKED)
        found = load_check("key")
        assert found is not None
        assert found[0] == CHECKED[0]
        (file,) = Path(folder, "checks").iterdir()
        content = file.read_bytes()
        file.write_bytes(with_state(aimed(content, chance), content, state, chance))
        assert load_check("key") is None
    return "made again"


def test_self_checks() -> None:
    for seed in watch.seeds("self-checks"):
        state = STATES[seed % 3]
        watch("self-checks", read_self_check, state, seed, case=f"{state}, seed {seed}")


def use_store(files: Files, original: Files) -> str:
    """Read a mutated store in the watched process if it counts as intact."""
    with tempfile.TemporaryDirectory() as folder:
        if not is_intact_store(write_files(Path(folder), files)):
            return "made again"
    assert files[VALUES] == original[VALUES]
    return "same bytes"


def use_converted(files: Files, original: Files) -> str:
    """Read a mutated folder in the watched process if it counts as intact."""
    with tempfile.TemporaryDirectory() as folder:
        if not is_intact(write_files(Path(folder), files)):
            return "made again"
    assert {**files, MANIFEST: b""} == {**original, MANIFEST: b""}
    return "same bytes"


@pytest.mark.parametrize("content", [b"5", b"[[]]", b"{}", b'{"files": {}}', b"[" * 99999])
def test_hashes_that_are_missing(content: bytes) -> None:
    store, model = make_store(), make_converted()
    assert use_store({**store, METADATA: content}, store) == "made again"
    assert use_converted({**model, MANIFEST: content}, model) == "made again"


def test_stores() -> None:
    for seed in watch.seeds("stores"):
        files = make_store()
        name, state = mutate(files, random.Random(seed))
        case = f"{name} {state}, seed {seed}"
        watch("stores", use_store, files, make_store(), case=case)


def test_converted_models() -> None:
    for seed in watch.seeds("converted models"):
        files = make_converted()
        name, state = mutate(files, random.Random(seed))
        case = f"{name} {state}, seed {seed}"
        watch("converted models", use_converted, files, make_converted(), case=case)
