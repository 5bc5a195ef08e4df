"""The table of roles in docs/heads.md is what its data file holds, and meets the target."""

from __future__ import annotations

from studies import roles


def test_the_table_is_that_of_the_file() -> None:
    page = roles.PAGE.read_text(encoding="utf-8")
    assert len(roles.MARK.findall(page)) == 1
    assert roles.written(page) == page, "run: python -m studies.roles --page"
    changed = [{**row, "accidents": "7"} for row in roles.read()]
    assert "\n".join(roles.lines(changed)) not in page


def test_accidents_on_lists_are_rare() -> None:
    on_lists = [row for row in roles.read() if "lists" in row["kind"] and row["tested"] == "yes"]
    assert {row["kind"] for row in on_lists} == {"lists", "more lists", "lists, held out"}
    assert {row["role"] for row in on_lists} == set(roles.TESTS)
    for role in roles.TESTS:
        rows = [row for row in on_lists if row["role"] == role]
        named, accidents = (sum(int(row[key]) for row in rows) for key in ("named", "accidents"))
        assert named
        # Some heads attend to equal words of lists, and not to equal random tokens: docs/heads.md.
        assert accidents <= (0.10 if role == "duplicate_token" else 0.02) * named


def test_texts_are_of_the_stated_size() -> None:
    sizes = {kind: len(texts) for kind, texts in roles.TEXTS.items()}
    assert [sizes.pop(kind) for kind in ("more lists", "lists, held out")] == [26, 10]
    assert {*sizes.values()} == {8}
    assert len({text for texts in roles.TEXTS.values() for text in texts}) == 68
