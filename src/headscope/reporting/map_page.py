"""The map of heads as one small HTML file: hover over a head, or tab to it, and read its evidence.

The page uses no framework and no network; its policy allows this script and nothing else.
Everything is drawn before the script runs: without it the map is a picture.
"""

from __future__ import annotations

import html
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headscope.figures.clark_map import behavior_colors, layer_colors
from headscope.heads.explain import explain_heads
from headscope.page.html import data_script, html_page, write_page

if TYPE_CHECKING:
    from headscope.heads.head_map import HeadMap
    from headscope.results.result import Result

WIDTH, HEIGHT, MARGIN = 760, 560, 28
RADIUS = 6
RADII = 4, 14
"""Of the point without an effect, and of the one with the largest: areas grow with effects."""

STYLE = """
:root { color-scheme: light dark; --ink: #1d1f23; --soft: #666b73; --paper: #fff; --line: #d9dce1; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e9ec; --soft: #a0a5ae; --paper: #16181c; --line: #3a3e46; }
}
body { margin: 0; padding: 16px 20px; background: var(--paper); color: var(--ink);
  font: 13px/1.45 system-ui, sans-serif; }
h1 { margin: 0 0 2px; font-size: 15px; font-weight: 600; }
p { margin: 0 0 10px; color: var(--soft); }
main { display: flex; gap: 20px; flex-wrap: wrap; align-items: flex-start; }
main svg { width: 660px; max-width: 100%; height: auto; border: 1px solid var(--line);
  border-radius: 6px; }
circle { cursor: pointer; stroke: var(--paper); stroke-width: 1; }
circle:hover, circle:focus, circle.near { stroke: var(--ink); stroke-width: 2; outline: none; }
aside { flex: 1 1 480px; min-width: 220px; }
aside pre { max-height: 560px; margin: 8px 0; overflow: auto; white-space: pre-wrap;
  font: 11px/1.5 ui-monospace, monospace; }
ul { list-style: none; margin: 0 0 12px; padding: 0; }
li { display: inline-block; margin-right: 12px; white-space: nowrap; }
button { font: inherit; color: inherit; background: none; border: 1px solid var(--line);
  border-radius: 5px; padding: 3px 9px; cursor: pointer; }
button[aria-pressed="true"] { border-color: var(--ink); font-weight: 600; }
a { color: inherit; }
"""

SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const dots = [...document.querySelectorAll("circle")];
const title = document.getElementById("head"), text = document.getElementById("evidence");
const link = document.getElementById("open");
function show(i) {
  const head = data.heads[i];
  title.textContent = head.name;
  text.textContent = head.text;
  for (const dot of dots) dot.classList.remove("near");
  for (const j of head.near) dots[j].classList.add("near");
  if (link) {
    link.hidden = false;
    link.href = data.explorer + "#head=L" + head.layer + "H" + head.head;
  }
}
dots.forEach((dot, i) => {
  dot.addEventListener("mouseenter", () => show(i));
  dot.addEventListener("focus", () => show(i));
  dot.addEventListener("click", () => dot.focus());
});
for (const button of document.querySelectorAll("button[data-by]")) {
  button.addEventListener("click", () => {
    const by = button.dataset.by;
    dots.forEach((dot, i) => dot.setAttribute("fill", data.heads[i][by]));
    for (const other of document.querySelectorAll("button[data-by]"))
      other.setAttribute("aria-pressed", String(other === button));
    for (const list of document.querySelectorAll("ul[data-by]"))
      list.hidden = list.dataset.by !== by;
  });
}
"""


def map_page(
    heads: HeadMap,
    evidence: Mapping[tuple[int, int], str] | None = None,
    *,
    explorer: str | None = None,
) -> str:
    """The HTML of the map.

    Args:
        heads: the map.
        evidence: what to say about a head, by layer and head: `str(result.explain(…))`.
        explorer: address of an explorer page of the same model; each head then links to itself
            there.
    """
    data = heads.data
    by_behavior, by_layer = behavior_colors(heads), layer_colors(int(data["layer"].max()) + 1)
    places = _places(heads)
    sizes = heads.effect_sizes()
    entries, dots = [], []
    rows = {
        (int(a), int(b)): i
        for i, (a, b) in enumerate(zip(data["layer"].values, data["head"].values, strict=True))
    }
    for (layer, head), i in rows.items():
        behavior = str(data["behavior"].values[i])
        nearest = heads.nearest(layer, head, 3)
        near = ", ".join(f"L{a} H{b} ({js:.3f})" for a, b, js in nearest)
        known = (evidence or {}).get((layer, head), "")
        entry = {
            "layer": layer,
            "head": head,
            "name": f"L{layer} H{head} · {behavior}{_effect(heads, i)}",
            "text": f"{known}\n\nNearest: {near}".strip(),
            "near": [rows[a, b] for a, b, _ in nearest],
            "behavior": by_behavior[behavior],
            "layers": by_layer[layer],
        }
        entries.append(entry)
        x, y = places[i]
        radius = RADIUS if sizes is None else RADII[0] + (RADII[1] - RADII[0]) * sizes[i] ** 0.5
        dots.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{entry["behavior"]}" '
            f'tabindex="0" role="button" aria-label="{html.escape(str(entry["name"]))}"></circle>'
        )
    content = json.dumps({"heads": entries, "explorer": explorer}, ensure_ascii=False)
    link = '<p><a id="open" hidden>Open in the explorer</a></p>' if explorer else ""
    shown = html.escape(heads.title)
    body = f"""<h1>Heads of {shown}</h1>
