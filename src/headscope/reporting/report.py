"""`headscope.report`: results as one offline HTML file that reads like a paper."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from headscope.arguments import expect
from headscope.errors import InputError
from headscope.heads.head_map import HeadMap
from headscope.page.buffers import Payload
from headscope.page.html import write_page
from headscope.page.save_page import make_page
from headscope.reporting.build import (
    FORMAT,
    VERSION,
    Report,
    build_map_report,
    build_report,
)
from headscope.results.opening import open as open_file
from headscope.results.probe import Probe
from headscope.results.result import Result
from headscope.results.trace import Trace

STYLE = """
#headscope > p { font: 15px/1.5 system-ui, sans-serif; max-width: 36rem; margin: 3rem auto; }
""".strip()
WAITING = (
    "Opening the report … If this text stays, the file is incomplete (save it once more), "
    "or JavaScript is switched off."
)


def report(
    results: Result | str | os.PathLike[str] | Iterable[Result | Probe | str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    pages: Mapping[str, str] | None = None,
) -> Path:
    """Write a report on one or several results: one HTML file that opens without a network.

    It begins with findings, written from the numbers. Then come figures with their equations and
    papers, a card for every head, and where the numbers come from. Results of the same model
    (`analyze`, `importance`, probes) are put together; several models, corpora or genres stand
    side by side.

    Args:
        results: results, run folders or files of results, and trained probes.
        path: the file to write; it appears whole or not at all.
        title: the title of the report; by default it names the models.
        pages: addresses of explorer pages, relative to the report, by the model's name or a
            part of it: `{"minilm": "minilm.html"}`. Cards of heads then link to them.

    Returns:
        The path.

    Raises:
        InputError: there is no result, or something else was given.
    """
    accepted = Result | str | os.PathLike | Iterable
    expect("results", results, accepted, "results, or files or folders of them")
    given = [results] if isinstance(results, Result | str | os.PathLike) else list(results)
    content = build_report([_opened(source) for source in given], title=title, pages=pages)
    _write(content, path)
    return Path(path)


def save_map_page(
    heads: HeadMap,
    path: str | os.PathLike[str],
    results: Iterable[Result] = (),
    *,
    explorer: str | None = None,
) -> None:
    """See `HeadMap.save_page`."""
    _write(build_map_report(heads, results, explorer=explorer), path)


def _write(content: Report, path: str | os.PathLike[str]) -> None:
    header = {"format": FORMAT, "version": VERSION, "title": content["title"]}
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    packed = gzip.compress(text.encode("ascii"), compresslevel=9, mtime=0)
    page = make_page(
        Payload(header, [packed]),
        script="report.js",
        style=STYLE,
        waiting=WAITING,
        title=content["title"],
    )
    write_page(path, page)


def _opened(source: object) -> object:
    """What a file or folder holds; anything else as it is."""
    if not isinstance(source, str | os.PathLike):
        return source
    opened = open_file(source)
    if isinstance(opened, Trace):
        raise InputError(
            f"{os.fspath(source)!r} is a trace, not a result: a report is made of what analyze, "
            "importance or the probes wrote. Traces are shown by save_page."
        )
    return opened
