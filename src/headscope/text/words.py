"""Where the words of raw text stand, for text that no treebank has split.

A word is what a reader would point at: `don't`, `well-known`, `3.14`, `東`, `?`. This is
not a treebank's tokenization (there `don't` is two words, and most hyphens stand alone);
a document read from CoNLL-U brings its own words, and `headscope.text.annotate` takes
spaCy's. Scripts written without spaces other than Han and Kana (Thai, Lao, Khmer) come
out as one word per run.
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


def split_words(text: str) -> list[tuple[int, int]]:
    """The words of a text as character spans, in order and without overlap.

    Every character that is neither a space nor an invisible control character belongs to
    exactly one word.

    >>> text = "Don't pay $3.50."
    >>> [text[start:end] for start, end in split_words(text)]
    ["Don't", 'pay', '$', '3.50', '.']
    """
    return [match.span() for match in _WORD.finditer(text)]
