"""The tap equals transformers' reference eager attention, bit for bit: a sample of the sweep.

`make families` runs all families and writes docs/families.md; here a fixed sample of it is run
again, and every line must come out as the page has it.
"""

from __future__ import annotations

import re

import pytest
import torch

import headscope as hs
from headscope.errors import TapUnsupported
from tests.families.examine import examine
from tests.families.reference import main_output
from tests.families.shrink import classes, tiny
from tests.families.table import PAGE, line

LIVE = 10
"""Place of the column *live*."""

READ = [
    "bert", "roberta", "distilbert", "electra", "albert", "modernbert", "deberta-v2", "xlnet",
    "mpnet", "convbert", "ibert", "squeezebert", "roformer", "xlm", "lilt", "gpt2", "gpt_neox",
    "gptj", "gpt_neo", "opt", "bloom", "falcon", "mpt", "codegen", "llama", "mistral", "qwen3",
    "gemma2", "gemma3_text", "gemma4_text", "phi3", "olmo3", "gpt_oss", "deepseek_v3",
    "llama4_text", "cohere2", "diffllama", "jamba", "granite_swa", "bart", "t5", "marian",
    "fsmt", "prophetnet", "whisper", "vit", "dinov2", "clip", "siglip", "wav2vec2", "glm4",
    "cwm",
]  # fmt: skip
REFUSED = ["mamba", "fnet", "rwkv", "longformer", "big_bird", "led", "swin", "funnel"]
SPECIAL_MARKS = ("wrong", "crash", "unclear")


def each(families: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("family", families)


def test_the_sample_is_of_sixty_families() -> None:
    assert len({*READ, *REFUSED}) == 60
    assert {*READ, *REFUSED} <= classes().keys()


@each(READ)
def test_reads_what_the_model_computes(family: str) -> None:
    torch.set_num_threads(1)
    row = examine(family, classes()[family])
    assert row.verdict == "exact", row
    assert without_live(line(row)) in map(without_live, PAGE.read_text("utf-8").splitlines())


def without_live(line: str) -> str:
    """A row of the table without the column *live*, which `sweep --live` fills."""
    cells = line.split("|")
    return "|".join(cells[:LIVE] + cells[LIVE + 1 :])


@each(REFUSED)
def test_refuses_what_it_cannot_read(family: str) -> None:
    row = examine(family, classes()[family])
    assert row.verdict == "refused", row
    assert f"| {family} | {row.detail} |" in PAGE.read_text(encoding="utf-8").splitlines()


def test_a_refused_model_is_left_in_working_order() -> None:
    small = tiny("mamba", "MambaForCausalLM")
    with pytest.raises(TapUnsupported, match="cannot read 'mamba': it has no softmax attention"):
        hs.load(small.module).info  # noqa: B018
    with torch.no_grad():
        main_output(small.module(**small.inputs))


def test_the_page_tells_of_nothing_wrong() -> None:
    page = PAGE.read_text(encoding="utf-8")
    summary = next(row for row in page.splitlines() if row.startswith("**Of "))
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (\w+)", summary)}
    assert counts["exact"] >= 360
    assert not counts.keys() & set(SPECIAL_MARKS)
