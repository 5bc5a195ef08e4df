"""The payload has the types that the front end is compiled against."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from headscope.heads.roles import ROLES
from headscope.model.model import Model
from headscope.page.evidence import make_evidence
from headscope.page.payload import Contents, make_payload
from headscope.page.payload_types import Header, RoleId
from headscope.results.result import Result
from tests.typed_dicts import problems

GENERATOR = Path(__file__).parents[2] / "web/generate_types.py"


def test_the_generated_types_are_those_of_python() -> None:
    done = subprocess.run(
        [sys.executable, str(GENERATOR), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_roles_have_one_list() -> None:
    assert RoleId.__args__ == tuple(ROLES)  # type: ignore[attr-defined]


def test_the_golden_payload_obeys_the_types() -> None:
    golden = json.loads((Path(__file__).parent / "golden/payload.json").read_text("utf-8"))
    assert problems(golden.get("header", golden), Header) == []


def test_a_page_with_everything_obeys_the_types(
    encoder_results: list[Result], tiny_bert: Model
) -> None:
    trace = tiny_bert.trace("the cat [MASK] on the mat", effects=True)
    contents = Contents(
        neurons=True, evidence=make_evidence(encoder_results, trace), report="r.html"
    )
    header = json.loads(json.dumps(make_payload([trace], contents).header))
    assert problems(header, Header) == []
    header["traces"][0]["blocks"][0]["roles"][0][0]["role"] = "after"
    assert problems(header, Header)


@pytest.mark.parametrize("n", [1, 2])
def test_pages_of_causal_models_obey_the_types(tiny_llama: Model, n: int) -> None:
    traces = [tiny_llama.trace("the cat sat", effects=True) for _ in range(n)]
    header = json.loads(json.dumps(make_payload(traces).header))
    assert problems(header, Header) == []
