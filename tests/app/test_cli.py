"""The command line: answers on stdout, one line and exit code 2 for a mistake."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from examples import demo

from headscope.app.cli import main as cli
from headscope.app.cli.main import main
from headscope.errors import ModelError
from headscope.model import load
from headscope.model.model import Model
from headscope.model.packaged.pinned import PackagedModel
from headscope.text.document import Unit


def run(*arguments: str) -> int:
    try:
        main(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def test_models_lists_the_packaged_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("models") == 0
    out = capsys.readouterr().out
    assert "minilm" in out
    assert "smollm2" in out


def test_models_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("models", "--json") == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == [
        "minilm",
        "smollm2",
        "whisper",
    ]


def test_a_model_is_described(minilm: Model, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("models", "minilm") == 0
    out = capsys.readouterr().out
    assert "6 layers × 12 heads" in out
    assert "exactly the reference attention and output" in out
    assert run("models", "minilm", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["n_layers"], answer["route"], answer["is_exact"]) == (6, "interface", True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["models", "./nowhere"], "There is no folder './nowhere'"),
        (["models", "--nonsense"], "No such option: --nonsense (see headscope models --help)"),
        (["nonsense"], "No such command 'nonsense'. (see headscope --help)"),
        (["analyze"], "Missing argument 'corpus'. (see headscope analyze --help)"),
        (["probe", "bias", "a"], "(see headscope probe bias --help)"),
        (["card", "run", "--layer", "x", "--head", "1"], "Invalid value for '--layer'"),
        (["report", "run", "-o"], "Option '-o' requires an argument. (see headscope --help)"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("headscope: ")
    assert message in line
    assert captured.out == ""


def test_quiet_holds_for_what_loading_says(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def convert(
        source: Path, target: Path, convert_one: object, report: Callable[[str], None]
    ) -> Path:
        report("Converting …")
        raise ModelError("not really")

    monkeypatch.setattr(load, "converted", convert)
    monkeypatch.setattr(
        PackagedModel, "verified_files", lambda self: {name: Path(name) for name in self.files}
    )
    assert run("models", "smollm2") == 2
    assert caplog.messages == ["Converting …"]
    assert run("models", "smollm2", "--quiet") == 2
    assert caplog.messages == ["Converting …"]


@pytest.mark.parametrize("arguments", [[], ["probe"]])
def test_without_a_verb_there_is_the_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) in (0, 2)
    captured = capsys.readouterr()
    assert "Usage: headscope" in captured.out + captured.err


def test_debug_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.settings, "debug", False)  # type: ignore[attr-defined]
    with pytest.raises(Exception, match=r"has no config\.json"):
        main(["--debug", "models", str(tmp_path)])


def test_an_unexpected_failure_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(cli.settings, "debug", False)  # type: ignore[attr-defined]
    monkeypatch.setattr("headscope.app.cli.models.list_models", fail)
    assert run("models") == 1
    assert "unexpected ZeroDivisionError: by zero" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("headscope 0.")


@pytest.mark.long
@pytest.mark.packaged
def test_demo_ends_on_one_page(
    minilm: Model,
    smollm2: Model,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import headscope as hs

    whole = hs.demo_corpus

    def part(unit: Unit) -> hs.Corpus:
        """One of the eleven texts: the whole takes a minute."""
        return whole("document").sample(1).by(unit)

    monkeypatch.setattr(hs, "demo_corpus", part)
    monkeypatch.setattr(demo, "MIN_RELATION_WORDS", 1)
    monkeypatch.setattr(demo, "N_SEGMENTS", 2)
    folder = tmp_path / "deep" / "demo"
    said = demo.demo(folder, workers=1, quiet=True).splitlines()
    assert len(said) == 3
    assert said[0].startswith(f"Open {folder / 'index.html'} in a browser")
    for page in ("report.html", "minilm.html", "smollm2.html", "live/index.html"):
        assert (folder / page).stat().st_size > 100_000
    index = (folder / "index.html").read_text(encoding="utf-8")
    linked = re.findall(r'(?:href|src)="([^"]+)"', index)
    pages = {"report.html", "minilm.html", "smollm2.html", "live/index.html"}
    assert set(linked) == pages | {demo.EXERCISE}
    models = {hs.open(file).model for file in folder.glob("*/*/result.nc")}
    assert len(models) == 2
    before = (folder / "smollm2" / "metrics" / "result.nc").stat().st_mtime_ns
    assert demo.demo(folder, workers=1, quiet=True).splitlines() == said
    assert capsys.readouterr().err == ""
    assert (folder / "smollm2" / "metrics" / "result.nc").stat().st_mtime_ns == before


def test_view_writes_a_page(
    minilm: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert run("view", "The cat sat.", "--pair", "The <b>cat</b> lay.", "-o", str(page)) == 0
    assert capsys.readouterr().out == f"{page}\n"
    content = page.read_text(encoding="utf-8")
    assert content.startswith("<!doctype html>")
    assert "<b>cat" not in content
    assert '"effects":null' in content
    assert run("view", "The cat sat.", "--effects", "-o", str(page)) == 0
    assert '"effects":{"kind":"cosine_distance","pooling":"mean"' in page.read_text(
        encoding="utf-8"
    )
    assert run("view", "The cat sat.", "--over", "norm", "-o", str(page)) == 0
    assert '"over":"norm"' in page.read_text(encoding="utf-8")
    assert run("view", "--image", str(tmp_path / "cat.png"), "-o", str(page)) == 2
    assert "no processor for images and recordings" in capsys.readouterr().err
    assert run("view", "The cat.", "--evidence", str(tmp_path), "-o", str(page)) == 2
    assert "has no result.nc" in capsys.readouterr().err
    assert run("view", " ", "-o", str(tmp_path / "none.html")) == 2
    assert "text is empty" in capsys.readouterr().err
    assert not (tmp_path / "none.html").exists()


def test_view_takes_a_file_by_its_option(
    minilm: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = tmp_path / "cat.txt", tmp_path / "page.html"
    file.write_text("The cat sat.\n", encoding="utf-8")
    assert run("view", str(file), "-o", str(page)) == 2
    assert "--file" in capsys.readouterr().err
    assert not page.exists()
    assert run("view", "--file", str(file), "-o", str(page), "--json") == 0
    assert json.loads(capsys.readouterr().out)["tokens"] == 6
    assert run("view", "The cat.", "--file", str(file), "-o", str(page)) == 2
    assert run("view", "--file", str(tmp_path / "none.txt"), "-o", str(page)) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_findings_are_tested_again(
    minilm: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["cat", "dog", "house", "tree", "river", "stone", "bird", "road", "child", "ship"]
    for name, other in (("a", "near"), ("b", "under")):
        lines = [f"The {x} was {other} the {y}." for x, y in zip(words, words[3:], strict=False)]
        (tmp_path / f"{name}.txt").write_text("\n\n".join(lines), encoding="utf-8")
        corpus = str(tmp_path / f"{name}.txt")
        out = str(tmp_path / name)
        arguments = ["--metrics", "null_share,distance", "--documents", "each"]
        assert run("analyze", corpus, "-o", out, *arguments) == 0
    capsys.readouterr()
    first, second, page = (str(tmp_path / name) for name in ("a", "b", "report.html"))
    assert run("report", first, "--replicate", second, "-o", page) == 0
    assert Path(page).stat().st_size > 10_000
    capsys.readouterr()
    assert run("report", first, "--replicate", first, "-o", page) == 2
    assert "same documents" in capsys.readouterr().err
    arguments = ["-o", str(tmp_path / "both"), "--metrics", "null_share,distance", "--json"]
    both = ["--replicate", f"{second}.txt", "--documents", "each"]
    assert run("analyze", f"{first}.txt", *arguments, *both) == 0
    said = json.loads(capsys.readouterr().out)["replication"]
    assert Path(said["table"]).read_text(encoding="utf-8").count("\n") > 1
    assert (tmp_path / "both" / "replicate" / "result.nc").is_file()
    arguments = ["-o", str(tmp_path / "s"), "--documents", "each", "--json"]
    assert run("sensitivity", f"{first}.txt", *arguments) == 0
    said = json.loads(capsys.readouterr().out)
    assert "under every choice" in said["summary"]
    rows = Path(said["table"]).read_text(encoding="utf-8").splitlines()
    assert "128 tokens_verdict" in rows[0]
    assert (tmp_path / "s" / "128-tokens" / "result.nc").is_file()


def test_folders_of_runs_are_looked_into(tmp_path: Path) -> None:
    from headscope.app.cli.shared_options import find_runs

    for name in ("b/one", "a", "c/two/three"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "result.nc").touch()
    assert find_runs([tmp_path]) == [tmp_path / "a", tmp_path / "b" / "one"]
    assert find_runs([tmp_path / "a"]) == [tmp_path / "a"]
    assert find_runs([tmp_path / "none"]) == [tmp_path / "none"]


def test_segments_are_cut_from_whole_documents(
    minilm: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["analyze", "demo", "-o", str(tmp_path), "--sample", "1", "--segments"]
    arguments += ["--max-tokens", "48", "--workers", "1", "--metrics", "distance", "--no-figures"]
    assert run(*arguments, "--quiet", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["documents"] > 1
    assert 24 < answer["tokens"] / answer["documents"] <= 48


def test_analyze_measures_the_demo_corpus(
    minilm: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import headscope as hs

    arguments = ["analyze", "demo", "-o", str(tmp_path / "run"), "--sample", "12", "--workers", "1"]
    arguments += ["--metrics", "distance, null_share", "--no-figures", "--quiet", "--json"]
    assert run(*arguments) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["documents"] == 12
    assert set(answer["means"]) == {"distance", "null_share"}
    result = hs.open(tmp_path / "run")
    assert isinstance(result, hs.Result)
    assert float(result["null_share"].mean()) == pytest.approx(answer["means"]["null_share"])
    assert run(*arguments[:-1]) == 0  # complete: opened, not run again
    assert "all-MiniLM-L6-v2: 12 documents" in capsys.readouterr().out
    arguments[3] = str(tmp_path / "norm")
    assert run(*arguments[:-1], "--over", "norm") == 0
    assert "Mean distance, by norm" in capsys.readouterr().out
    assert hs.open(tmp_path / "norm").provenance["settings"]["over"] == "norm"
    assert run("analyze", "nowhere.txt", "-o", str(tmp_path / "other"), "--quiet") == 2
    assert "nowhere.txt" in capsys.readouterr().err


def test_importance_of_the_demo_corpus(
    smollm2: Model, minilm: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "importance"
    arguments = ["importance", "demo", "--sample", "1", "--max-tokens", "24", "--workers", "1"]
    assert run(*arguments, "-o", str(folder), "--quiet", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert all(value > 0 for value in answer["means"].values())
    assert (folder / "clark-3.png").stat().st_size > 10_000
    assert run(*arguments, "-o", str(tmp_path / "other"), "--model", "minilm", "--quiet") == 2
    assert "no language-model head" in capsys.readouterr().err


def verbs(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from verbs(command, (*path, name))
        else:
            yield (*path, name), command


VERBS = dict(verbs(typer.main.get_command(cli.app)))
MEANT = {
    "model": {"--model"},
    "device": {"--device"},
    "out": {"-o", "--out"},
    "workers": {"--workers"},
    "engine": {"--engine"},
    "resume": {"--resume"},
    "sample": {"--sample"},
    "seed": {"--seed"},
    "as_json": {"--json"},
    "quiet": {"-q", "--quiet"},
    "debug": {"--debug"},
}


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_verbs_are_alike(verb: tuple[str, ...]) -> None:
    """The same words for the same things, three options everywhere, an example of each."""
    command = VERBS[verb]
    options = {option.name: set(option.opts) for option in command.params}
    assert {"as_json", "quiet", "debug"} <= set(options)
    for name, opts in options.items():
        assert opts == MEANT.get(name, opts), f"{name} is {opts}"
    assert ("engine" in options) == ("resume" in options)
    assert command.help
    assert all(option.help for option in command.params)
    assert command.epilog.startswith(f"Example: headscope {' '.join(verb)}")


def test_debug_and_quiet_after_the_verb_too(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"has no config\.json"):
        main(["models", str(tmp_path), "--debug", "--quiet"])
    cli.settings.debug = False  # type: ignore[attr-defined]