<p>Heads that attend alike are near one another (Jensen-Shannon divergence; stress
{heads.stress:.2f}). Hover over a head, or tab to it.{_sizes(heads)}</p>
<p><button data-by="behavior" aria-pressed="true">By behavior</button>
<button data-by="layers" aria-pressed="false">By layer</button></p>
{_legend("behavior", by_behavior, hidden=False)}
{_legend("layers", {f"L{i}": color for i, color in enumerate(by_layer)}, hidden=True)}
<main>
<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="group" aria-label="Map of heads">{"".join(dots)}</svg>
<aside><h1 id="head">No head chosen</h1>{link}<pre id="evidence"></pre></aside>
</main>"""
    return html_page(f"Heads of {heads.title}", STYLE, body, SCRIPT, data_script("data", content))


def save_map_page(
    heads: HeadMap,
    path: str | os.PathLike[str],
    results: Sequence[Result] = (),
    *,
    explorer: str | None = None,
) -> None:
    """Write `map_page` to a file, with the cards of all heads as evidence."""
    cards = explain_heads(results, heads=heads) if results else ()
    evidence = {(card.layer, card.head): str(card) for card in cards}
    write_page(path, map_page(heads, evidence, explorer=explorer))


def _places(heads: HeadMap) -> list[tuple[float, float]]:
    """Where each head is drawn, in pixels; both axes have the same scale."""
    x, y = heads.data["x"].values, heads.data["y"].values
    spans = float(x.max() - x.min()) or 1.0, float(y.max() - y.min()) or 1.0
    scale = min((WIDTH - 2 * MARGIN) / spans[0], (HEIGHT - 2 * MARGIN) / spans[1])
    middle = (x.max() + x.min()) / 2, (y.max() + y.min()) / 2
    return [
        (WIDTH / 2 + (a - middle[0]) * scale, HEIGHT / 2 - (b - middle[1]) * scale)
        for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]


def _effect(heads: HeadMap, at: int) -> str:
    """What a head does to the loss, where that was measured."""
    if "effect" not in heads.data:
        return ""
    effect = heads.data["effect"]
    value = float(effect.values[at])
    if value != value:
        return ""
    return f" · effect {value:+.4f} {effect.attrs['units']}".replace("-", "−")


def _sizes(heads: HeadMap) -> str:
    meaning = heads.size_meaning
    return f" {html.escape(meaning[0].upper() + meaning[1:])}." if meaning else ""


def _legend(by: str, colors: Mapping[str, str], *, hidden: bool) -> str:
    entries = "".join(
        f'<li><svg width="10" height="10" viewBox="0 0 10 10"><rect width="10" height="10" rx="5" '
        f'fill="{color}"></rect></svg> {html.escape(name)}</li>'
        for name, color in colors.items()
    )
    return f'<ul data-by="{by}"{" hidden" if hidden else ""}>{entries}</ul>'
