"""What a reader does with the report."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import headscope as hs
from headscope.results.result import Result
from tests.reporting.made_up import by_layer, result

if TYPE_CHECKING:
    from tests.browser.conftest import Opened

pytestmark = pytest.mark.xdist_group("report")  # the results are made once

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
HOSTILE = "<img src=x onerror=document.title='taken'>"


@pytest.fixture(scope="module")
def file(
    encoder_results: list[Result],
    decoder_result: Result,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A report with every kind of figure."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    pages = {encoder_results[0].model: "explorer.html"}
    return hs.report([*encoder_results, decoder_result], path, pages=pages)


@pytest.fixture
def opened(open_page: Callable[..., Opened], file: Path) -> Opened:
    return open_page(file=file)


def cell(opened: Opened, subject: int, layer: int, head: int) -> Any:
    name = f"[data-head='{subject}.{layer}.{head}']"
    return opened.page.locator(f"#figure-heads {name}")


def saved(opened: Opened, figure: str, kind: str) -> str:
    """What a click on a figure's button saves."""
    button = opened.page.locator(f"#figure-{figure} .downloads button", has_text=kind)
    with opened.page.expect_download() as waiting:
        button.click()
    assert waiting.value.suggested_filename == f"{figure}.{kind.lower()}"
    return Path(waiting.value.path()).read_text("utf-8")


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_section_is_there(opened: Opened) -> None:
    headings = opened.page.locator("h2").all_inner_texts()
    assert headings[0] == "Findings"
    assert headings[-1] == "Provenance"
    assert "Heads that attend alike" in headings
    assert opened.page.locator("figure").count() >= 12
    assert opened.page.locator("math").count() >= 8
    assert opened.page.locator("figure svg").count() >= 10


def test_the_first_figure_stands_on_the_first_screen(opened: Opened) -> None:
    box = opened.page.locator("#figure-heads .drawing").bounding_box()
    assert box is not None
    assert box["y"] < 160
    assert box["y"] + box["height"] < 900
    assert opened.page.locator(".finding li").first.bounding_box()["y"] < 250


def test_findings_are_short_and_tell_their_numbers_on_hover_and_focus(opened: Opened) -> None:
    sentence = opened.page.locator(".finding li:has(.interval)").first
    hidden = sentence.locator(".interval, .aside").evaluate_all(
        "spans => spans.every(span => span.getBoundingClientRect().width <= 1)"
    )
    assert hidden
    interval = sentence.locator(".interval").first.text_content().strip()
    sentence.hover()
    assert interval in opened.tooltip
    opened.page.mouse.move(5, 5)
    assert opened.page.locator(".tooltip").is_hidden()
    sentence.focus()
    assert interval in opened.tooltip
    sentence.evaluate("item => item.blur()")
    opened.page.emulate_media(media="print")
    assert sentence.locator(".interval").first.bounding_box()["width"] > 10


def test_hover_shows_the_value_and_its_interval(
    opened: Opened,
    encoder_results: list[Result],
) -> None:
    cell(opened, 0, 1, 2).hover()
    of = encoder_results[0]
    value = float(of["null_share"].sel(layer=1, head=2))
    low, high = of["null_share_interval"].sel(layer=1, head=2).values
    assert "L1 H2" in opened.tooltip
    expected = f"{100 * value:.1f}\u00a0% [{100 * low:.1f}–{100 * high:.1f}]"
    assert expected in opened.tooltip
    opened.page.mouse.move(5, 5)
    assert opened.page.locator(".tooltip").is_hidden()


def test_another_variable(
    opened: Opened,
    encoder_results: list[Result],
) -> None:
    opened.page.get_by_label("Show").select_option("pos_to:NOUN")
    cell(opened, 0, 0, 1).hover()
    value = float(encoder_results[0]["pos_to"].sel(tag="NOUN", layer=0, head=1))
    assert f"{100 * value:.1f}\u00a0%" in opened.tooltip
    assert "NOUN" in opened.tooltip
    assert "Eq. 3" in opened.page.locator("#figure-heads .paper").inner_text()


def test_click_opens_the_card(opened: Opened) -> None:
    card = opened.page.locator("aside.card")
    assert card.is_hidden()
    cell(opened, 0, 1, 0).click()
    assert card.is_visible()
    assert card.locator("h2").inner_text() == "L1 H0"
    assert "Mean distance" in card.inner_text()
    assert card.locator("svg[role=img]").count() == 3
    assert card.locator("svg[role=img] path").count() >= 3, "the head at work"
    link = card.get_by_text("Open in the explorer")
    assert link.get_attribute("href") == "explorer.html#head=L1H0"
    assert opened.page.evaluate("location.hash") == "#L1H0"
    neighbor = card.locator("a.head").first
    name = neighbor.inner_text().replace("\u00a0", " ")
    neighbor.click()
    assert card.locator("h2").inner_text() == name
    opened.page.keyboard.press("Escape")
    assert card.is_hidden()
    assert opened.page.evaluate("location.hash") == ""


