"""Reports have the types that the front end is compiled against."""

from __future__ import annotations

import json

from headscope.reporting.report_types import Report
from headscope.reporting.report import build_report
from headscope.results.result import Result
from tests.typed_dicts import problems


def test_a_report_obeys_the_types(encoder_results: list[Result]) -> None:
    content = json.loads(json.dumps(build_report(encoder_results)))
    assert problems(content, Report) == []
    kinds = {figure["kind"] for part in content["sections"] for figure in part["figures"]}
    assert {"heads", "lines", "table", "finder", "exemplars"} <= kinds
    content["sections"][0]["figures"][0]["kind"] = "pie"
    assert problems(content, Report)


def test_a_report_on_two_results_obeys_the_types(encoder_results: list[Result]) -> None:
    content = json.loads(json.dumps(build_report([*encoder_results, encoder_results[0]])))
    assert problems(content, Report) == []
