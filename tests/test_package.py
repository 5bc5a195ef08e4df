"""The package as a whole: quiet, light imports; names that exist; errors that travel."""

from __future__ import annotations

import ast
import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import headscope as hs
from headscope import errors
from headscope.lazy import read_stub

HEAVY = {"torch", "transformers", "xarray", "numpy", "ray", "spacy", "anywidget", "matplotlib"}
HEAVY |= {"numba", "sklearn", "scipy.stats", "scipy.signal", "transformers.pipelines.base"}


def loaded_by(code: str) -> tuple[set[str], str]:
    """Which heavy libraries a fresh interpreter has loaded after running `code`, and what it
    printed on the way."""
    script = f"{code}\nimport sys\nprint('\\n' + ' '.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    printed, _, modules = done.stderr.rpartition("\n\n")
    return {name for name in modules.split() if name in HEAVY}, done.stdout + printed


def test_import_is_light_and_silent() -> None:
    assert loaded_by("import headscope") == (set(), "")


def test_the_command_lines_help_is_light() -> None:
    code = """
import sys
from headscope.app.cli.main import main
try:
    main(["--help"])
except SystemExit as stop:
    assert stop.code in (0, None), stop.code
"""
    heavy, printed = loaded_by(code)
    assert heavy == set()
    assert "attention head" in printed


def test_opening_and_reporting_load_neither_torch_nor_statistics(
    encoder_results: list[hs.Result], tmp_path: Path
) -> None:
    """Metrics measure with torch; what they measured is finished, tested and shown without."""
    run, page = tmp_path / "run.nc", tmp_path / "report.html"
    encoder_results[0].save(run)
    assert loaded_by(f"import headscope; headscope.open({str(run)!r})")[0] == {"numpy", "xarray"}
    arguments = ["report", str(run), "-o", str(page)]
    code = f"from headscope.app.cli.main import main; main({arguments!r})"
    assert loaded_by(code)[0] == {"numpy", "xarray"}
    assert page.stat().st_size > 10_000


@pytest.mark.packaged
def test_a_view_loads_what_the_model_needs_and_no_more(minilm: hs.Model, tmp_path: Path) -> None:
    arguments = ["view", "The cat sat.", "-o", str(tmp_path / "page.html")]
    code = f"from headscope.app.cli.main import main; main({arguments!r})"
    assert loaded_by(code)[0] == {"torch", "transformers", "numpy", "xarray"}


@pytest.mark.parametrize("library", ["numpy", "xarray", "scipy.stats"])
def test_the_test_above_can_fail(library: str) -> None:
    assert library in loaded_by(f"import headscope, {library}")[0]


def test_using_a_name_loads_what_it_needs() -> None:
    assert "torch" in loaded_by("import headscope; headscope.load")[0]
    data = "headscope.Trace, headscope.Result, headscope.Probe, headscope.open"
    assert loaded_by(f"import headscope; {data}")[0] == {"numpy", "xarray"}


def test_all_is_what_can_be_imported() -> None:
    assert dir(hs) == sorted(hs.__all__)
    for name in hs.__all__:
        assert getattr(hs, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        hs.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_the_stub_is_the_one_table() -> None:
    """As Python parses it: one import a line, and nothing but what is declared."""
    text = Path(hs.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    parsed = {
        alias.asname: (node.module, alias.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert read_stub(text) == parsed
    assert sorted([*parsed, "__version__"]) == hs.__all__
    for public, (module, name) in parsed.items():
        assert public == name  # else type checkers do not take it as public
        expected = getattr(importlib.import_module(str(module)), name)
        assert getattr(hs, public) is expected


def test_every_error_survives_pickling() -> None:
    for name in errors.__all__:
        error = getattr(errors, name)("what happened")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert str(again) == "what happened"


def test_every_error_is_drawn_in_the_tree() -> None:
    assert errors.__doc__ is not None
    for name in errors.__all__:
        assert name in errors.__doc__


def test_unknown_names_are_met_with_the_nearest() -> None:
    error = errors.UnknownName.of("model", "minilmm", ["smollm2", "minilm"])
    assert str(error) == ("Unknown model 'minilmm'. Did you mean 'minilm'? Known: minilm, smollm2.")


def test_missing_extras_name_the_command() -> None:
    error = errors.MissingExtra.of("spaCy", "spacy", "Annotating raw text")
    assert str(error) == (
        "Annotating raw text needs spaCy, which is not installed. "
        'Run: pip install "headscope[spacy]" (in a clone: pip install -e ".[spacy]")'
    )


def test_the_command_line_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "headscope", "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout == f"headscope {hs.__version__}\n"
