"""HTML files that stand alone: one script, named by its hash; nothing else runs or loads."""

from __future__ import annotations

import base64
import hashlib
import html
import os
from dataclasses import dataclass

from headscope.atomic import atomic_path


@dataclass(frozen=True)
class Preview:
    """What a link to a page shows where links are unfolded: a sentence and a PNG picture."""

    sentence: str
    picture: bytes

    def tags(self, title: str) -> str:
        """The elements of the head."""
        picture = f"data:image/png;base64,{base64.b64encode(self.picture).decode('ascii')}"
        named = {
            "og:type": "website",
            "og:title": title,
            "og:description": self.sentence,
            "og:image": picture,
        }
        return "\n".join(
            f'<meta property="{name}" content="{html.escape(content)}">'
            for name, content in named.items()
        )


def html_page(
    title: str,
    style: str,
    body: str,
    script: str,
    data: str,
    *,
    connect: str = "",
    preview: Preview | None = None,
) -> str:
    """A page with a policy that allows this style and this script, and no network.

    Args:
        title: plain text.
        style: CSS.
        body: markup, with everything that is not ours escaped.
        script: a module, which runs when all is read. It stands before the data, so that it
            can say when a file was cut.
        data: elements that hold what is shown; see `data_script`.
        connect: the addresses that the script may ask, in the policy's words: `'self'`.
        preview: what links to the page show.
    """
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data: blob:",
            *([f"connect-src {connect}"] if connect else []),
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    tags = "" if preview is None else f"\n{preview.tags(title)}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="headscope">
<title>{html.escape(title)}</title>{tags}
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
{body}
<script type="module">{script}</script>
{data}
</body>
</html>
"""


def data_script(name: str, text: str) -> str:
    """JSON in an element of its own; nothing in it can end the element or begin a comment."""
    inert = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f'<script type="application/json" id="{name}">{inert}</script>'


def write_page(path: str | os.PathLike[str], page: str) -> None:
    """Write a page; the file appears when it is complete. Lone surrogates become "?"."""
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8", errors="replace", newline="\n")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
