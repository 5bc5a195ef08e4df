"""Equations as trees of MathML: `[tag, child, …]`, text in the leaves.

Metrics write their equations in LaTeX. The page builds elements from the trees; no markup
travels as text.
"""

from __future__ import annotations

from typing import TypeAlias
from xml.etree import ElementTree as ET

from latex2mathml.converter import convert

Tree: TypeAlias = "list[str | Tree]"
UNDER = ("∑", "max")
"""Signs whose index stands under them, even in fractions, where LaTeX sets it beside them."""
OTHERS = {
    "uas": r"p(i \mid j) \propto \exp \sum_{k} w_k a_{ij} + u_k a_{ji}",
    "correlation": r"r = \frac{\sum_{h} (x_h - \bar{x}) (y_h - \bar{y})}{s_x s_y}",
}
"""Equations of numbers that no metric describes."""


def equation_tree(latex: str) -> Tree | None:
    """The tree of an equation; None if the text is empty or is not LaTeX."""
    if not latex:
        return None
    try:
        math = ET.fromstring(convert(latex, display="block"))
    except Exception:  # a result file may hold any text here
        return None
    return ["mrow", *(_tree(child) for child in math)]


def _tree(element: ET.Element) -> Tree:
    tag = element.tag.rpartition("}")[2]
    children: Tree = [_tree(child) for child in element]
    if element.text and not children:
        children = [element.text]
    if tag == "msub" and children[0][1:] in [[sign] for sign in UNDER]:
        tag = "munder"
    return [tag, *children]
