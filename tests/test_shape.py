"""The shape of the source tree: counts with ceilings that may only fall.

Static: no import of headscope, no model, about two seconds. CONTRIBUTING.md has the rules behind
the counts. When a change lowers a count, lower its ceiling here in the same commit.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

CEILINGS = {
    "modules": 213,
    "modules of the frame": 148,
    "lines": 51_257,
    "largest": 675,
    "one importer": 40,
    "splinters": 15,
    "repeated class names": 2,
    "TOLERANCE owners": 0,
    "openers": 0,
    "banned words": 2,
    "web files": 91,
    "web lines": 17_456,
}
"""Highest count that passes. `python -m pytest tests/test_shape.py` names what exceeds it. The
frame is all but commands, readers, metrics and formats, which may be added."""

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "headscope"
WEB = ROOT / "web" / "src"
SHOWN = 12
"""Examples in a failure's message."""

OPENERS = re.compile(
    r"(What|Whose|Which|Who|Whom|How|Of|So|As|Those|These|It|They|Whether|Where|In which|By whom|"
    r"Why)\b(?!.*\?$)"
)
BANNED = re.compile(
    r"\b(pulls|honest|foretold|wanted_sets|desk|shelf|wish|wishes|aims|junction|rehearsal|"
    r"official|remembered|standins?|nobody|somebody|someone|whoever|anew|likewise|so many|so much|"
    r"so large|in sight|one's own|is told|are told|stands? for itself|bears? out|beside whatever|"
    r"has none|have none|held to account|in place of where)\b"
    r"|(?<!here )(?<!here\n)\b(?:is|are) no (?!longer|more)",
    re.IGNORECASE,
)
ALONE = re.compile(
    r"__(init|main)__|^app/cli/|^text/readers/|^metrics/[a-z_]+$|^model/packaged/|^bertviz/"
)
"""Modules that may have one importer: a command, a reader, a metric, a format."""


@dataclass
class Shape:
    """Counts of the tree, each with the places it was counted at."""

    places: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.counts.get(name, len(self.places[name]))


def dotted(module: str) -> str:
    """`text/corpus` → `headscope.text.corpus`."""
    path = module.removesuffix("__init__").rstrip("/").replace("/", ".")
    return f"headscope.{path}".rstrip(".")


def imported(tree: ast.Module, modules: dict[str, str]) -> set[str]:
    """Modules of headscope that a module imports, within functions too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("headscope"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {modules.get(name) or modules.get(node.module or "") for name in names}
        elif isinstance(node, ast.Import):
            found |= {modules.get(alias.name) for alias in node.names}
    return {name for name in found if name is not None}


def defined(tree: ast.Module) -> set[str]:
    """Classes, aliases and constants at the top of a module, without leading underscores."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name.lstrip("_") for name in names}


def opened(module: str, tree: ast.Module) -> list[str]:
    """Docstrings whose first word is neither a verb nor a noun."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            if OPENERS.match(first):
                found.append(f"{module}: {first}")
    return found


@cache
def shape() -> Shape:
    """Count everything in one walk over the sources."""
    texts = {
        str(path.relative_to(SOURCE).with_suffix("")): path.read_text(encoding="utf-8")
        for path in sorted(SOURCE.rglob("*.py"))
    }
    modules = {dotted(name): name for name in texts}
    stub = (SOURCE / "__init__.pyi").read_text(encoding="utf-8")
    public = {modules.get(name) for name in re.findall(r"^from (\S+) import", stub, re.MULTILINE)}
    trees = {name: ast.parse(text) for name, text in texts.items()}

    importers, owners = defaultdict(set), defaultdict(set)
    made = Shape()
    for module, tree in trees.items():
        for target in imported(tree, modules) - {module}:
            importers[target].add(module)
        for name in defined(tree):
            owners[name].add(module)
        made.places["openers"] += opened(module, tree)
        words = [f"{module}: {found[0]}" for found in BANNED.finditer(texts[module])]
        made.places["banned words"] += words

    lines = {name: text.count("\n") for name, text in texts.items()}
    single = [m for m in texts if not m.endswith("__init__") and len(importers[m]) == 1]
    shared = {name: sorted(where) for name, where in owners.items() if len(where) > 1}
    web = [path for path in sorted(WEB.rglob("*.ts*")) if path.suffix in (".ts", ".tsx")]
    longest = sorted(lines, key=lambda name: -lines[name])
    made.places |= {
        "modules": list(texts),
        "modules of the frame": [name for name in texts if not ALONE.search(name)],
        "largest": [f"{name}: {lines[name]}" for name in longest],
        "one importer": single,
        "splinters": [m for m in single if m not in public and not ALONE.search(m)],
        "repeated class names": [
            f"{k}: {v}" for k, v in shared.items() if re.match("[A-Z][a-z]", k)
        ],
        "TOLERANCE owners": shared.get("TOLERANCE", []),
        "web files": [str(path.relative_to(WEB)) for path in web],
    }
    made.counts = {
        "lines": sum(lines.values()),
        "largest": lines[longest[0]],
        "web lines": sum(path.read_text(encoding="utf-8").count("\n") for path in web),
    }
    return made


@pytest.mark.parametrize("name", CEILINGS)
def test_a_count_is_not_above_its_ceiling(name: str) -> None:
    counted = shape()[name]
    examples = "\n  ".join(shape().places[name][:SHOWN])
    assert counted <= CEILINGS[name], f"{name}: {counted:,} > {CEILINGS[name]:,}\n  {examples}"


def test_the_counts_see_what_they_count() -> None:
    tree = ast.parse('"""What it is."""\nfrom headscope.text import corpus\n_Row = int\n')
    modules = {"headscope.text.corpus": "text/corpus"}
    assert imported(tree, modules) == {"text/corpus"}
    assert defined(tree) == {"Row"}
    assert opened("here", tree) == ["here: What it is."]
    assert BANNED.search("that is no sum")
    assert not BANNED.search("that is no longer a sum")
    assert dotted("text/__init__") == "headscope.text"
    assert dotted("__init__") == "headscope"
