"""The folder for HeadVis holds what its documentation asks for, and true numbers."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headscope as hs
from headscope.errors import InputError, UnknownName
from headscope.metrics.exemplars import SCORES, HeadSamples
from headscope.model.model import Model

TEXTS = [
    "the cat sat and the cat ran and the cat sat",
    "the dog saw the man",
    "the man ran",
    "the dog",
    "the cat saw the dog and the dog saw the cat and the man",
    "the man sat and the dog ran to the man",
    "the cat ran",
]


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=["tiny_llama", "tiny_bert"])
def model(request: pytest.FixtureRequest) -> Model:
    found: Model = request.getfixturevalue(request.param)
    return found


def measured(model: Model, texts: list[str] = TEXTS) -> hs.Result:
    metrics = ["distance", "null_share", HeadSamples(samples=2, tokens=8)]
    documents = [hs.Document.from_text(text, text) for text in texts]
    return hs.analyze(model, documents, metrics, progress=False)


def slow_scores(model: Model, layer: int, head: int) -> dict[str, float]:
    """HeadVis's scores, from loops over the attention of each text."""
    itself: list[float] = []
    before: list[float] = []
    entropies: list[float] = []
    distances: list[float] = []
    squares: list[float] = []
    induced: list[float] = []
    for text in TEXTS:
        trace = model.trace(text)
        weights = trace.attention.sel(layer=layer, head=head).values.astype(float)
        tokens = trace.tokens
        for i in range(len(tokens)):
            row = weights[i]
            itself.append(row[i])
            if i:
                before.append(row[i - 1])
            entropies.append(-sum(a * math.log(a) for a in row if a > 0))
            distances.append(sum(a * abs(i - j) for j, a in enumerate(row)))
            squares.append(sum(a * abs(i - j) ** 2 for j, a in enumerate(row)))
            keys = [j + 1 for j in range(i) if tokens[j] == tokens[i]]
            if keys:
                induced.append(sum(row[j] for j in keys if row[j] >= 0.01))
    distance = float(np.mean(distances))
    values = (itself, before, entropies, distances)
    means = [float(np.mean(v)) for v in values]
    variance = float(np.mean(squares)) - distance**2
    return dict(zip(SCORES, [*means, variance, float(np.mean(induced))], strict=True))


def test_scores_equal_the_slow_reference(model: Model) -> None:
    result = measured(model)
    for layer, head in ((0, 0), (1, 1)):
        for name, value in slow_scores(model, layer, head).items():
            found = float(result[name].sel(layer=layer, head=head))
            assert found == pytest.approx(value, abs=1e-5), name


def test_the_folder_is_what_headvis_reads(model: Model, tmp_path: Path) -> None:
    result = measured(model)
    folder = result.export("headvis", tmp_path / "data")
    config, rows = read(folder / "config.json"), read(folder / "scatter_data.json")
    assert read(folder / "server_config.json") == {}
    assert read(folder / "attributions" / "manifest.json") == {}
    assert len(rows) == len(config["heads"]) == config["n_layers"] * config["n_heads"]
    needed = {"model_name", "dataset_name", "n_sequences", "seq_len", "dtype"}
    assert needed | {"attn_implementation"} <= set(config) | set(config["pipeline_config"])
    assert set(config["metrics"]) == set(config["metric_descriptions"])
    for row in rows:
        assert set(config["metrics"]) <= set(row)
        low, high = row["headscope_distance_low"], row["headscope_distance_high"]
        assert low is None or low <= row["headscope_distance"] <= high
        content = read(folder / "heads" / f"L{row['layer']}H{row['head']}.json")
        check_head(content, config, model, (row["layer"], row["head"]))


def check_head(content: Any, config: Any, model: Model, place: tuple[int, int]) -> None:
    sequences = content["sequences"]
    assert content["statistics"]["n_samples"] == len(sequences) > 0
    assert sum(content["histogram"]["bin_values"]) == len(TEXTS)
    for name in ("histogram", "qk_distance_histogram"):
        assert len(content[name]["bin_edges"]) == len(content[name]["bin_values"]) + 1
    total = 0.0
    for sequence in sequences:
        n = sequence["seq_len"]
        assert len(sequence["tokens"]) == n <= 8
        assert 1 <= sequence["interval"] <= config["n_intervals"]
        assert sequence["interval"] == min(int(sequence["max_activation"] * 5) + 1, 5)
        indices, values = sequence["attention_indices"], sequence["attention_values"]
        assert len(indices) == len(values)
        assert indices == sorted(set(indices))
        trace = model.trace(TEXTS[sequence["sequence_id"]])
        weights = trace.attention.sel(layer=place[0], head=place[1]).values[:n, :n]
        assert sequence["max_activation"] == pytest.approx(weights[1:, 1:].max(), abs=1e-4)
        for index, value in zip(indices, values, strict=True):
            assert value == pytest.approx(weights[index // n, index % n], abs=1e-4)
        assert set(indices) == set(np.flatnonzero(weights >= 0.005))  # eight keys: all of a row
        total += sum(values)
    assert sum(content["qk_distance_histogram"]["bin_values"]) == pytest.approx(total, abs=0.01)
    for side in ("query", "key"):
        ranked = [entry["weight"] for entry in content[f"top_{side}_tokens"]]
        assert ranked == sorted(ranked, reverse=True)
        assert sum(ranked) == pytest.approx(total, abs=0.01)


def test_halves_merged_keep_the_samples_of_the_whole(tiny_llama: Model, tmp_path: Path) -> None:
    whole = measured(tiny_llama)
    merged = hs.merge(measured(tiny_llama, TEXTS[:3]), measured(tiny_llama, TEXTS[3:]))
    folders = [r.export("headvis", tmp_path / str(n)) for n, r in enumerate((whole, merged))]
    heads = [read(folder / "heads" / "L1H0.json") for folder in folders]
    assert heads[0] == heads[1]


def test_what_cannot_be_exported_is_refused(tiny_llama: Model, tmp_path: Path) -> None:
    plain = hs.analyze(tiny_llama, TEXTS, "distance", progress=False)
    with pytest.raises(InputError, match=r'\["all", "head_samples"\]'):
        plain.export("headvis", tmp_path / "data")
    with pytest.raises(UnknownName, match="headvis"):
        plain.export("headviz", tmp_path / "data")
    (tmp_path / "mine.txt").write_text("kept", encoding="utf-8")
    with pytest.raises(InputError, match="holds something else"):
        measured(tiny_llama).export("headvis", tmp_path)
    assert (tmp_path / "mine.txt").is_file()
