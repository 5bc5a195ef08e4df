"""The options that verbs share, so that the same word means the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

CorpusName = Annotated[
    str, typer.Argument(help="A file or folder (text, JSON lines, CoNLL-U, …), or 'demo'.")
]
Runs = Annotated[
    list[Path],
    typer.Argument(help="Run folders, folders of such, or files of results.", show_default=False),
]
Out = Annotated[Path, typer.Option("-o", "--out", help="Where to write.")]
ModelName = Annotated[str, typer.Option(help="Packaged model, folder or hub id.")]
Device = Annotated[str | None, typer.Option(help="Where to run: cpu, cuda, cuda:1, mps.")]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Worker processes; one for each core by default.")
]
EngineName = Annotated[
    Literal["local", "ray"], typer.Option(help="This machine, or a Ray cluster.")
]
Resume = Annotated[bool, typer.Option(help="Go on with the run in the folder, or start anew.")]
UnitName = Annotated[
    Literal["sentence", "paragraph", "document"], typer.Option(help="What counts as one document.")
]
Sample = Annotated[int | None, typer.Option(min=1, help="Draw this many documents at random.")]
Seed = Annotated[int, typer.Option(help="Which random draw.")]
Segments = Annotated[
    bool,
    typer.Option(
        help="Cut whole documents into segments as for BERT's pre-training (Clark et al.)."
    ),
]
MaxTokens = Annotated[int, typer.Option(min=2, help="Longer documents are cut.")]
OnError = Annotated[Literal["raise", "skip"], typer.Option(help="What to do about a broken line.")]
