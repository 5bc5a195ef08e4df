"""The README as the package index shows it: pictures and links by their address.

In the repository they are relative, so that a clone and a fork show their own.
"""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)]+)\)")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")


def with_addresses(text: str, repository: str, tag: str) -> str:
    """The text with every relative picture and link at that tag of the repository."""
    text = PICTURE.sub(rf"![\1]({repository}/raw/{tag}/\2)", text)
    return LINK.sub(rf"[\1]({repository}/blob/{tag}/\2)", text)


class ReadmeHook(MetadataHookInterface):
    """Called by hatchling when it builds."""

    def update(self, metadata: dict[str, object]) -> None:
        """Set the readme."""
        urls = metadata["urls"]
        assert isinstance(urls, dict)
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        shown = with_addresses(text, str(urls["Source"]), f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": shown}
