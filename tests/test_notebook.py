"""Tables of facts for notebooks."""

from __future__ import annotations

from headscope.notebook import facts_table


def test_a_table_names_and_escapes_what_it_shows() -> None:
    html = facts_table(
        "<b>corpus & co</b>",
        [("documents", 12345), ("file", "<script>alert('x')</script>"), ("<i>", 'a "b"')],
    )
    assert "<strong>&lt;b&gt;corpus &amp; co&lt;/b&gt;</strong>" in html
    assert "12,345" in html
    assert "<script" not in html
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in html
    assert "&lt;i&gt;</th>" in html
    assert "a &quot;b&quot;" in html
    assert html.count("<tr>") == 3


def test_what_is_unknown_has_no_row() -> None:
    html = facts_table("corpus", [("a", None), ("b", ""), ("c", 0), ("d", False)])
    assert html.count("<tr>") == 2
    assert ">0<" in html
    assert ">False<" in html
