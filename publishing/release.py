"""Build what goes to the package index, and check it: `make dist`, and `make release` on a tag.

python -m publishing.release             build into dist/ and check
python -m publishing.release --tagged    also: is this the commit of its version's tag?
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TWINE = "twine==7.0.0"
CHANGES = re.compile(r"^## (\S+)(?: \((\S+)\))?$", re.MULTILINE)


def version() -> str:
    """As pyproject.toml says it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def citation() -> dict[str, str]:
    """`version`, and `date-released` where there was a release."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    return dict(re.findall(r"^(version|date-released): (\S+)$", text, re.MULTILINE))


def changes() -> dict[str, str]:
    """Version → date of each section of the changelog; `unreleased` before there is one."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return {name: date or "unreleased" for name, date in CHANGES.findall(text)}


def disagreements() -> list[str]:
    """What package, changelog and citation do not say alike."""
    number, cited, dates = version(), citation(), changes()
    found = []
    imported = re.search(
        r'^__version__ = "(.*)"$', (ROOT / "src/headscope/__init__.py").read_text("utf-8"), re.M
    )
    if imported is None or imported[1] != number:
        found.append(f"headscope.__version__ is not {number}, which pyproject.toml says")
    if cited.get("version") != number:
        found.append(f"CITATION.cff is of version {cited.get('version')}, not {number}")
    if number not in dates:
        found.append(f"CHANGELOG.md has no section {number}")
    elif dates[number] != cited.get("date-released", "unreleased"):
        found.append(
            f"CHANGELOG.md dates {number} {dates[number]}, CITATION.cff "
            f"{cited.get('date-released', 'unreleased')}"
        )
    return found


def obstacles() -> list[str]:
    """What stands against a release from this commit."""
    number = version()
    found = disagreements()
    if "unreleased" in (changes().get(number), *map(str.lower, changes())):
        found.append("CHANGELOG.md has unreleased changes: give them their version and date")
    if _git("status", "--porcelain"):
        found.append("there are changes that are not committed")
    if f"v{number}" not in _git("tag", "--points-at", "HEAD").split():
        found.append(f"this commit has no tag v{number}")
    return found


def build(folder: Path) -> None:
    """Wheel and source archive, in a folder that held none."""
    _run(["uv", "build", "--quiet", "--out-dir", str(folder), str(ROOT)])
    made = map(str, sorted(folder.glob("headscope-*")))
    _run(["uvx", "--quiet", TWINE, "check", "--strict", *made])


def missing_from(archive: Path) -> list[str]:
    """Files of the repository that the source archive lacks."""
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    return [name for name in _git("ls-files").split("\n") if name not in {*held, ".gitignore"}]


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def _run(command: list[str]) -> None:
    beside = Path(sys.executable).parent / command[0]
    subprocess.run([str(beside) if beside.exists() else command[0], *command[1:]], check=True)


def main(options: list[str]) -> int:
    """Build and check; 1 where something is wrong."""
    found = obstacles() if "--tagged" in options else disagreements()
    if not found:
        folder = ROOT / "dist"
        for leftover in folder.glob("headscope-*"):
            leftover.unlink()
        build(folder)
        (archive,) = folder.glob("*.tar.gz")
        found = [f"the source archive lacks {name}" for name in missing_from(archive)]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
