"""The tables of the page on probing are what its data files hold."""

from __future__ import annotations

from studies import probing_page


def test_the_tables_are_those_of_the_data_files() -> None:
    page = probing_page.PAGE.read_text(encoding="utf-8")
    assert len(probing_page.MARK.findall(page)) == 3
    assert probing_page.written(page) == page, "run: python -m studies.probing_page"


def test_other_data_would_change_the_page() -> None:
    rows = probing_page.read("relations")
    changed = [{**row, "smollm2_honest": "12.3"} for row in rows]
    found = "\n".join(probing_page.relation_lines(changed))
    assert found.count("| 12.3") == len(probing_page.SHOWN)
    assert found != "\n".join(probing_page.relation_lines(rows))


def test_every_relation_is_drawn() -> None:
    rows = probing_page.read("relations")
    (axes,) = probing_page.draw(rows).axes
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == [f"{row['relation']} ({int(row['words']):,})" for row in rows]
