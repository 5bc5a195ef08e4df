"""What the plan decides: samples, the parts of a corpus, shards."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain

from headscope.batch import Axes
from headscope.run.options import Settings
from headscope.run.plan import MAX_SHARDS, Plan, document_key
from headscope.text.readers.read import demo_corpus


def test_sentences_of_one_document_are_dealt_together() -> None:
    parts: dict[str | None, set[int]] = {}
    keys = []
    for sentence in demo_corpus("sentence"):
        key, number = document_key(sentence)
        keys.append(key)
        parts.setdefault(sentence.part_of, set()).add(number)
    assert len(parts) == 11
    assert all(len(numbers) == 1 for numbers in parts.values())
    assert len(set.union(*parts.values())) == 11
    assert len(set(keys)) == 88  # each sentence is still sampled on its own


def test_documents_of_no_other_are_dealt_by_id_and_text() -> None:
    document = next(iter(demo_corpus("document")))
    assert document.part_of is None
    others = [document, replace(document, id="other"), replace(document, meta={"genre": "x"})]
    numbers = [document_key(other)[1] for other in others]
    assert numbers[0] != numbers[1]
    assert numbers[0] == numbers[2]


def test_labels_survive_json() -> None:
    axes = Axes(("NOUN",), ("nsubj", "obj"), ("news", "talk"), 16, ("first",))
    stored = json.loads(json.dumps(axes.to_dict()))
    assert Axes.from_dict(stored) == axes
    del stored["key_classes"]
    assert Axes.from_dict(stored) == replace(axes, key_classes=())


def test_windows_end_by_documents_and_by_characters() -> None:
    settings = Settings(max_tokens=512, window=10, shard_documents=4, shard_characters=100)
    plan = Plan({}, {}, (), Axes((), (), ("",), 64), settings)
    most = MAX_SHARDS * 100

    def shards(lengths: list[int]) -> list[list[int]]:
        return [list(numbers) for numbers in plan._cut(lengths)]

    short = shards([1 + n % 3 for n in range(12)])
    assert [len(shard) for shard in short] == [4, 4, 2, 2]
    assert sorted(chain(*short[:3])) == list(range(10))  # the first window, longest first
    assert short[0] == [2, 5, 8, 1]
    # Long documents: no window of more characters, so that few are held at a time.
    assert shards([most // 2, most // 2, 1, 2]) == [[0], [1], [3, 2]]
    assert shards([5, 2 * most, 5, 5]) == [[0], [1], [2, 3]]
    assert [amount.documents for amount in plan.shard_sizes([5, 2 * most, 5, 5])] == [1, 1, 2]
