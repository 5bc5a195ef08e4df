"""A result as the folder that HeadVis and Neuronpedia read: a file per head, one for all heads.

The folder is the one that HeadVis's front end documents (Luger, Kamath et al. 2026,
"Visualizing Attention Heads"). Its own six scores count the first token and have no intervals;
what headscope measured stands beside them as `headscope_…`, with `…_low` and `…_high`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from headscope.atomic import atomic_folder
from headscope.attention import key_stack
from headscope.errors import InputError
from headscope.metrics.exemplars import BINS, COLUMNS, INTERVALS, SCORES

if TYPE_CHECKING:
    from headscope.results.result import Result

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
DISTANCES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
MAX_TOKENS = 50
DECIMALS = 4
OURS = "headscope_"


def export_headvis(
    result: Result, folder: str | os.PathLike[str], *, block: str | None = None
) -> Path:
    """Write the folder; it appears whole or not at all. `Result.export` is the way to call it."""
    name = block or next(iter(result.blocks))
    samples = result.states.get(name, {}).get("head_samples")
    if samples is None:
        raise InputError(
            f"This result has no samples of documents for HeadVis in its block {name!r}: measure "
            'them, as in hs.analyze(model, corpus, ["all", "head_samples"]).'
        )
    target = Path(folder)
    if target.exists() and not (target / "scatter_data.json").is_file() and any(target.iterdir()):
        raise InputError(
            f"{target} holds something else than an export for HeadVis, and would be replaced: "
            "give the name of a new folder."
        )
    data = result.block(name)
    stack = key_stack(name, next(iter(result.documents.values())).tokens)
    counts = samples["sums"].values[..., COLUMNS.index("documents")]  # layers may have fewer heads
    heads = [(int(data["layer"].values[at]), int(head)) for at, head in np.argwhere(counts > 0)]
    with atomic_folder(target) as made:
        for part in ("heads", "attributions"):
            (made / part).mkdir()
        _write(made / "config.json", _config(result, data, samples, heads))
        _write(made / "scatter_data.json", [_row(data, layer, head) for layer, head in heads])
        _write(made / "server_config.json", {})
        _write(made / "attributions" / "manifest.json", {})
        for layer, head in heads:
            at = int(np.flatnonzero(data["layer"].values == layer)[0])
            content = _head(result, samples.isel(layer=at, head=head), stack)
            _write(made / "heads" / f"L{layer}H{head}.json", content)
    return target


def _own_variables(data: xr.Dataset) -> list[str]:
    """Return the variables that headscope measured, which are shown beside HeadVis's scores."""
    return [
        str(name)
        for name, array in data.data_vars.items()
        if array.dims == ("layer", "head") and "title" in array.attrs
    ]


def _row(data: xr.Dataset, layer: int, head: int) -> dict[str, Json]:
    row: dict[str, Json] = {"layer": layer, "head": head}
    for name in SCORES:
        row[name] = _rounded(data[name].sel(layer=layer, head=head))
    for name in _own_variables(data):
        row[f"{OURS}{name}"] = _rounded(data[name].sel(layer=layer, head=head))
        interval = f"{name}_interval"
        if interval in data:
            bounds = data[interval].sel(layer=layer, head=head).values
            for side, bound in zip(("low", "high"), bounds, strict=True):
                row[f"{OURS}{name}_{side}"] = _rounded(bound)
    return row


