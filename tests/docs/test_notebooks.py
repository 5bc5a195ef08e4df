"""The notebooks run from top to bottom in a kernel of their own, and their widgets show."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from headscope.model.model import Model

FOLDER = Path(__file__).parents[2] / "notebooks"
WIDGET = "application/vnd.jupyter.widget-view+json"
WITH_WIDGETS = {"quickstart", "editing", "own_model"}


def test_there_are_notebooks() -> None:
    assert {path.stem for path in FOLDER.glob("*.ipynb")} >= WITH_WIDGETS


@pytest.mark.long
@pytest.mark.packaged
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_notebook_runs(
    path: Path, minilm: Model, smollm2: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    noise = [o["text"] for o in outputs if o.get("name") == "stderr"]
    assert not noise
    shows_widget = any(WIDGET in output.get("data", {}) for output in outputs)
    assert shows_widget == (path.stem in WITH_WIDGETS)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
