"""Words and sentences of raw text, by rules.

A word is `don't`, `well-known`, `3.14`, `東`, `?`; treebanks split differently. CoNLL-U has its own
words, and `headscope.text.annotate` takes spaCy's. Runs of Thai, Lao and Khmer are one word.
"""

from __future__ import annotations

import regex

# Han and Kana stand singly, with whatever marks follow (dakuten, variation selectors).
# Everything else that is a letter, mark or digit runs together. Between two such
# characters an apostrophe, a hyphen, Catalan's middle dot, a soft hyphen or a joiner stays
# inside the word; between two digits also a point or a comma.
_WORD = regex.compile(
    r"""
    [\p{Han}\p{Hiragana}\p{Katakana}] \p{M}*+
    | (?: [[\p{L}\p{M}\p{N}]--[\p{Han}\p{Hiragana}\p{Katakana}]]++
          (?: ['’ʼ\-‐‑·\u00ad\u200c\u200d]  # inside a word
              (?= [[\p{L}\p{M}\p{N}]--[\p{Han}\p{Hiragana}\p{Katakana}]] )
            | (?<= \p{N} ) [.,] (?= \p{N} ) )?+
      )++
    | \p{Regional_Indicator}{2}
    | [^\s\p{Cc}\p{Cf}] (?: \p{M} | \p{Emoji_Modifier}
                          | \u200d \p{Extended_Pictographic} )*+
    """,
    regex.VERBOSE | regex.VERSION1,
)


UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]"
)
"""Letters of scripts that do not separate words by spaces."""


def split_words(text: str) -> list[tuple[int, int]]:
    """Return the words of a text as character spans, in order and without overlap.

    Every character that is neither a space nor an invisible control character belongs to exactly
    one word.

    >>> text = "Don't pay $3.50."
    >>> [text[start:end] for start, end in split_words(text)]
    ["Don't", 'pay', '$', '3.50', '.']
    """
    return [match.span() for match in _WORD.finditer(text)]


# A sentence ends after . ! ? … and closing quotes or brackets, where a space and then
# anything but a lower-case letter follows; after 。！？ always; and at a blank line. A run of stops
# is one match, also where it ends no sentence (without a gap): n stops would be tried n times.
_END = regex.compile(
    r"""
    (?P<stop> [.!?…]++ )
    (?: ["'’”»)\]]*+ (?P<gap> \s++ ) (?= ["'‘“«(\[]*+ [^\p{Ll}\s] ) )?+
    | [。！？]++ (?: [」』”’）]*+ (?P<gap> \s*+ ) (?= \S ) )?+
    | (?<! \s ) (?P<gap> [^\S\n]*+ \n [^\S\n]*+ \n \s*+ ) (?= \S )
    """,
    regex.VERBOSE | regex.VERSION1,
)
_LAST_WORD = regex.compile(r"[\p{L}\p{M}.]+\Z")
_ABBREVIATION = regex.compile(
    r"mr|mrs|ms|dr|prof|st|sr|jr|vs|e\.?g|i\.?e|cf|al|no|vol|fig|eq|sec|ca|approx|dept|est|gen|col"
    r"|capt|lt|sgt|rev|hon|gov|sen|rep|mt|ft|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec",
    regex.IGNORECASE,
)


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Return the sentences of a text as character spans, without the spaces between them.

    A full stop after an initial (`J. Smith`) or a common English abbreviation does not end a
    sentence.

    >>> text = "Dr. Li won. Who else? Nobody."
    >>> [text[start:end] for start, end in split_sentences(text)]
    ['Dr. Li won.', 'Who else?', 'Nobody.']
    """
    sentences: list[tuple[int, int]] = []
    start = len(text) - len(text.lstrip())
    for match in _END.finditer(text):
        gap, after = match.span("gap")
        if gap < 0:
            continue
        if match["stop"] == "." and "\n\n" not in match["gap"]:
            last = _LAST_WORD.search(text, max(start, match.start() - 20), match.start())
            word = last[0] if last else ""
            is_initial = len(word.rsplit(".", 1)[-1]) == 1 and word[-1].isupper()
            if (is_initial and word != "I") or _ABBREVIATION.fullmatch(word):
                continue
        if gap > start:
            sentences.append((start, gap))
        start = after
    end = len(text.rstrip())
    if end > start:
        sentences.append((start, end))
    return sentences
