"""The offline page as text."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from headscope.errors import InputError, UnknownName, WriteError
from headscope.page.payload import Contents, make_payload
from headscope.page.save_page import make_page, picture_of, png, save_page
from headscope.page.selection import make_selection
from headscope.results.trace import Trace
from tests.page.golden_payload import golden_trace


def test_the_policy_names_the_script_and_nothing_else() -> None:
    page = make_page(make_payload([golden_trace()]))
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    script = re.search(r'<script type="module">(.*?)</script>', page, re.DOTALL)
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy[1]
    assert not re.search(r'(src|href)="(?!data:)', page.replace(script[1], ""))


def test_tokens_cannot_leave_their_script() -> None:
    trace = Trace.from_arrays(np.ones((1, 1, 1, 1)), ["</script><!--"])
    page = make_page(make_payload([trace], Contents(titles=["</title>"])), title="</title>")
    assert "</script><!--" not in page
    assert page.count("</title>") == 1


def test_a_file_or_an_error(tmp_path: Path) -> None:
    save_page(golden_trace(), tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8").startswith("<!doctype html>")
    with pytest.raises(WriteError, match=r"there is no folder '.*new'"):
        save_page(golden_trace(), tmp_path / "new" / "page.html")
    assert not (tmp_path / "new").exists()
    with pytest.raises(InputError, match="is a folder"):
        save_page(golden_trace(), tmp_path)


def test_selection() -> None:
    trace = golden_trace()
    assert make_selection(trace) == ""
    made = make_selection(trace, view="head", layer=1, heads=[0, 1], queries=2, theme="dark")
    assert made == "head=L1H0&word=2&tab=lines&theme=dark"
    with pytest.raises(UnknownName, match=r"Unknown view 'neurons'\. Did you mean 'neuron'"):
        make_selection(trace, view="neurons")
    with pytest.raises(InputError, match="There is no layer 5: the trace has 0 to 1"):
        make_selection(trace, layer=5)
    with pytest.raises(InputError, match="There is no head 2: they go from 0 to 1"):
        make_selection(trace, heads=[0, 2])
    with pytest.raises(UnknownName, match="Unknown block 'cross'"):
        make_selection(trace, block="cross")


def test_still_picture() -> None:
    assert 'alt="Attention of golden: 2 layers down, 2 heads across"' in picture_of(golden_trace())
    data = png(np.zeros((2, 3, 3), dtype=np.uint8))
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20], "big") == 3
