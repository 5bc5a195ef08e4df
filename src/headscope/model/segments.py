"""A corpus in the segments that BERT was trained on, for any model.

Lengths are in tokens, so segments belong to a tokenizer: this is where text meets model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from transformers import PreTrainedTokenizerBase

from headscope.arguments import whole_number
from headscope.model.encode import joins_pairs
from headscope.model.load import as_model
from headscope.model.model import Model
from headscope.text.corpus import Corpus
from headscope.text.document import Document, Span, Unit
from headscope.text.readers.lines import Report
from headscope.text.readers.read import Readable, as_corpus
from headscope.text.segment import segments


def offsets_by(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], Sequence[Span]]:
    """A function from a text to the characters of its tokens, special ones left out."""

    def offsets(text: str) -> Sequence[Span]:
        encoding = tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        spans: Sequence[Span] = encoding["offset_mapping"]
        return spans

    return offsets


@dataclass(frozen=True)
class _Segments:
    """The segments of a corpus's documents, as a source of documents."""

    corpus: Corpus
    tokenizer: PreTrainedTokenizerBase = field(repr=False, compare=False)
    max_tokens: int

    @property
    def name(self) -> str:
        return f"{self.corpus.name}, segments of {self.max_tokens} tokens"

    def documents(self, unit: Unit, report: Report) -> Iterator[Document]:
        """A document for each segment, whatever the unit."""
        added = self.tokenizer.num_special_tokens_to_add
        special = int(added(pair=joins_pairs(self.tokenizer)))
        for segment in segments(
            self.corpus.read(report), offsets_by(self.tokenizer), self.max_tokens, special=special
        ):
            yield segment.joined()


def cut_segments(model: Model | str, corpus: Corpus | Readable, max_tokens: int = 128) -> Corpus:
    """The corpus as segments in the form of BERT's pre-training (Clark et al. 2019, section 3).

    `[CLS] first span [SEP] second span [SEP]`, token types 0 and 1, two consecutive spans of
    one document. For tokenizers that keep no pairs apart (most causal models) a segment is
    the same text without anything between: at most `max_tokens` tokens either way.

    Args:
        model: whose tokenizer counts, or what `headscope.load` takes.
        corpus: whole documents (or paragraphs), or what `headscope.read` takes: files are read
            as whole documents.
        max_tokens: of a segment, special tokens included.
    """
    whole_number("max_tokens", max_tokens)
    corpus = as_corpus(corpus, "document")
    tokenizer = as_model(model).need_tokenizer()
    source = _Segments(corpus, tokenizer, max_tokens)
    return Corpus(source, on_error=corpus.on_error, given_as="segment")
