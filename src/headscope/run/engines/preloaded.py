"""What the server imports whose forks are workers: a process of our own."""

from __future__ import annotations

from headscope.metrics.core.kernels import has_numba, load_loops
from headscope.run.engines import local as worker

if has_numba():
    load_loops()  # once for all workers, while this process would only wait

__all__ = ["worker"]
