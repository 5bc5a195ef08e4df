"""The tables of docs/heads.md are what their data files hold; that of roles meets the target."""

from __future__ import annotations

from studies import removal, roles

COUNTS = ("named", "accidents")


def test_the_table_is_that_of_the_file() -> None:
    page = roles.PAGE.read_text(encoding="utf-8")
    assert len(roles.MARK.findall(page)) == 1
    assert roles.written(page) == page, "run: python -m studies.roles --page"
    changed = [{**row, "accidents": "7"} for row in roles.read()]
    assert "\n".join(roles.lines(changed)) not in page


def test_accidents_on_lists_are_rare() -> None:
    on_lists = [row for row in roles.read() if "lists" in row["kind"] and row["tested"] == "yes"]
    held_out = [row for row in on_lists if row["kind"].endswith("held out")]
    assert {row["kind"] for row in held_out} == {"lists, held out", "new lists, held out"}
    assert {row["role"] for row in held_out} == set(roles.TESTS)
    for role in roles.TESTS:
        # Duplicate-token heads: 4 of 177, one head in texts with three different words repeated.
        for rows, limit in ((held_out, 0.02), (on_lists, 0.025)):
            chosen = [row for row in rows if row["role"] == role]
            named, accidents = (sum(int(row[key]) for row in chosen) for key in COUNTS)
            assert named
            assert accidents <= limit * named


def test_texts_are_of_the_stated_size() -> None:
    sizes = {kind: len(texts) for kind, texts in roles.TEXTS.items()}
    lists = ("more lists", "lists, held out", "new lists, held out")
    assert [sizes.pop(kind) for kind in lists] == [26, 10, 20]
    assert {*sizes.values()} == {8}
    assert len({text for texts in roles.TEXTS.values() for text in texts}) == 88


def test_the_table_of_removal_is_written_from_its_file() -> None:
    page = removal.PAGE.read_text(encoding="utf-8")
    assert len(removal.MARK.findall(page)) == 1
    assert removal.written(page) == page, "run: python -m studies.removal"
    by_level = {(row["keys"], row["removed"]): float(row["r"]) for row in removal.read()}
    assert all(r > 0.995 for (_, removed), r in by_level.items() if removed == "0.05")
    changed = [{**row, "right_sign": "7"} for row in removal.read()]
    assert "\n".join(removal.lines(changed)) not in page
