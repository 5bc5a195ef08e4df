"""Seals of strangers: the content fits its hash, and nothing else is known of it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from headscope.atomic import MARK, SEAL_SIZE


def unsealed(content: bytes) -> bytes:
    """The content without its seal, if it has one."""
    return content[:-SEAL_SIZE] if content[-SEAL_SIZE:].startswith(MARK) else content


def sealed_by_a_stranger(content: bytes) -> bytes:
    """The content with a seal that another user made."""
    content = unsealed(content)
    return content + MARK + hashlib.sha256(content).digest() + os.urandom(32)


def seal_as_stranger(path: Path) -> None:
    """Give a file a seal that another user made."""
    path.write_bytes(sealed_by_a_stranger(path.read_bytes()))
