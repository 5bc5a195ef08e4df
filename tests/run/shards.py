"""Runs cut into many small shards, and stopped after some of them."""

from __future__ import annotations

from typing import Any

import pytest

from headscope.run.options import Settings


def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(self: Settings, **options: Any) -> None:
        values = {"shard_documents": 5, "window": 20, **options}
        defaults = {
            name: Settings.__dataclass_fields__[name].default for name in Settings.__slots__
        }
        for name, value in {**defaults, **values}.items():
            object.__setattr__(self, name, value)

    monkeypatch.setattr(Settings, "__init__", init)


def stop_after(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after so many shards."""
    from headscope.run.engines import local

    original, calls = local.measure_shard, []  # type: ignore[attr-defined]

    def stopping(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) > n:
            raise KeyboardInterrupt
        return original(*args, **options)

    monkeypatch.setattr(local, "measure_shard", stopping)
