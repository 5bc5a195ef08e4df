"""The step before the site's build writes plain Markdown, with nothing left to fill in."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    found = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_formulas_become_mathml_and_code_stays(generate: ModuleType) -> None:
    text = (
        "A share $a_{ij}$ of `$HOME`, of $3 and of $4.\n\n```sh\necho $x$\n```\n\n$$\\sum_i a_i$$\n"
    )
    shown = generate.completed(text)
    assert shown.count("<math") == 2
    assert '<div class="formula"><math' in shown
    assert "`$HOME`, of $3 and of $4." in shown
    assert "echo $x$" in shown


def test_every_page_is_completed(generate: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each mark is on a page; no page keeps a mark or a formula."""
    monkeypatch.setattr(generate, "GENERATED", dict.fromkeys(generate.GENERATED, lambda: "(made)"))
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    for mark in generate.GENERATED:
        assert any(mark in page for page in pages)
    for page in map(generate.completed, pages):
        assert not any(mark in page for mark in generate.GENERATED)
        assert not generate.INLINE.search(generate.CODE.sub("", page))


def test_a_notebook_is_a_page(generate: ModuleType) -> None:
    page = generate.notebook_page(ROOT / "notebooks" / "quickstart.ipynb")
    assert page.startswith("# Quick start\n")
    assert "[quickstart.ipynb](quickstart.ipynb)" in page
    assert "```python\nimport headscope as hs" in page
    assert "](../guide/views.md)" in page
    assert "../docs/" not in page


def test_frames_of_the_site_show_what_the_gallery_makes(generate: ModuleType) -> None:
    made = " ".join(generate.BLOCK.findall((ROOT / "docs" / "gallery.md").read_text("utf-8")))
    for name in ("index", "gallery"):
        shown = re.findall(r'src="live/([^"]+)"', (ROOT / "docs" / f"{name}.md").read_text("utf-8"))
        assert shown
        assert all(f'"{file}"' in made or file == f"{generate.HOME}/index.html" for file in shown)
