"""The demo corpus: a small treebank written for headscope.

Eleven short texts of encyclopedic prose and dialogue, annotated by hand with universal tags
and relations (UD v2), Penn tags, lemmas, features and coreference. It is there to try things
on, and too small to conclude anything from.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from headscope.text.corpus import Corpus
from headscope.text.document import Unit
from headscope.text.readers.read import FILE_UNIT, read


def demo_corpus(unit: Unit = FILE_UNIT) -> Corpus:
    """The bundled corpus, by sentence as any file unless another unit is asked for.

    >>> len(demo_corpus()), len(demo_corpus("document"))
    (88, 11)
    """
    return read(Path(str(resources.files("headscope.text") / "demo.conllu")), unit=unit)
