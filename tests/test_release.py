"""What goes to the package index: versions agree, the archive is whole, the page shows pictures."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from publishing import release

ROOT = Path(__file__).parents[1]


def test_package_changelog_and_citation_agree() -> None:
    assert release.disagreements() == []


def test_a_disagreement_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "version", lambda: "9.9.9")
    found = "; ".join(release.disagreements())
    assert "headscope.__version__ is not 9.9.9" in found
    assert "CITATION.cff is of version" in found
    assert "CHANGELOG.md has no section 9.9.9" in found


def test_a_date_that_only_one_of_them_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    dated = {**release.citation(), "date-released": "2000-01-01"}
    monkeypatch.setattr(release, "citation", lambda: dated)
    assert "2000-01-01" in "; ".join(release.disagreements())


def test_the_readme_of_the_index_has_addresses() -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    sys.path.insert(0, str(ROOT))
    try:
        from hatch_build import with_addresses
    finally:
        sys.path.remove(str(ROOT))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = with_addresses(text, "https://example.org/headscope", "v1")
    targets = re.findall(r"\]\(([^)]+)\)", shown)
    assert len(targets) == len(re.findall(r"\]\(([^)]+)\)", text)) > 10
    assert all(target.startswith("https://") for target in targets)
    assert "https://example.org/headscope/raw/v1/docs/images/live.gif" in targets


@pytest.mark.long
def test_wheel_and_archive_pass_the_index_checks(tmp_path: Path) -> None:
    release.build(tmp_path)
    (archive,) = tmp_path.glob("*.tar.gz")
    assert release.missing_from(archive) == []
