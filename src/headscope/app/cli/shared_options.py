"""The options that verbs share, so that a word means the same in all of them.

The runs that a verb was given: files, run folders, or folders of run folders.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

import typer

from headscope.app.cli.command import settings

if TYPE_CHECKING:
    from headscope.results.result import Result
    from headscope.run.options import RunOptions

CorpusName = Annotated[
    str, typer.Argument(help="A file or folder (text, JSON lines, CoNLL-U, …), or 'demo'.")
]
Runs = Annotated[
    list[Path],
    typer.Argument(
        help="Run folders, folders that hold run folders, or result files.", show_default=False
    ),
]
Out = Annotated[Path, typer.Option("-o", "--out", help="Where to write.")]
ModelName = Annotated[str, typer.Option(help="Packaged model, folder or hub id.")]
Device = Annotated[str | None, typer.Option(help="Where to run the model: cpu, cuda, cuda:1, mps.")]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Worker processes; by default as many as the job is worth."),
]
EngineName = Annotated[
    Literal["local", "ray"], typer.Option(help="Run on this machine, or on a Ray cluster.")
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Of a Ray cluster: auto, HOST:PORT or ray://HOST:PORT. By default Ray starts here."
    ),
]
Resume = Annotated[bool, typer.Option(help="Go on with the run in the folder, or start over.")]
UnitName = Annotated[
    Literal["sentence", "paragraph", "document"], typer.Option(help="What counts as one document.")
]
Sample = Annotated[int | None, typer.Option(min=1, help="Draw this many documents at random.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Segments = Annotated[
    bool,
    typer.Option(
        help="Cut whole documents into segments, as BERT's pre-training does (Clark et al.)."
    ),
]
Over = Annotated[
    Literal["attention", "norm"],
    typer.Option(help="Weigh attention by the length of the vectors it fetches: norm."),
]
MaxTokens = Annotated[int, typer.Option(min=2, help="Cut longer documents.")]
OnError = Annotated[
    Literal["raise", "skip"], typer.Option(help="Stop at what cannot be read, or skip it.")
]


@dataclass(frozen=True, slots=True)
class Running:
    """The options of every verb that makes a run over a corpus: who works, and how."""

    workers: Workers = None
    engine: EngineName = "local"
    address: Address = None
    resume: Resume = True
    on_error: OnError = "raise"

    def options(self, **more: Unpack[RunOptions]) -> RunOptions:
        """What the library takes of them, with what the verb adds."""
        return {
            "workers": self.workers,
            "engine": self.engine,
            "address": self.address,
            "resume": self.resume,
            "progress": settings.progress,
            **more,
        }


DEPTH = 2
"""How many levels below a given folder finished runs are looked for."""


def find_runs(paths: list[Path]) -> list[Path]:
    """The paths, where a folder of run folders is replaced by the finished runs in it, by name."""
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
    """The results of run folders and files, which must all be of one model."""
    import headscope as hs
    from headscope.errors import InputError
    from headscope.results.probe import Probe
    from headscope.results.result import Result

    results = []
    for path in find_runs(paths):
        opened = hs.open(path)
        if not isinstance(opened, Result):
            what = "a trained probe" if isinstance(opened, Probe) else "a trace of one input"
            raise InputError(f"{str(path)!r} holds {what}; expected a run over a corpus.")
        results.append(opened)
    models = sorted({result.model for result in results})
    if len(models) > 1:
        raise InputError(f"These runs are of different models: {', '.join(models)}.")
    return results