def test_a_neighbor_without_a_distance(
    open_page: Callable[..., Opened], file: Path, tmp_path: Path
) -> None:
    def without(found: re.Match[str]) -> str:
        report = json.loads(gzip.decompress(base64.b64decode(found[2])))
        for card in report["cards"][0]:
            card["nearest"] = [[0, 1, None]]
        packed = base64.b64encode(gzip.compress(json.dumps(report).encode())).decode()
        return f"{found[1]}{packed}{found[3]}"

    text = re.sub(r"(data-buffer=\"0\">)(.*?)(</script>)", without, file.read_text("utf-8"))
    changed = tmp_path / "changed.html"
    changed.write_text(text, "utf-8")
    opened = open_page(file=changed, fragment="L1H0")
    assert "L0\u00a0H1 –" in opened.page.locator("aside.card").inner_text()


def test_the_head_of_the_card_stays_marked(opened: Opened) -> None:
    cell(opened, 0, 1, 0).click()
    opened.page.get_by_label("Show").select_option("distance")
    marked = "[...document.querySelectorAll('.chosen')].map(e => e.getAttribute('data-head'))"
    found = opened.page.evaluate(marked)
    assert len(found) == 3  # the heat map, the finder and the map
    assert {*found} == {"0.1.0"}


def test_a_model_without_a_page_has_no_link(opened: Opened) -> None:
    cell(opened, 1, 0, 0).click()
    assert opened.page.locator("aside.card").get_by_text("Open in the explorer").count() == 0


def test_keyboard(opened: Opened) -> None:
    cell(opened, 0, 0, 0).focus()
    opened.page.keyboard.press("ArrowRight")
    opened.page.keyboard.press("ArrowDown")
    focused = "document.activeElement.getAttribute('data-head')"
    assert opened.page.evaluate(focused) == "0.1.1"
    assert "L1 H1" in opened.tooltip
    opened.page.keyboard.press("Enter")
    assert opened.page.locator("aside.card h2").inner_text() == "L1 H1"
    opened.page.keyboard.press("Escape")
    assert opened.page.evaluate(focused) == "0.1.1"


def test_an_address_opens_a_card(
    open_page: Callable[..., Opened], file: Path, encoder_results: list[Result]
) -> None:
    opened = open_page(file=file, fragment="L1H3")
    assert opened.page.locator("aside.card h2").inner_text() == "L1 H3"
    by_name = open_page(file=file, fragment=f"{encoder_results[0].model}/L1H3")
    assert by_name.page.locator("aside.card h2").inner_text() == "L1 H3"
    wrong = open_page(file=file, fragment="9.L9H9")
    assert wrong.page.locator("aside.card").is_hidden()


def test_heads_in_the_text_open_their_cards(opened: Opened) -> None:
    link = opened.page.locator("#figure-relations a.head").first
    link.click()
    name = link.inner_text().replace("\u00a0", " ")
    assert opened.page.locator("aside.card h2").inner_text() == name


def test_csv_is_the_data(
    opened: Opened,
    encoder_results: list[Result],
    decoder_result: Result,
) -> None:
    rows = rows_of(saved(opened, "heads", "CSV"))
    of = {encoder_results[0].model: encoder_results[0], decoder_result.model: decoder_result}
    assert len(rows) == sum(int(r["null_share"].size) for r in of.values())
    for row in rows:
        at = {"layer": int(row["layer"]), "head": int(row["head"])}
        data = of[row["model"]].dataset
        assert float(row["null_share"]) == pytest.approx(float(data["null_share"].sel(at)), 1e-5)
        low = float(data["null_share_interval"].sel(bound="low", **at))
        assert float(row["low"]) == pytest.approx(low, 1e-5, 1e-12)
    lines = rows_of(saved(opened, "layers", "CSV"))
    first = [row for row in lines if row["variable"] == "Mean distance"]
    values = [float(row["value"]) for row in first if row["model"] == encoder_results[0].model]
    np.testing.assert_allclose(values, encoder_results[0]["distance_by_layer"], rtol=1e-5)
    assert rows_of(saved(opened, "relations", "CSV"))[0]["Relation"] == "all"


@pytest.mark.parametrize("figure", ["heads", "layers", "pos_to", "map", "exemplars", "groups"])
def test_svg_is_a_picture_of_its_own(opened: Opened, figure: str) -> None:
    text = saved(opened, figure, "SVG")
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(list(root.iter())) > 15
    assert "var(" not in text
    assert "tabindex" not in text


def test_every_figure_can_be_saved(opened: Opened) -> None:
    figures = opened.page.locator("figure").all()
    for figure in figures:
        buttons = figure.locator(".downloads button").all_text_contents()
        is_table = figure.locator("table").count() > 0
        assert buttons == (["CSV"] if is_table else ["SVG", "CSV"])


