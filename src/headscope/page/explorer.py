"""`Trace.explore`: the explorer in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headscope.arguments import whole_number
from headscope.errors import MissingExtra
from headscope.page.evidence_part import make_evidence
from headscope.page.payload import Contents, make_payload
from headscope.page.replies import Replies
from headscope.results.result import Result

if TYPE_CHECKING:
    from headscope.page.widget import Explorer

HEIGHT = 680


def explore(
    replies: Replies,
    *,
    selection: str = "",
    neurons: bool | Sequence[int] | None = None,
    titles: Sequence[str] | None = None,
    evidence: Result | Iterable[Result] | None = None,
    height: int = HEIGHT,
) -> Explorer:
    """The widget for one trace, or for two to compare; `Trace.explore` says more."""
    contents = Contents(
        neurons=neurons,
        titles=titles,
        selection=selection,
        evidence=None if evidence is None else make_evidence(evidence, replies.traces[0]),
        place="notebook",
    )
    payload = make_payload(replies.traces, contents)
    try:
        from headscope.page.widget import Explorer
    except ModuleNotFoundError as error:
        raise MissingExtra.of("anywidget", "widget", "The explorer in a notebook") from error
    whole_number("height", height)
    return Explorer(replies, payload, height=height)
