"""Folders that appear whole or not at all; files are tested with what writes them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from headscope.atomic import atomic_folder, atomic_path


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder"
    with atomic_folder(target) as work:
        (work / "first").write_text("1")
        assert not target.exists()
    assert names(tmp_path / "new") == ["folder", "folder/first"]


def test_a_folder_takes_the_place_of_an_older_one(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    for name in ("old", "new"):
        with atomic_folder(target) as work:
            (work / name).write_text(name)
    assert names(tmp_path) == ["folder", "folder/new"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    (target / "old").write_text("")
    with pytest.raises(FileNotFoundError), atomic_folder(target) as work:
        (work / "half").rename(work / "whole")
    assert names(tmp_path) == ["folder", "folder/old"]


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    for name in (".folder.ab12cd34.part", ".folder.b.ab12cd34.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("")
    with atomic_folder(tmp_path / "folder"):
        pass
    assert names(tmp_path) == [".folder.b.ab12cd34.part", ".folder.b.ab12cd34.part/half", "folder"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_content_is_on_disk_before_the_name(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a loss of power a name must not be there without what it names."""
    events: list[str] = []

    def sync(descriptor: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "content")

    def renamed(real: Callable[..., Path]) -> Callable[..., Path]:
        def rename(self: Path, target: Path) -> Path:
            events.append("name")
            return real(self, target)

        return rename

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", renamed(Path.replace))
    monkeypatch.setattr(Path, "rename", renamed(Path.rename))
    if kind == "file":
        with atomic_path(tmp_path / "a.nc") as path:
            path.write_text("values")
    else:
        with atomic_folder(tmp_path / "a") as path:
            (path / "values").write_text("values")
    assert events == ["content", "name", "folder"]
