"""What README and docs say about speed and size is what `make bench` wrote, and nothing else."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
FREE = {"benchmarks", "statistics", "study", "families", "licenses", "security"}
"""Written by commands of their own, or about limits rather than measurements."""
TIMING = re.compile(
    r"\d ?(CPU[- ]s\b|CPU seconds|seconds\b|minutes of CPU)|times (faster|as long|less)|"
    r"\badds? (about )?\d+ ?%"
)


def load() -> ModuleType:
    found = importlib.util.spec_from_file_location("claims", ROOT / "docs" / "claims.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


CLAIMS = load()


@pytest.mark.parametrize("page", CLAIMS.PAGES, ids=lambda page: page.stem)
def test_measurements_are_those_of_the_table(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert CLAIMS.MARK.search(text)
    assert CLAIMS.written(text, CLAIMS.read_table()) == text, "run: python docs/claims.py"


def test_another_table_would_change_the_pages() -> None:
    start = f"| corpus | {CLAIMS.VB.format('minilm')} |"
    lines = CLAIMS.TABLE.read_text(encoding="utf-8").splitlines()
    (at,) = (n for n, line in enumerate(lines) if line.startswith(start))
    lines[at] = f"{start} 2 s | a bare sdpa forward, 1 s | 1.99 | |"
    table = "\n".join(lines)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "99 %" in CLAIMS.written(readme, CLAIMS.Measured(CLAIMS.rows(table)))


PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md")]


@pytest.mark.parametrize(
    "page", sorted(p for p in PAGES if p.stem not in FREE), ids=lambda p: p.stem
)
def test_no_page_states_a_time_of_its_own(page: Path) -> None:
    text = CLAIMS.MARK.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    stated = [found[0] for found in TIMING.finditer(text)]
    assert not stated