def background(opened: Opened) -> str:
    script = "getComputedStyle(document.body).backgroundColor"
    return str(opened.page.evaluate(script))


def test_light_dark_and_paper(open_page: Callable[..., Opened], file: Path) -> None:
    light, dark = (open_page(file=file, scheme=scheme) for scheme in ("light", "dark"))
    assert background(light) == "rgb(251, 250, 247)"
    assert background(dark) == "rgb(20, 23, 27)"
    fill = "getComputedStyle(document.querySelector('.cell')).fill"
    assert dark.page.evaluate(fill) != light.page.evaluate(fill)
    dark.page.locator("button", has_text="Light").click()
    assert background(dark) == background(light)
    dark.page.locator("button", has_text="Dark").click()
    dark.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert dark.page.evaluate(fill) == light.page.evaluate(fill)
    dark.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert background(dark) == "rgb(20, 23, 27)"


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_fits_any_width(open_page: Callable[..., Opened], file: Path, width: int) -> None:
    opened = open_page(file=file, size=(width, 800))
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    wide = "[...document.querySelectorAll('.drawing > svg')].map(s => s.clientWidth)"
    assert max(opened.page.evaluate(wide)) <= width


def test_a_window_that_changes_is_drawn_again(opened: Opened) -> None:
    opened.page.set_viewport_size({"width": 420, "height": 800})
    script = "document.querySelector('#figure-heads svg').getAttribute('width') < 420"
    opened.page.wait_for_function(script)


def test_hostile_names_are_text(open_page: Callable[..., Opened], tmp_path: Path) -> None:
    hostile = result({"distance": by_layer(1, 2, 3, 4, 5, 6)}, model=HOSTILE, corpus=HOSTILE)
    opened = open_page(file=hs.report(hostile, tmp_path / "report.html"))
    assert opened.page.locator("img").count() == 0
    assert HOSTILE.replace("-", "\u2011") in opened.page.locator("h1").inner_text()
    cell(opened, 0, 0, 0).click()
    assert HOSTILE in opened.page.locator("aside.card").inner_text()
    assert opened.page.locator("img").count() == 0
    assert opened.page.title() != "taken"


def test_a_file_that_was_cut_off_says_so(open_page: Callable[..., Opened], tmp_path: Path) -> None:
    path = hs.report(result({"distance": 1.0}), tmp_path / "report.html")
    page = path.read_text("utf-8")
    start = page.index('data-buffer="0">') + 40
    path.write_text(page[:start] + page[start + 200 :], "utf-8")
    opened = open_page(file=path)
    assert "headscope cannot show this report" in opened.page.locator("[role=alert]").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe(open_page: Callable[..., Opened], file: Path, scheme: str) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed (npm ci in web/)")
    opened = open_page(file=file, scheme=scheme, fragment="L0H0")
    opened.page.evaluate(AXE.read_text("utf-8"))
    violations = opened.page.evaluate("axe.run().then((result) => result.violations)")
    found = [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in violations
        for node in violation["nodes"][:2]
    ]
    assert found == []


def test_the_finder_lists_what_is_brushed_and_opens_its_card(opened: Opened) -> None:
    page = opened.page
    figure = page.locator("#figure-finder")
    figure.get_by_label("Across").select_option("entropy")
    figure.get_by_label("Up").select_option("null_share")
    figure.scroll_into_view_if_needed()
    n_points = figure.locator("circle[data-head^='0.']").count()
    assert n_points == 2 * 4
    ground = figure.locator("rect.ground").first
    box = ground.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 1, box["y"] + 1)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + box["height"] - 1, steps=4)
    page.mouse.up()
    listed = figure.locator(".brushed button")
    assert figure.locator(".brushed strong").inner_text().startswith(f"{n_points} heads")
    first = listed.first.inner_text()
    listed.first.click()
    name = page.locator("aside.card h2, aside.card h3").first.inner_text()
    assert first.startswith(name.replace("\u00a0", " ")[:5])
    rows = list(csv.reader(io.StringIO(saved(opened, "finder", "CSV"))))
    assert rows[0][:4] == ["model", "layer", "head", "role"]
    figure.get_by_role("button", name="Distance and entropy").click()
    assert figure.get_by_label("Across").input_value() == "distance"


@pytest.mark.parametrize("size", [(1440, 900), (1024, 768), (720, 450)])
def test_an_open_card_leaves_the_bar_and_its_own_names_readable(
    open_page: Callable[..., Opened], file: Path, size: tuple[int, int]
) -> None:
    page = open_page(file=file, fragment="L0H0", size=size).page
    card = page.locator(".card").bounding_box()
    for part in (".top nav", ".top .segments"):
        box = page.locator(part).bounding_box()
        assert box["x"] + box["width"] <= card["x"]
    names = page.locator(".card table th").evaluate_all("all => all.map((th) => th.clientHeight)")
    assert max(names) <= 80  # at most four lines
