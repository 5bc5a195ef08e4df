"""The lock files: everything pyproject.toml asks for, with hashes, from nowhere in particular."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headscope.model.packaged.pinned import PACKAGED

ROOT = Path(__file__).parents[1]
LAYERS = ("torch", "demo", "dev", "torch-index")


def locked(*layers: str) -> dict[str, str]:
    """Name → version of what the lock files hold."""
    text = "".join((ROOT / "requirements" / f"{layer}.txt").read_text() for layer in layers)
    return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", text, re.MULTILINE))


def wanted(*extras: str) -> list[Requirement]:
    """What headscope needs, with the extras; one extra may name others."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"]]
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    requirements = [Requirement(line) for line in lines]
    own = {extra for r in requirements if r.name == "headscope" for extra in r.extras}
    return [r for r in requirements if r.name != "headscope"] + (wanted(*own) if own else [])


@pytest.mark.parametrize(
    ("extra", "layers"), [("demo", ["torch", "demo"]), ("dev", ["torch", "demo", "dev"])]
)
def test_the_lock_has_what_the_project_needs(extra: str, layers: list[str]) -> None:
    versions = locked(*layers)
    for requirement in wanted(extra):
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not locked: run `make lock`"
        assert requirement.specifier.contains(version), f"{requirement}, locked at {version}"


def test_packaged_models_are_locked_at_their_pins() -> None:
    versions = locked("demo", "dev")
    assert {versions.get(model.distribution) == model.version for model in PACKAGED.values()} == {
        True
    }


@pytest.mark.parametrize("layer", LAYERS)
def test_every_package_has_hashes_and_no_address(layer: str) -> None:
    text = (ROOT / "requirements" / f"{layer}.txt").read_text()
    entries = re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]
    assert entries
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\n", entry), entry
    assert "://" not in text
    assert not re.search(r"^\s*-(?!-hash)", text, re.MULTILINE), "an option of pip"


def test_only_one_file_holds_what_graphics_cards_need() -> None:
    assert not [name for name in locked("torch", "demo", "dev") if name.startswith("nvidia")]
    assert locked("torch")["torch"] == locked("torch-index")["torch"]
    assert len(locked("torch")) == 1
