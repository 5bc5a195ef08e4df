"""The tokens of one sequence, as people read them, and where in the text they stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral

from headscope.errors import InputError
from headscope.text.align import NO_WORD, align_tokens
from headscope.text.pieces import Piece, joined_piece
from headscope.text.words import split_words


@dataclass(frozen=True, slots=True)
class Tokens:
    """One token sequence. All per-token fields have the same length.

    `texts` holds the one or two texts the sequence was made of; `segments` says which of
    them a token belongs to, and `offsets` are characters of that text. Without words every
    token belongs to none, which is enough for runs over a corpus: they bring the words of their
    documents. `with_words` finds them in the texts.
    """

    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    """Readable: a leading space where the vocabulary has Ġ or ▁, bytes decoded."""
    ids: tuple[int, ...]
    special: tuple[bool, ...]
    """Added by the tokenizer ([CLS], <s>), not part of any text."""
    segments: tuple[int, ...]
    generated: tuple[bool, ...]
    """Written by the model, not given to it."""
    offsets: tuple[tuple[int, int], ...] | None
    """None where the tokenizer does not tell."""
    words: tuple[int, ...] = ()
    """Number of the token's word in `word_texts`, or -1."""
    word_texts: tuple[str, ...] = ()
    pieces: tuple[Piece | None, ...] = ()
    """What each token is where it is no text (a `Patch`, a `Frame`), None for text; empty where
    all of it is text."""

    def __post_init__(self) -> None:
        n = len(self.tokens)
        has_words = bool(self.words or self.word_texts)
        if not has_words:
            object.__setattr__(self, "words", (NO_WORD,) * n)
        lengths = {
            "ids": len(self.ids),
            "special": len(self.special),
            "segments": len(self.segments),
            "generated": len(self.generated),
            "words": len(self.words),
            "offsets": n if self.offsets is None else len(self.offsets),
            "pieces": len(self.pieces) or n,
        }
        wrong = {name: length for name, length in lengths.items() if length != n}
        if wrong:
            raise InputError(f"{n} tokens, but {wrong}: every field needs one entry per token.")
        if not has_words:
            return
        _check_words(self.words)
        highest = max(self.words, default=NO_WORD)
        if highest >= len(self.word_texts):
            raise InputError(f"A token belongs to word {highest} of {len(self.word_texts)}.")

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def of(
        cls,
        tokens: Sequence[str],
        *,
        special: Sequence[bool] | None = None,
        segments: Sequence[int] | None = None,
        words: Sequence[int] | None = None,
    ) -> Tokens:
        """Tokens from bare strings, each its own word unless `words` says otherwise."""
        n = _check_strings(tokens)
        special = tuple(map(bool, special)) if special is not None else (False,) * n
        if words is None:
            kept = [i for i in range(n) if i < len(special) and not special[i]]
            number = {token: word for word, token in enumerate(kept)}
            words = [number.get(i, NO_WORD) for i in range(n)]
            word_texts = [tokens[i].strip() for i in kept]
        else:
            _check_words(words)
            word_texts = [
                "".join(t for t, w in zip(tokens, words, strict=False) if w == word).strip()
                for word in range(max(words, default=NO_WORD) + 1)
            ]
        return cls(
            texts=("".join(tokens),),
            tokens=tuple(tokens),
            ids=(-1,) * n,
            special=special,
            segments=tuple(segments) if segments is not None else (0,) * n,
            generated=(False,) * n,
            offsets=None,
            words=tuple(words),
            word_texts=tuple(word_texts),
        )

    def with_words(self) -> Tokens:
        """With words as `split_words` finds them in the texts; without offsets, the tokens."""
        words = [NO_WORD] * len(self)
        word_texts: list[str] = []
        if self.offsets is None:
            kept = [i for i, is_special in enumerate(self.special) if not is_special]
            for word, i in enumerate(kept):
                words[i] = word
            word_texts = [self.tokens[i].strip() for i in kept]
            return replace(self, words=tuple(words), word_texts=tuple(word_texts))
        for number, text in enumerate(self.texts):
            spans = split_words(text)
            inside = [
                i
                for i, (segment, is_special) in enumerate(
                    zip(self.segments, self.special, strict=True)
                )
                if segment == number and not is_special
            ]
            aligned = align_tokens([self.offsets[i] for i in inside], spans)
            for i, word in zip(inside, aligned, strict=True):
                words[i] = NO_WORD if word < 0 else len(word_texts) + word
            word_texts += [text[start:end] for start, end in spans]
        return replace(self, words=tuple(words), word_texts=tuple(word_texts))

    def joined(self, text: str, second: int) -> Tokens:
        """Tokens of a pair as tokens of the one text that both are parts of.

        Args:
            text: the whole.
            second: the character of it at which the second text starts.
        """
        offsets = self.offsets
        if offsets is not None:
            offsets = tuple(
                (start + second, end + second) if segment and not is_special else (start, end)
                for (start, end), segment, is_special in zip(
                    offsets, self.segments, self.special, strict=True
                )
            )
        return Tokens(
            texts=(text,),
            tokens=self.tokens,
            ids=self.ids,
            special=self.special,
            segments=(0,) * len(self),
            generated=self.generated,
            offsets=offsets,
        )

    def by_word(self) -> Tokens:
        """The sequence with one entry per word; tokens outside words stay as they are."""
        groups = self.word_groups()
        firsts = [group[0] for group in groups]
        offsets = None
        if self.offsets is not None:
            offsets = tuple((self.offsets[g[0]][0], self.offsets[g[-1]][1]) for g in groups)
        texts = tuple(
            self.tokens[i] if self.words[i] == NO_WORD else self.word_texts[self.words[i]]
            for i in firsts
        )
        numbers: list[int] = []
        names: list[str] = []
        for i, text in zip(firsts, texts, strict=True):
            numbers.append(NO_WORD if self.words[i] == NO_WORD else len(names))
            if self.words[i] != NO_WORD:
                names.append(text)
        return replace(
            self,
            tokens=texts,
            ids=tuple(self.ids[i] for i in firsts),
            special=tuple(self.special[i] for i in firsts),
            segments=tuple(self.segments[i] for i in firsts),
            generated=tuple(self.generated[i] for i in firsts),
            offsets=offsets,
            words=tuple(numbers),
            word_texts=tuple(names),
            pieces=tuple(joined_piece([self.pieces[i] for i in group]) for group in groups)
            if self.pieces
            else (),
        )

    def word_groups(self) -> list[list[int]]:
        """Token positions of each word, in order; a token outside words is its own group."""
        groups: list[list[int]] = []
        where: dict[int, list[int]] = {}
        for i, word in enumerate(self.words):
            if word != NO_WORD and word in where:
                where[word].append(i)
                continue
            groups.append([i])
            if word != NO_WORD:
                where[word] = groups[-1]
        return groups


def _check_strings(tokens: Sequence[str]) -> int:
    """How many tokens there are, all of them strings."""
    listed = list(tokens) if isinstance(tokens, Iterable) else [tokens]
    for number, token in enumerate(listed):
        if not isinstance(token, str):
            raise InputError(
                f"Token {number} is {token!r}: expected a list of strings, one for each position."
            )
    return len(listed)


def _check_words(words: Sequence[object]) -> None:
    for token, word in enumerate(words):
        if not isinstance(word, Integral) or word < NO_WORD:
            raise InputError(
                f"Token {token} belongs to word {word!r}: expected a number from 0 on, or "
                f"{NO_WORD} for no word."
            )
