"""What the documents say is true: their Python runs, their commands parse, their links lead
somewhere, and nothing public is missing from them.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

import headscope as hs
from headscope.metrics import METRICS
from headscope.model.model import Model

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
RUN = sorted(
    [
        ROOT / "README.md",
        *(DOCS / f"{n}.md" for n in ("index", "explorer", "corpora", "effects", "heads", "report")),
        DOCS / "gallery.md",
        *(DOCS / "guide").glob("*.md"),
        *(DOCS / "jobs").glob("*.md"),
    ]
)
QUICK = ("README.md", "index.md", "quickstart.md", "metric.md")
"""Pages that run in a few seconds; the others are left to CI."""
BLOCK = re.compile(r"^(<!-- needs: [a-z ]+ -->\n)?```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^ *(?:\$ )?(headscope [^|>\n]*)", re.MULTILINE)
INDENTED = re.compile(r"^ {4}.*$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.packaged
@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[] if p.name in QUICK else [pytest.mark.long]) for p in RUN],
    ids=name_of,
)
def test_a_pages_python_runs_as_pasted(
    page: Path, minilm: Model, smollm2: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of a page one after the other, as a reader pastes them. A block that needs a
    network, a cluster or files of the reader's own says so in a comment before it.
    """
    monkeypatch.chdir(tmp_path)
    module = ModuleType(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where dataclasses look
    for needs, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        code = compile(block, name_of(page), "exec")
        if not needs:
            exec(code, module.__dict__)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_all_python_is_python(page: Path) -> None:
    for _, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        compile(block, name_of(page), "exec")


def commands(page: Path) -> list[str]:
    """Commands in fences, whatever their language, and in indented blocks."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    blocks = [block for language, block in FENCE.findall(text) if language != "python"]
    blocks += INDENTED.findall(FENCE.sub("", text))
    return [line for block in blocks for line in COMMAND.findall(block)]


def test_commands_are_found_in_every_kind_of_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    kinds = ["sh", "console", "bash", ""]
    fences = [f"```{kind}\nheadscope models {n}\n```" for n, kind in enumerate(kinds)]
    others = [
        "    headscope models 4",
        "1. A list:\n\n    ```sh\n    $ headscope models \\\n      5\n    ```",
        "```python\nheadscope = 6\n```",
        "headscope unites papers.",
    ]
    page.write_text("\n\n".join([*fences, *others]), encoding="utf-8")
    assert sorted(shlex.split(line)[2] for line in commands(page)) == list("012345")


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=name_of)
def test_commands_parse(page: Path) -> None:
    from typer.main import get_command

    from headscope.app.cli.main import app

    for line in commands(page):
        words = shlex.split(line, comments=True)[1:]
        command = get_command(app)
        while hasattr(command, "commands"):
            assert words[0] in command.commands, f"{line}: there is no {words[0]!r}"
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = [
        target
        for target in LINK.findall(text)
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_names_a_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"/(root|work|tmp|opt|home)/", text)


def test_the_site_shows_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    shown = re.findall(r"([\w/]+\.md)", navigation)
    assert sorted(shown) == sorted(str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md"))


REFERENCE = "\n".join(p.read_text(encoding="utf-8") for p in (DOCS / "reference").glob("*.md"))
ENTRY = re.compile(r"^::: headscope\.([\w.]+)$((?:\n {4}.*)*)", re.MULTILINE)


def test_the_reference_has_the_public_names_and_no_others() -> None:
    documented = {name for name, _ in ENTRY.findall(REFERENCE) if "." not in name}
    assert documented == {name for name in hs.__all__ if name != "__version__"}


def public_members(cls: type) -> set[str]:
    """Methods and properties of ours; fields are in the docstring of the class."""
    fields = {f.name for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    return {
        name
        for base in cls.__mro__
        if base.__module__.startswith("headscope")
        for name in vars(base)
        if not name.startswith("_") and name not in fields
    }


def documented_members() -> dict[str, set[str]]:
    """By the name of a class: the members that its page lists."""
    listed = {}
    for name, options in ENTRY.findall(REFERENCE):
        members = re.search(r"members: \[(.*)\]", options)
        if members:
            listed[name] = set(members[1].split(", "))
    return listed


@pytest.mark.parametrize("name", sorted(documented_members()))
def test_the_reference_has_the_members_and_no_others(name: str) -> None:
    module, _, attribute = f"headscope.{name}".rpartition(".")
    cls = getattr(importlib.import_module(module), attribute)
    listed = documented_members()[name]
    if name.endswith("Metric") and name != "Metric":  # what one writes; the rest is `Metric`'s
        assert listed <= public_members(cls)
    else:
        assert listed == public_members(cls)
    assert all(getattr(cls, member).__doc__ for member in listed if member not in FIELDS)


FIELDS = {"dims", "denominator_dims", "has_layer_ratio"}
"""Members that are values, which have no docstring at run time."""


def test_classes_that_users_meet_list_their_members() -> None:
    met = {"Model", "Trace", "Result", "Corpus", "Document", "Probe"}
    assert met <= set(documented_members())


WORD = re.compile(r"\bhs\.(\w+)")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_name_what_there_is(page: Path) -> None:
    """Every `hs.name` of a page is public; one that is gone would be met by an error."""
    named = set(WORD.findall(page.read_text(encoding="utf-8")))
    assert named <= set(hs.__all__)


def test_notebooks_name_what_there_is() -> None:
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        source = "\n".join("".join(cell["source"]) for cell in cells)
        assert set(WORD.findall(source)) <= set(hs.__all__), notebook.name


def test_the_guide_uses_every_verb() -> None:
    """Every public function and class is somewhere in the guide, the README or the notebooks."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES if "reference" not in page.parts]
    texts += [path.read_text(encoding="utf-8") for path in (ROOT / "notebooks").glob("*.ipynb")]
    text = "\n".join(texts)
    unused = [n for n in hs.__all__ if not re.search(rf"\b{n}\b", text) and n != "__version__"]
    assert not unused


def test_every_metric_is_in_the_table_of_papers() -> None:
    cells = re.findall(r"^\| (`[^|]*) \|", (DOCS / "papers.md").read_text("utf-8"), re.MULTILINE)
    listed = set(re.findall(r"`(\w+)`", " ".join(cells)))
    assert set(METRICS) <= listed


def licenses() -> ModuleType:
    found = importlib.util.spec_from_file_location("licenses", DOCS / "licenses.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_dependency_has_its_license() -> None:
    text = (DOCS / "licenses.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([\w@/.-]+) \| ([^|]+) \|", text, re.MULTILINE))
    package = json.loads((ROOT / "web" / "package.json").read_text(encoding="utf-8"))
    npm = {**package.get("dependencies", {}), **package["devDependencies"]}
    for name in (*licenses().locked(), *npm):
        assert name in rows, f"run: python docs/licenses.py ({name} is missing)"
        assert not rows[name].startswith("("), f"{name}: {rows[name]}"
