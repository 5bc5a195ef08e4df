"""What the plan decides by hashing: samples and the parts of the bootstrap."""

from __future__ import annotations

import json
from dataclasses import replace

from headscope.batch import Axes
from headscope.run.plan import document_key
from headscope.text.demo_corpus import demo_corpus


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
