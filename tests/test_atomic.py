"""Folders that appear whole or not at all; files are tested with what writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headscope.atomic import atomic_folder


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
    for name in (".folder.killed", ".other.busy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").write_text("")
    with atomic_folder(tmp_path / "folder"):
        pass
    assert names(tmp_path) == [".other.busy", ".other.busy/half", "folder"]
