"""Freed memory goes back to the system, and only when there is much of it."""

from __future__ import annotations

import pytest

from headscope.run import shard as memory
from headscope.run.shard import MAX_KEPT, FreedMemory


def test_gives_back_what_has_piled_up(monkeypatch: pytest.MonkeyPatch) -> None:
    resident = [100]
    given_back = []
    monkeypatch.setattr(memory, "_resident", lambda: resident[0])
    freed = FreedMemory()
    freed.give_back()
    give_back = freed.give_back
    monkeypatch.setattr(freed, "give_back", lambda: (given_back.append(resident[0]), give_back()))
    for size in (50, 100, 100 + MAX_KEPT, 101 + MAX_KEPT, 102 + MAX_KEPT, 200 + 2 * MAX_KEPT):
        resident[0] = size
        freed.check()
    assert given_back == [101 + MAX_KEPT, 200 + 2 * MAX_KEPT]


def test_where_the_system_does_not_tell_it_gives_back_every_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_resident", lambda: 0)
    calls = []
    freed = FreedMemory()
    monkeypatch.setattr(freed, "give_back", lambda: calls.append(1))
    freed.check()
    freed.check()
    assert len(calls) == 2


def test_knows_its_own_size() -> None:
    before = memory._resident()
    held = bytearray(b"x") * (64 << 20)
    assert memory._resident() == 0 or memory._resident() - before > 32 << 20
    assert len(held) == 64 << 20
