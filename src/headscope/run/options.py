"""Options of a run, shared by `analyze`, `importance` and the probes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict, Unpack, get_args

from headscope.arguments import expect, whole_number
from headscope.batch import NullKeys
from headscope.errors import InputError, UnknownName
from headscope.metrics.core.labels import Tagset
from headscope.results.trace import OVER
from headscope.text.tokens import MAX_WORD_TOKENS

Engine = Literal["local", "ray"]
Over = Literal["attention", "norm"]
MAX_TOKENS = 512


class RunOptions(TypedDict, total=False):
    """Options of every run over a corpus."""

    out: str | Path | None
    """Folder for checkpoints and the result. With it, a stopped run continues when called again,
    and a complete run is opened."""
    engine: Engine
    """`local`, or `ray` for a Ray cluster."""
    workers: int | None
    """Worker processes or Ray actors; 1 measures in this process. Default (None): as the size of
    the job requires, up to the number of cores."""
    resume: bool
    """Continue with the content of `out` (default); False replaces it."""
    by: str | None
    """Entry of `Document.meta` (`genre`) by which documents are grouped; values of each group are
    added."""
    tagset: Tagset
    """`universal` tags (the default) or the language's `specific` ones."""
    null_keys: NullKeys
    """Keys of null attention: `first`, `special`, or by the model (`auto`)."""
    over: Over
    """`attention`, or `norm` for attention weighted by the norm of the projected value (Kobayashi
    et al. 2020). Rows are then divided by their sums."""
    max_tokens: int | None
    """Maximum tokens of a document; longer ones are cut and counted. None: the model's limit."""
    max_word_tokens: int | None
    """Maximum tokens of a word: longer ones (URLs) are left out of every metric, as queries and as
    keys, and counted. A word is text without a space. Default 40; None for any."""
    layers: Sequence[int] | None
    """Layers to measure. The pass ends after the deepest of them; others run in torch's fused
    attention. Default: all."""
    windows: int | None
    """Read longer documents in overlapping windows of this many tokens, in place of cutting them.
    Each token counts as a query once, and the windows of a document are one document in intervals.
    Distances and entropies are then those of a window."""
    batch_tokens: int
    """Maximum tokens of a batch, including padding."""
    threads: int
    """Threads of each worker. They change the order of sums and so their last bits; therefore part
    of the plan."""
    address: str | None
    """Address of a Ray cluster; default: a local one."""
    progress: bool | None
    """Show progress; default: only on a terminal."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Options of a run that can change its results, at least in the last bits."""

    by: str | None = None
    tagset: Tagset = "universal"
    null_keys: NullKeys = "auto"
    over: Over = "attention"
    max_tokens: int = MAX_TOKENS
    max_word_tokens: int | None = MAX_WORD_TOKENS
    layers: tuple[int, ...] | None = None
    windows: int | None = None
    batch_tokens: int = 1024
    shard_characters: int = 32_768
    shard_documents: int = 512
    window: int = 2048
    """Number of documents that are sorted by length together and cut into shards."""
    buckets: int = 64
    """Number of buckets for the documents of each group: see `headscope.batch.Axes`."""
    threads: int = 1

    def __post_init__(self) -> None:
        numbers = ("max_tokens", "batch_tokens", "shard_characters", "shard_documents", "window")
        for name in (*numbers, "buckets", "threads"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{name} should be a number from 1 on, not {value!r}.")
        if self.max_word_tokens is not None:
            whole_number("max_word_tokens", self.max_word_tokens)
        UnknownName.check("tagset", self.tagset, get_args(Tagset))
        UnknownName.check("null_keys", self.null_keys, get_args(NullKeys))
        UnknownName.check("kind of attention", self.over, OVER)


@dataclass(frozen=True, slots=True)
class Execution:
    """Options of a run that do not change its results."""

    out: Path | None = None
    engine: Engine = "local"
    workers: int | None = None
    resume: bool = True
    address: str | None = None
    progress: bool | None = None

    def __post_init__(self) -> None:
        UnknownName.check("engine", self.engine, get_args(Engine))
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
        """Select these fields from all options of a run."""
        values = {name: options[name] for name in cls.__slots__ if name in options}
        out = values.get("out")
        expect("out", out, str | os.PathLike | None, "the name of a folder, or None")
        if isinstance(out, str | os.PathLike):
            values["out"] = Path(out)
        return cls(**values)  # type: ignore[arg-type]


def with_defaults(options: RunOptions, **defaults: Unpack[RunOptions]) -> RunOptions:
    """Add defaults for missing options."""
    merged: RunOptions = {**defaults, **options}
    return merged


def check_options(options: Mapping[str, object]) -> None:
    """Raise for an unknown option."""
    for name in options:
        if name in ("unit", "documents", "sample", "seed", "on_error"):
            raise InputError(
                f"{name} is an option of the corpus: pass headscope.read(source, {name}=…)."
            )
        UnknownName.check("option", name, RunOptions.__annotations__)


def settings_of(options: Mapping[str, object], max_tokens: int) -> Settings:
    """Select the options that change results, with `max_tokens` as the model allows."""
    values = {name: options[name] for name in Settings.__slots__ if name in options}
    layers = values.get("layers")
    if layers is not None:
        if not isinstance(layers, Iterable) or not all(isinstance(n, int) for n in layers):
            raise InputError(f"layers should be a list of layer numbers, not {layers!r}.")
        values["layers"] = tuple(sorted(set(layers)))
    return Settings(**{**values, "max_tokens": max_tokens})  # type: ignore[arg-type]
