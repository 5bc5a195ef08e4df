"""What the documents say is true: their Python runs, their links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headscope.model.model import Model
from headscope.model.packaged import find_packaged

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
RUN = [ROOT / "docs" / "heads.md"]
"""Pages whose Python runs in seconds on the packaged models."""
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def test_the_readme_runs_as_pasted(
    minilm: Model, smollm2: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert (tmp_path / "page.html").stat().st_size > 100_000


@pytest.mark.packaged
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_pages_run_as_pasted(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other in an empty folder; the packaged models and the bundled corpus are
    all that there is.
    """
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (headscope[heads])")
    if not find_packaged("minilm").is_installed():
        pytest.skip("the packaged model minilm is not installed")
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page.name, "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = [
        target
        for target in LINK.findall(text)
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_names_a_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"/(root|work|tmp|opt|home)/", text)
