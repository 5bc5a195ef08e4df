"""A metric that stops each actor of a Ray cluster in the middle of a run, until a test goes on.

The environment of a node names the node and the folder of the gate. Without it the gate is open.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.run.corpora import make_documents
from tests.run.own_metric import BackwardShare

if TYPE_CHECKING:
    from torch import Tensor

    from headscope.metrics import LayerData
    from headscope.text.document import Document

FOLDER, NODE = "HEADSCOPE_TEST_GATE", "HEADSCOPE_TEST_NODE"
LONGEST = 300.0
"""Seconds after which a test or an actor gives up."""
SHARD = 5
"""Maximum documents of a shard, as in `small_shards`."""

_seen: set[int] = set()


def noted_documents(n: int) -> list[Document]:
    """Return documents, and note in the folder of the gate that this node has read them."""
    _note("reader")
    return make_documents(n)


def _note(what: str) -> None:
    if FOLDER in os.environ:
        (Path(os.environ[FOLDER]) / f"{what}-{os.environ[NODE]}-{os.getpid()}").touch()


@dataclass(frozen=True)
class GatedShare(BackwardShare):
    """Attention backward. An actor that has measured a shard waits at the gate."""

    name = "gated_share"

    def rows(self, reading: LayerData) -> tuple[Tensor, Tensor, Tensor]:
        """Wait in the second shard: more documents were seen than one shard has."""
        _seen.update(reading.batch.numbers.tolist())
        if FOLDER in os.environ and len(_seen) > SHARD:
            _note("actor")
            wait_until((Path(os.environ[FOLDER]) / "open").exists)
        return super().rows(reading)


def wait_until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + LONGEST
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)


@dataclass(frozen=True)
class Gate:
    """The test's side of a gate."""

    folder: Path

    def environment(self, node: str) -> dict[str, str]:
        """Return the environment of a node whose actors wait at this gate."""
        return {**os.environ, FOLDER: str(self.folder), NODE: node}

    def actors(self, node: str) -> set[int]:
        """Return the processes of a node that have come to the gate."""
        return {int(path.name.split("-")[2]) for path in self.folder.glob(f"actor-{node}-*")}

    def readers(self) -> set[str]:
        """Return the nodes that have read the corpus."""
        return {path.name.split("-")[1] for path in self.folder.glob("reader-*")}

    def open(self) -> None:
        (self.folder / "open").touch()