def _config(
    result: Result, data: xr.Dataset, samples: xr.Dataset, heads: Sequence[tuple[int, int]]
) -> dict[str, Json]:
    about = result.provenance
    ours = _own_variables(data)
    described = {
        f"{OURS}{n}": f"{data[n].attrs['title']}: {data[n].attrs['long_name']}" for n in ours
    }
    return {
        "model_name": result.model,
        "dataset_name": result.corpus_name,
        "heads": [list(head) for head in heads],
        "n_layers": len(data["layer"]),
        "n_heads": len(data["head"]),
        "n_intervals": INTERVALS,
        "metrics": [*SCORES, *described],
        "metric_descriptions": {**SCORES, **described},
        "head_data_pattern": "L{layer}H{head}.json",
        "has_umap": False,
        "umap_heads": [],
        "custom_plots": [
            {"key": "qk_distance_histogram", "label": "Distance of query and key"},
            {"key": "histogram", "label": "Highest weight of a document"},
        ],
        "custom_tables": [
            {"key": "top_query_tokens", "label": "Top query tokens"},
            {"key": "top_key_tokens", "label": "Top key tokens"},
        ],
        "statistics_display": {
            "n_samples": {"label": "Documents shown", "format": "default"},
            "mean_max_activation": {"label": "Mean highest weight", "format": "default"},
        },
        "pipeline_config": {
            "tool": "headscope",
            "versions": about["versions"],
            "model": about["model"],
            "corpus": about["corpus"],
            "settings": about["settings"],
            "plan": about["plan"],
            "counts": about["counts"],
            "n_sequences": result.n_documents,
            "seq_len": int(samples.sizes["row"]),
            "dtype": str(about["model"].get("dtype", "float32")),
            "attn_implementation": "eager",
            "n_intervals": INTERVALS,
            "samples_per_interval": int(samples.sizes["sample"]),
        },
    }


def _head(result: Result, samples: xr.Dataset, stack: str) -> dict[str, Json]:
    kept = {str(name): array.values for name, array in samples.data_vars.items()}
    sequences = []
    distances = np.zeros(len(DISTANCES) - 1)
    weights_by_token: dict[str, Counter[str]] = {"query": Counter(), "key": Counter()}
    for place in zip(*np.nonzero(kept["document"] >= 0), strict=True):
        length = int(kept["length"][place])
        document = int(kept["document"][place])
        tokens = result.documents[document].tokens[stack][:length]
        rows, ranks = np.nonzero(kept["keys"][place] >= 0)
        keys = kept["keys"][place][rows, ranks].astype(int)
        weights = kept["weights"][place][rows, ranks].astype(float)
        order = np.lexsort((keys, rows))
        rows, keys, weights = rows[order], keys[order], weights[order]
        np.add.at(distances, np.searchsorted(DISTANCES, np.abs(rows - keys), "right") - 1, weights)
        for row, key, weight in zip(rows, keys, weights, strict=True):
            weights_by_token["query"][tokens[row]] += weight
            weights_by_token["key"][tokens[key]] += weight
        sequences.append(
            {
                "sequence_id": document,
                "interval": int(place[0]) + 1,
                "tokens": list(tokens),
                "attention_indices": (rows * length + keys).tolist(),
                "attention_values": [_rounded(weight) for weight in weights],
                "seq_len": length,
                "max_activation": _rounded(kept["highest"][place]),
            }
        )
    sums = dict(zip(COLUMNS, kept["sums"].tolist(), strict=True))
    return {
        "sequences": sequences,
        "qk_distance_histogram": {
            "bin_edges": DISTANCES,
            "bin_values": [_rounded(weight) for weight in distances],
        },
        **{
            f"top_{side}_tokens": [
                {"token": token, "weight": _rounded(weight)}
                for token, weight in counted.most_common(MAX_TOKENS)
            ]
            for side, counted in weights_by_token.items()
        },
        "histogram": {
            "bin_edges": [_rounded(edge) for edge in np.linspace(0, 1, BINS + 1)],
            "bin_values": [int(count) for count in kept["histogram"]],
        },
        "statistics": {
            "n_samples": len(sequences),
            "mean_max_activation": _rounded(sums["highest"] / sums["documents"]),
        },
    }


def _rounded(value: float | xr.DataArray) -> float | None:
    number = float(value)
    return round(number, DECIMALS) if np.isfinite(number) else None


def _write(path: Path, content: Json) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, allow_nan=False), encoding="utf-8")
