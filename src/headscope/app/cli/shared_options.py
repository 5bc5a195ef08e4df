"""Options that several commands share, and the opening of corpora and runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Unpack, cast

import headscope as hs
from headscope.app.cli.command import argument, option, settings
from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.model.model import Model
    from headscope.results.result import Result
    from headscope.run.options import RunOptions
    from headscope.text.corpus import Corpus

UnitName = Literal["sentence", "paragraph", "document"]

CorpusOption = Annotated[
    str, argument("A file or folder (text, JSON lines, CoNLL-U, …), or 'demo'.")
]
RunsOption = Annotated[
    list[Path],
    argument("Run folders, folders that hold run folders, or result files.", show_default=False),
]
EvidenceOption = Annotated[
    list[Path] | None, option("Folder of a corpus run of the model; may be given again.")
]
OutOption = Annotated[Path, option("Where to write.", "-o", "--out")]
ModelOption = Annotated[str, option("Packaged model, folder or hub id.")]
DeviceOption = Annotated[str | None, option("Where to run the model: cpu, cuda, cuda:1, mps.")]
UnitOption = Annotated[UnitName, option("Unit of one document.")]
SampleOption = Annotated[int | None, option("Draw this many random documents.", min=1)]
SeedOption = Annotated[int, option("Seed of everything random.")]
SegmentsOption = Annotated[
    bool, option("Cut whole documents into segments, as BERT's pre-training does (Clark et al.).")
]
OverOption = Annotated[
    Literal["attention", "norm"],
    option("Attention, or attention weighted by the norm of the projected value."),
]
MaxTokensOption = Annotated[int, option("Cut longer documents.", min=2)]
OnErrorOption = Annotated[Literal["raise", "skip"], option("Stop at unreadable input, or skip it.")]


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of every command that runs a model over a corpus."""

    workers: Annotated[
        int | None, option("Worker processes; by default chosen by job size.", min=1)
    ] = None
    engine: Annotated[
        Literal["local", "ray"], option("Run on this machine, or on a Ray cluster.")
    ] = "local"
    address: Annotated[
        str | None,
        option("Ray cluster: auto, HOST:PORT or ray://HOST:PORT. By default Ray starts here."),
    ] = None
    resume: Annotated[bool, option("Continue the run in the folder, or start over.")] = True
    max_word_tokens: Annotated[int, option("Leave out longer words, such as URLs.", min=1)] = 40
    on_error: OnErrorOption = "raise"

    def options(self, **more: Unpack[RunOptions]) -> RunOptions:
        """Return the keyword arguments for the library call."""
        names = ("workers", "engine", "address", "resume", "max_word_tokens")
        values = {name: getattr(self, name) for name in names}
        return cast("RunOptions", {**values, "progress": settings.progress, **more})


def _numbers(names: str) -> list[int]:
    parts = [part.strip() for part in names.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(f"--layers {names!r}: expected layer numbers with commas between: 0,5,11.")
    return [int(part) for part in parts]


@dataclass(frozen=True, slots=True)
class CorpusRunOptions(EngineOptions):
    """Options of commands that measure heads over a corpus, also by group of documents."""

    model: ModelOption = "minilm"
    device: DeviceOption = None
    sample: SampleOption = None
    seed: SeedOption = 0
    documents: Annotated[
        str | None,
        option(
            "Which units form a document: a number (blocks of that many), a name (equal "
            "metadata or CoNLL-U comment), or each. [default: as marked]"
        ),
    ] = None
    by: Annotated[str | None, option("Also measure each group of documents: genre.")] = None
    over: OverOption = "attention"
    layers: Annotated[
        str | None, option("Layers to measure, with commas between. [default: all]")
    ] = None

    def options(self, **more: Unpack[RunOptions]) -> RunOptions:
        """Return the keyword arguments for the library call."""
        layers = None if self.layers is None else _numbers(self.layers)
        own: RunOptions = {"by": self.by, "over": self.over, "layers": layers}
        return {**EngineOptions.options(self, **more), **own}

    def load_model(self) -> Model:
        """Load the model."""
        from headscope.app.cli.models import load_model

        return load_model(self.model, self.device)

    def open_corpus(self, name: str, unit: UnitName = "sentence") -> Corpus:
        """Read the corpus, or a sample of it."""
        return open_corpus(
            name,
            unit=unit,
            documents=self.documents,
            sample=self.sample,
            seed=self.seed,
            on_error=self.on_error,
        )


def open_corpus(
    name: str,
    *,
    unit: UnitName = "sentence",
    documents: str | None = None,
    sample: int | None = None,
    seed: int = 0,
    on_error: Literal["raise", "skip"] = "raise",
) -> Corpus:
    """Read a file or folder; `demo` is the bundled corpus."""
    if name != "demo":
        by = document_rule(documents)
        return hs.read(name, unit=unit, documents=by, sample=sample, seed=seed, on_error=on_error)
    if documents is not None:
        raise InputError("--documents is for files: the demo corpus marks its documents.")
    demo = hs.demo_corpus(unit)
    return demo if sample is None else demo.sample(sample, seed)


DEPTH = 2
"""Levels below a folder that `find_runs` searches."""


def find_runs(paths: list[Path]) -> list[Path]:
    """Replace each folder of run folders by its finished runs, sorted by name."""
    from headscope.results.files import RESULT_FILE

    runs: list[Path] = []
    for path in paths:
        inside: list[Path] = []
        if path.is_dir() and not (path / RESULT_FILE).is_file():
            for depth in range(1, DEPTH + 1):
                inside += sorted(path.glob("*/" * depth + RESULT_FILE))
        runs += [file.parent for file in inside] or [path]
    return runs


def open_results(paths: list[Path]) -> list[Result]:
    """Open the results of run folders and files; raise InputError if models differ."""
    from headscope.results.probe import Probe
    from headscope.results.result import Result

    results = []
    for path in find_runs(paths):
        opened = hs.open(path)
        if not isinstance(opened, Result):
            content = "a trained probe" if isinstance(opened, Probe) else "a trace of one input"
            raise InputError(f"{str(path)!r} holds {content}; expected a run over a corpus.")
        results.append(opened)
    models = sorted({result.model for result in results})
    if len(models) > 1:
        raise InputError(f"These runs are of different models: {', '.join(models)}.")
    return results


def document_rule(documents: str | None) -> int | str | None:
    """Return the value of `--documents`: a number of units, or a name."""
    return int(documents) if documents is not None and documents.isdecimal() else documents
