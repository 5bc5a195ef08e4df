"""Imports of the server process that forks workers."""

from __future__ import annotations

from headscope.metrics.core.layer_data import has_numba, load_loops
from headscope.run.engines import local as worker

if has_numba():
    load_loops()  # once for all workers

__all__ = ["worker"]
