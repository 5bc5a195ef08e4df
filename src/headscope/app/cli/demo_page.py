"""The page that the demo ends on: each model's story in a frame, the report one click away."""

from __future__ import annotations

import html
from collections.abc import Mapping

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --line: #e4e1d8; --quiet: #56606b;
  --link: #0b6bb0; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #1b1f24; --line: #2c3238; --quiet: #a3abb6; --link: #5db2f2; }
}
* { box-sizing: border-box; }
html, body { height: 100%; margin: 0; }
body { display: flex; flex-direction: column; font: 13px/1.4 Inter, Helvetica, Arial, sans-serif;
  background: var(--ground); }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; align-items: baseline;
  padding: .45rem 1rem; border-bottom: 1px solid var(--line); }
nav b { margin-right: auto; color: var(--quiet); font-weight: normal; }
a { color: var(--link); }
@media (max-width: 900px) {
  nav { padding: .4rem .8rem; }
  nav b { display: none; }
}
iframe { flex: 1; width: 100%; min-height: 0; border: 0; }
"""


def make_demo_page(stories: Mapping[str, str], report: str) -> str:
    """HTML with the first story open. Links change the frame; no script runs in the page itself.

    Args:
        stories: pages beside this one, and what a link to each says.
        report: the file of the report.
    """
    listed = [(html.escape(page), html.escape(title)) for page, title in stories.items()]
    links = "\n".join(f'<a href="{page}" target="story">{title}</a>' for page, title in listed)
    first, title = listed[0]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>headscope: what attention heads do</title>
<style>{STYLE}</style>
</head>
<body>
<nav aria-label="Pages">
<b>What each head reads, whether it always does, and whether it matters</b>
{links}
<a href="{html.escape(report)}">The report</a>
</nav>
<iframe name="story" title="{title}" src="{first}"></iframe>
</body>
</html>
"""
