"""Write `web/generated/*.ts` from the TypedDicts that Python's payload and report obey.

The sources are parsed, not imported, so any Python 3.11 runs this script. `--check` compares.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

WEB = Path(__file__).resolve().parent
PACKAGE = WEB.parent / "src/headscope"
SOURCES = {
    "payload": [PACKAGE / "page/payload_types.py"],
    "report": [PACKAGE / "figures/chart_types.py", PACKAGE / "reporting/report_types.py"],
}
PLAIN = {"str": "string", "int": "number", "float": "number", "bool": "boolean", "None": "null"}


def typescript(node: ast.expr) -> str:
    """Return the TypeScript type of a Python annotation."""
    match node:
        case ast.Constant(value=None):
            return "null"
        case ast.Constant(value=str() as quoted):
            return typescript(ast.parse(quoted, mode="eval").body)
        case ast.Name(id=name):
            return PLAIN.get(name, name)
        case ast.BinOp(left=left, right=right):
            sides = [*typescript(left).split(" | "), *typescript(right).split(" | ")]
            return " | ".join(dict.fromkeys(sides))
        case ast.Subscript(value=ast.Name(id="Literal"), slice=values):
            listed = values.elts if isinstance(values, ast.Tuple) else [values]
            return " | ".join(f'"{ast.literal_eval(value)}"' for value in listed)
        case ast.Subscript(value=ast.Name(id="NotRequired"), slice=inner):
            return typescript(inner)
        case ast.Subscript(value=ast.Name(id="list"), slice=inner):
            item = typescript(inner)
            return f"({item})[]" if " | " in item else f"{item}[]"
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, inner])):
            return f"Record<string, {typescript(inner)}>"
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=items)):
            return f"[{', '.join(map(typescript, items))}]"
    raise SystemExit(f"No TypeScript for {ast.unparse(node)!r}: teach {Path(__file__).name}.")


def comment(text: str, indent: str = "") -> str:
    """Return a doc comment on one line."""
    return f"{indent}/** {' '.join(text.split())} */\n"


def interface(node: ast.ClassDef) -> str:
    """Return the interface of a TypedDict."""
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    extends = "".join(f" extends {base}" for base in bases if base != "TypedDict")
    lines = [comment(ast.get_docstring(node) or node.name)]
    lines.append(f"export interface {node.name}{extends} {{\n")
    for field, after in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            lines.append(comment(str(after.value.value), "  "))
        optional = "?" if ast.unparse(field.annotation).startswith("NotRequired") else ""
        lines.append(f"  {field.target.id}{optional}: {typescript(field.annotation)};\n")
    return "".join([*lines, "}\n"])


def generate(sources: list[Path]) -> str:
    """Return the TypeScript of one file."""
    names = " and ".join(str(source.relative_to(WEB.parent)) for source in sources)
    parts = [f"// Generated from {names} by generate_types.py.\n"]
    nodes = [node for source in sources for node in ast.parse(source.read_text("utf-8")).body]
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            parts.append(interface(node))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            parts.append(f"export type {node.targets[0].id} = {typescript(node.value)};\n")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            parts.append(f"export type {node.target.id} = {typescript(node.value)};\n")
    return "\n".join(parts)


def main() -> None:
    """Write or compare all files."""
    folder = WEB / "generated"
    folder.mkdir(exist_ok=True)
    stale = []
    for name, sources in SOURCES.items():
        file, text = folder / f"{name}.ts", generate(sources)
        if "--check" not in sys.argv:
            file.write_text(text, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != text:
            stale.append(str(file.relative_to(WEB.parent)))
    if stale:
        raise SystemExit(f"{', '.join(stale)} differ from Python's types: run 'make web'.")


if __name__ == "__main__":
    main()
