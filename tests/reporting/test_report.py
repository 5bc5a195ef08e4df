"""The file: one page, whole, inert, and clear about what it cannot be made of."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

import headscope as hs
from headscope.errors import FileFormatError, InputError
from tests.browser.conftest import synthetic
from tests.reporting.made_up import result

HOSTILE = "</script><img src=x onerror=alert(1)>\u2028"


def content_of(page: str) -> dict[str, Any]:
    """What the page carries."""
    found = re.search(r'<script type="text/plain" data-buffer="0">([^<]*)</script>', page)
    assert found
    content: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(found[1])))
    return content


def test_the_page_carries_the_report(tmp_path: Path) -> None:
    path = hs.report(result({"distance": 2.0}), tmp_path / "report.html", title="Mine")
    page = path.read_text("utf-8")
    assert "<title>Mine</title>" in page
    assert content_of(page)["title"] == "Mine"
    assert content_of(page)["format"] == "headscope-report"
    assert list(path.parent.iterdir()) == [path]


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    pages = [
        hs.report([result({"distance": 2.0})], tmp_path / f"{n}.html").read_bytes()
        for n in range(2)
    ]
    assert pages[0] == pages[1]


def test_only_the_reports_script_may_run(tmp_path: Path) -> None:
    page = hs.report(result({"distance": 2.0}), tmp_path / "report.html").read_text("utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    script = re.search(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    assert policy
    assert script
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy[1]
    assert "default-src 'none'" in policy[1]
    assert not re.search(r"https?://(?!www\.w3\.org/)", script[1])


def test_names_are_data_not_markup(tmp_path: Path) -> None:
    hostile = result({"distance": 2.0}, model=HOSTILE, corpus=HOSTILE)
    page = hs.report(hostile, tmp_path / "report.html").read_text("utf-8")
    assert "<img" not in page.replace("&lt;img", "")
    assert HOSTILE in content_of(page)["title"]


def test_folders_files_and_results_mix(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    result({"distance": 2.0}).save(run / "result.nc")
    path = hs.report([run, result({"distance": 2.0}, model="b")], tmp_path / "report.html")
    assert len(content_of(path.read_text("utf-8"))["subjects"]) == 2
    alone = hs.report(str(run / "result.nc"), tmp_path / "alone.html")
    assert len(content_of(alone.read_text("utf-8"))["subjects"]) == 1


def test_pages_are_found_by_the_models_name_or_a_part_of_it(tmp_path: Path) -> None:
    made = result({"distance": 2.0}, model="all-MiniLM-L6-v2")
    for name, expected in (("minilm", "a.html"), ("all-MiniLM-L6-v2", "a.html"), ("gpt2", None)):
        path = hs.report(made, tmp_path / "report.html", pages={name: "a.html"})
        assert content_of(path.read_text("utf-8"))["subjects"][0]["page"] == expected


@pytest.mark.parametrize("page", ["javascript:alert(1)", "data:text/html,x", "vbscript:x"])
def test_pages_are_pages(page: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected the path or address of an HTML"):
        hs.report(result({"distance": 2.0}), tmp_path / "report.html", pages={"toy": page})


def test_files_that_are_no_results(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    with pytest.raises(InputError, match="There is no file"):
        hs.report(tmp_path / "missing.nc", out)
    with pytest.raises(InputError, match=r"has no result\.nc: no run has finished there"):
        hs.report(tmp_path, out)
    (tmp_path / "text.nc").write_text("not netCDF")
    with pytest.raises(FileFormatError, match="cannot be read as netCDF"):
        hs.report([tmp_path / "text.nc"], out)
    trace = tmp_path / "trace.nc"
    synthetic().save(trace)
    with pytest.raises(InputError, match="is a trace, not a result: a report is made of"):
        hs.report([trace], out)
    assert not out.exists()


def test_the_verb_writes_and_answers(tmp_path: Path) -> None:
    from headscope.app.cli.analyze import report

    result({"distance": 2.0}).save(tmp_path / "result.nc")
    out = tmp_path / "out.html"
    answer = report([tmp_path], out, page=["toy=pages/toy.html"])
    assert answer.text == str(out)
    assert answer.data == {"report": str(out), "bytes": out.stat().st_size}
    with pytest.raises(InputError, match="--page is 'toy', expected MODEL=PATH"):
        report([tmp_path], out, page=["toy"])
