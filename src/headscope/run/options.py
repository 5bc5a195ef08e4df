"""The options of a run: one record, the same for `analyze`, `importance` and the probes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict, Unpack, get_args

from headscope.arguments import expect, whole_number
from headscope.batch import NullKeys
from headscope.errors import InputError, UnknownName
from headscope.metrics.core.labels import Tagset, check_rules
from headscope.results.trace import OVER

Engine = Literal["local", "ray"]
Over = Literal["attention", "norm"]
MAX_TOKENS = 512


class RunOptions(TypedDict, total=False):
    """Options that every run over a corpus takes."""

    out: str | Path | None
    """A folder for checkpoints and the result. With it, a run that was stopped or killed goes on
    where it was when called again, and a run that is complete is opened."""
    engine: Engine
    """`local`, or `ray` for a Ray cluster."""
    workers: int | None
    """Worker processes (or Ray actors); 1 measures in this process. By default (None) as many as
    the size of the job is worth, and no more than there are cores."""
    resume: bool
    """Go on with what is in `out` (the default); False replaces it."""
    by: str | None
    """Also give the values of each group of documents; this names an entry of `Document.meta`
    (`genre`)."""
    tagset: Tagset
    """`universal` tags (the default) or the language's `specific` ones."""
    null_keys: NullKeys
    """Which keys are null attention: `first`, `special`, or by the model (`auto`)."""
    over: Over
    """What is measured: `attention`, or `norm` for attention times the length of what it fetches
    (Kobayashi et al. 2020), rows divided by their sums."""
    max_tokens: int | None
    """Longer documents are cut, and counted; None reads as much as the model does."""
    batch_tokens: int
    """Tokens of a batch, padding included."""
    threads: int
    """Threads of each worker. They change the order of sums, and with it their last bits, so this
    is bucket of a run's plan."""
    address: str | None
    """Of a Ray cluster; a local one by default."""
    progress: bool | None
    """Show progress; by default on a terminal."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a run that change its numbers, or at least their last bits."""

    by: str | None = None
    tagset: Tagset = "universal"
    null_keys: NullKeys = "auto"
    over: Over = "attention"
    max_tokens: int = MAX_TOKENS
    batch_tokens: int = 1024
    shard_characters: int = 32_768
    shard_documents: int = 512
    window: int = 2048
    """So many documents at a time are sorted by length and cut into shards."""
    buckets: int = 64
    """Into so many buckets the documents of each group are dealt: see `headscope.batch.Axes`."""
    threads: int = 1

    def __post_init__(self) -> None:
        for name in (
            "max_tokens",
            "batch_tokens",
            "shard_characters",
            "shard_documents",
            "window",
            "buckets",
            "threads",
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{name} should be a number from 1 on, not {value!r}.")
        check_rules(self.tagset, self.null_keys)
        if self.over not in OVER:
            raise UnknownName.of("kind of attention", self.over, OVER)


@dataclass(frozen=True, slots=True)
class Execution:
    """Options of a run that say where and how it is carried out, and change no number."""

    out: Path | None = None
    engine: Engine = "local"
    workers: int | None = None
    resume: bool = True
    address: str | None = None
    progress: bool | None = None

    def __post_init__(self) -> None:
        if self.engine not in get_args(Engine):
            raise UnknownName.of("engine", self.engine, get_args(Engine))
        if self.workers is not None:
            whole_number("workers", self.workers)
        if self.address is not None and self.engine != "ray":
            raise InputError(
                f"address={self.address!r} names a Ray cluster, but the run is on this machine: "
                "use it with engine='ray' (--engine ray)."
            )
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise InputError(f"out={str(self.out)!r} is a file; give the name of a folder.")

    @classmethod
    def of(cls, options: Mapping[str, object]) -> Execution:
        """These fields, taken from all options of a run."""
        values = {name: options[name] for name in cls.__slots__ if name in options}
        out = values.get("out")
        expect("out", out, str | os.PathLike | None, "the name of a folder, or None")
        if isinstance(out, str | os.PathLike):
            values["out"] = Path(out)
        return cls(**values)  # type: ignore[arg-type]


def with_defaults(options: RunOptions, **defaults: Unpack[RunOptions]) -> RunOptions:
    """The options, with defaults for those that were not given."""
    merged: RunOptions = {**defaults, **options}
    return merged


def check_options(options: Mapping[str, object]) -> None:
    """Refuse an option that no run has."""
    for name in options:
        if name in ("unit", "sample", "seed", "on_error"):
            raise InputError(
                f"{name} is an option of the corpus: pass headscope.read(source, {name}=…)."
            )
        if name not in RunOptions.__annotations__:
            raise UnknownName.of("option", name, RunOptions.__annotations__)


def settings_of(options: Mapping[str, object], max_tokens: int) -> Settings:
    """The options that change numbers, with `max_tokens` as the model allows it."""
    values = {name: options[name] for name in Settings.__slots__ if name in options}
    return Settings(**{**values, "max_tokens": max_tokens})  # type: ignore[arg-type]
