"""Equations as trees of MathML: `[tag, child, …]`, text in the leaves.

The page builds elements from them; no markup travels as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["EQUATIONS", "Tree"]

Tree = list[Any]


def _i(name: str) -> Tree:
    return ["mi", name]


def _o(sign: str) -> Tree:
    return ["mo", sign]


def _n(number: str) -> Tree:
    return ["mn", number]


def _word(text: str) -> Tree:
    return ["mtext", text]


def _row(*parts: Tree) -> Tree:
    return ["mrow", *parts]


def _fraction(above: Tree, below: Tree) -> Tree:
    return ["mfrac", above, below]


def _sum(under: Sequence[Tree], *body: Tree) -> Tree:
    return _row(["munder", _o("∑"), _row(*under)], *body)


def _sub(base: Tree, *index: Tree) -> Tree:
    return ["msub", base, _row(*index)]


def _abs(*body: Tree) -> Tree:
    return _row(_o("|"), *body, _o("|"))


def _call(name: str, *body: Tree) -> Tree:
    return _row(_word(name), _o("("), *body, _o(")"))


def _is(*condition: Tree) -> Tree:
    """The indicator of a condition."""
    return _row(_n("𝟙"), _o("["), *condition, _o("]"))


Q, J = _i("i"), _i("j")
PAIR = (Q, _o(","), J)
A = _sub(_i("a"), Q, J)
DOT = _o("·")
ALL = _sum(PAIR, A)
P = _sub(_i("p"), Q, J)
TOKEN = _word("token")


def _share(*condition: Tree) -> Tree:
    return _fraction(_sum(PAIR, A, DOT, _is(*condition)), ALL)


def _minus_p_ln_p(rows: Sequence[Tree]) -> Tree:
    return _row(
        _o("−"),
        _fraction(_n("1"), _i("n")),
        _sum(rows, ["munder", _o("∑"), J], P, _i("ln"), P),
    )


EQUATIONS: dict[str, Tree] = {
    "null_share": _fraction(_sum((Q,), _sum((J, _o("∈"), _word("null")), A)), ALL),
    "pos_to": _share(_call("tag", J), _o("="), _i("t")),
    "pos_from": _share(_call("tag", Q), _o("="), _i("t")),
    "dep_type_to": _share(_call("relation", J), _o("="), _i("r")),
    "dep_alignment": _fraction(_sum(PAIR, A, DOT, _call("dep", *PAIR)), ALL),
    "variability": _fraction(
        _sum(PAIR, _abs(A, _o("−"), _sub(["mover", _i("a"), _o("¯")], Q, J))),
        _row(_n("2"), ALL),
    ),
    "distance": _fraction(_sum(PAIR, A, DOT, _abs(Q, _o("−"), J)), ALL),
    "entropy": _minus_p_ln_p((Q,)),
    "row_entropy": _minus_p_ln_p((Q,)),
    "first_entropy": _row(
        _o("−"), ["munder", _o("∑"), J], _sub(_i("p"), _n("0"), J), _i("ln"),
        _sub(_i("p"), _n("0"), J),
    ),
    "offset_share": _fraction(
        _sum((Q,), _sub(_i("a"), Q, _o(","), Q, _o("+"), _i("o"))), ALL
    ),
    "class_share": _share(J, _o("∈"), _word("class")),
    "sep_from_sep": _fraction(
        _sum((*PAIR, _o("∈"), _word("sep")), A), _sum((Q, _o("∈"), _word("sep"), _o(","), J), A)
    ),
    "sep_from_other": _fraction(
        _sum((Q, _o("∉"), _word("sep"), _o(","), J, _o("∈"), _word("sep")), A),
        _sum((Q, _o("∉"), _word("sep"), _o(","), J), A),
    ),
    "sink_rate": _row(
        _word("share of documents with\u00a0"),
        _fraction(_n("1"), _i("n")),
        _sum((Q,), _sub(_i("a"), Q, _o(","), _n("0"))),
        _o(">"),
        _n("0.3"),
    ),
    "duplicate_token": _share(J, _o("<"), Q, _o(","), _call("token", J), _o("="),
                              _call("token", Q)),
    "induction": _fraction(
        _sum(
            PAIR,
            _sub(_i("a"), Q, _o(","), J, _o("+"), _n("1")),
            DOT,
            _is(_call("token", J), _o("="), _call("token", Q)),
        ),
        ALL,
    ),
    "js": _row(
        _call("JS", _i("a"), _o(","), _i("b")), _o("="),
        _i("H"), _o("("), _fraction(_row(_i("a"), _o("+"), _i("b")), _n("2")), _o(")"),
        _o("−"),
        _fraction(_row(_call("H", _i("a")), _o("+"), _call("H", _i("b"))), _n("2")),
    ),
    "importance": _fraction(
        _sum((Q, _o(","), J, _o("∈"), _word("class")),
             _abs(_fraction(_row(_o("∂"), _i("L")), _row(_o("∂"), A)))),
        _call("pairs", J, _o("∈"), _word("class")),
    ),
    "removal_estimate": _row(
        _o("−"),
        _sum((Q, _o(","), J, _o("∈"), _word("class")), A, DOT,
             _fraction(_row(_o("∂"), _i("L")), _row(_o("∂"), A))),
    ),
    "accuracy": _row(
        ["munder", _word("arg max\u2009"), _row(J, _o("≠"), Q)], A, _o("="), _call("head", Q)
    ),
    "coref_accuracy": _row(
        ["munder", _word("arg max\u2009"), _row(J, _o("≠"), Q)], A, _o("∈"), _call("antecedents", Q)
    ),
    "uas": _row(
        _i("p"), _o("("), Q, _o("|"), J, _o(")"), _o("∝"), _i("exp"),
        _sum((_i("k"),), _sub(_i("w"), _i("k")), _sub(_i("a"), Q, J), _o("+"),
             _sub(_i("u"), _i("k")), _sub(_i("a"), J, Q)),
    ),
    "correlation": _row(
        _i("r"), _o("="),
        _fraction(
            _sum((_i("h"),), _o("("), _sub(_i("x"), _i("h")), _o("−"),
                 ["mover", _i("x"), _o("¯")], _o(")"), _o("("), _sub(_i("y"), _i("h")),
                 _o("−"), ["mover", _i("y"), _o("¯")], _o(")")),
            _row(_sub(_i("s"), _i("x")), _sub(_i("s"), _i("y"))),
        ),
    ),
}  # fmt: skip
"""By variable. a is the attention of query i to key j in one head, after the softmax."""
