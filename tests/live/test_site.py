"""Files of a live page: hashes, storage, policy, limits, and the commands that write them."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.app.cli.main import main
from headscope.errors import InputError, IntegrityError, UnknownName, WriteError
from headscope.live import site
from headscope.live.graph import Graph, compare, session
from headscope.live.storage import pack
from headscope.live.tokenizer import Refusal
from headscope.model.model import Model
from headscope.page.payload_types import Header
from tests.families.zoo import DECODERS, build
from tests.model import media_zoo
from tests.typed_dicts import problems

TEXT = "the cat [MASK] on the mat"
Save = Callable[..., site.Live]


@pytest.fixture
def save(monkeypatch: pytest.MonkeyPatch, exported: Callable[[Model], Graph]) -> Save:
    """`save_live`, with one export of each model for all tests."""
    monkeypatch.setattr(site, "export", exported)
    return hs.save_live


def header_of(page: Path) -> Any:
    text = page.read_text("utf-8").partition('id="headscope-header">')[2]
    return json.loads(text.partition("</script>")[0])


def model_of(folder: Path, live: Any) -> bytes:
    return b"".join(gzip.decompress((folder / f["name"]).read_bytes()) for f in live["files"])


def test_a_folder_has_what_its_page_names(
    save: Save, tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "PART_BYTES", 40_000)
    written = save(tiny_bert, tmp_path / "site", examples=[TEXT, (TEXT, "the dog ran")])
    header = header_of(tmp_path / "site/index.html")
    live = header["live"]
    assert problems(header, Header) == []
    assert header["place"] == "live"
    named = [*live["files"], live["wasm"], live["worker"], live["tokenizer"]]
    assert len(live["files"]) > 2
    for each in named:
        content = (tmp_path / "site" / each["name"]).read_bytes()
        assert len(content) == each["bytes"]
        assert hashlib.sha256(content).hexdigest() == each["sha256"]
    there = {path.name for path in (tmp_path / "site").iterdir()}
    assert there == {each["name"] for each in named} | {"index.html"}
    assert len(model_of(tmp_path / "site", live)) == live["bytes"]
    assert written.bytes == sum(path.stat().st_size for path in (tmp_path / "site").iterdir())
    assert live["kind"] == "mask"
    assert [(b["name"], b["heads"], b["layers"]) for b in live["blocks"]] == [("self", 4, [0, 1])]
    ids = tiny_bert.trace(TEXT).text.ids
    assert live["texts"][0] == TEXT
    tensor = {"name": "input_ids", "dims": [len(ids)], "ids": [*ids], "data": None}
    assert live["inputs"][0] == [tensor]
    assert len(live["inputs"]) == 3


def test_the_proof_repeats_with_the_stored_model(
    save: Save, tiny_llama: Model, tmp_path: Path, exported: Callable[[Model], Graph]
) -> None:
    save(tiny_llama, tmp_path, examples=["the cat sat"], storage="int8")
    text = (tmp_path / "index.html").read_text("utf-8")
    live = header_of(tmp_path / "index.html")["live"]
    assert live["blocks"][0]["groups"] == [[0, 0, 1, 1]] * 2
    running = session(model_of(tmp_path, live))
    assert [case["off"] for case in live["proof"]["cases"]] == [None, [1, 0]]
    for case in live["proof"]["cases"]:
        inputs = exported(tiny_llama).inputs(
            {"input_ids": torch.tensor([case["input"][0]["ids"]])},
            [tuple(case["off"]) if case["off"] else None],
            case["rows"],
        )
        for name, found in zip(
            ("output", "attention"), running.run(["output", "attention"], inputs), strict=True
        ):
            packed = re.search(rf'data-buffer="{case["outputs"][name]}">([^<]*)<', text)
            assert packed is not None
            stored = np.frombuffer(gzip.decompress(base64.b64decode(packed[1])), "<f4")
            assert np.abs(found.ravel() - stored).max() < 1e-6


def test_the_loss_of_storage_is_said_apart(
    tiny_gpt2: Model, exported: Callable[[Model], Graph]
) -> None:
    graph = exported(tiny_gpt2)
    sizes, losses = {}, {}
    for storage in ("float32", "float16", "int8"):
        data = pack(graph.proto, storage).SerializeToString()
        sizes[storage], losses[storage] = len(data), compare(tiny_gpt2, graph, data)
    assert losses["float32"] == graph.error
    assert 1e-5 < losses["float16"].output < 5e-3
    assert losses["float16"].output < losses["int8"].output < 5e-2
    assert sizes["int8"] < sizes["float16"] < sizes["float32"]


def test_one_file_holds_everything_and_asks_for_nothing(
    save: Save, tiny_bert: Model, tmp_path: Path
) -> None:
    written = save(tiny_bert, tmp_path / "page.html", examples=[tiny_bert.trace(TEXT)])
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    page = (tmp_path / "page.html").read_text("utf-8")
    assert written.bytes == (tmp_path / "page.html").stat().st_size
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    assert "'wasm-unsafe-eval'" in policy[1]
    assert "worker-src blob:" in policy[1]
    assert "connect-src" not in policy[1]
    live = header_of(tmp_path / "page.html")["live"]
    for each in (*live["files"], live["wasm"], live["worker"], live["tokenizer"]):
        assert each["source"] == "element"
        assert f'id="{each["name"]}"' in page


def test_only_live_pages_run_compiled_code(save: Save, tiny_bert: Model, tmp_path: Path) -> None:
    tiny_bert.trace(TEXT).save_page(tmp_path / "plain.html")
    plain = (tmp_path / "plain.html").read_text("utf-8")
    assert "wasm-unsafe-eval" not in plain[: plain.index("</head>")]
    tiny_bert.trace(TEXT).save_page(tmp_path / "live.html", live=True)
    assert header_of(tmp_path / "live.html")["live"]["model"] == tiny_bert.name
    save(tiny_bert, tmp_path / "folder")
    folder = (tmp_path / "folder/index.html").read_text("utf-8")
    assert "connect-src 'self'" in folder[: folder.index("</head>")]


def test_no_file_names_the_author(save: Save, tiny_bert: Model, tmp_path: Path) -> None:
    save(tiny_bert, tmp_path / "site")
    live = header_of(tmp_path / "site/index.html")["live"]
    parts = [(tmp_path / "site" / name).read_bytes() for name in ("index.html", "live.js")]
    parts.append(gzip.decompress((tmp_path / "site/tokenizer.json.gz").read_bytes()))
    for content in (*parts, model_of(tmp_path / "site", live)):
        assert str(Path.home()).encode() not in content or Path.home() == Path("/")
        assert str(tmp_path).encode() not in content
        assert str(Path(hs.__file__).parents[1]).encode() not in content


def test_a_page_too_large_for_one_file_is_refused(
    save: Save, tiny_bert: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "FILE_LIMIT", 1_000_000)
    with pytest.raises(InputError, match=r"would have \d+ MB; one file may have 1 MB.*'.*page'"):
        save(tiny_bert, tmp_path / "page.html")
    assert not [*tmp_path.iterdir()]


def test_arguments_are_checked(save: Save, tiny_bert: Model, tiny_llama: Model, tmp_path: Path):
    with pytest.raises(UnknownName, match="Did you mean 'float16'"):
        save(tiny_bert, tmp_path, storage="floats16")
    with pytest.raises(InputError, match="packaged GGUF models"):
        save(tiny_bert, tmp_path, storage="gguf")
    with pytest.raises(InputError, match="examples should be a list"):
        save(tiny_bert, tmp_path, examples=TEXT)
    with pytest.raises(InputError, match="cannot stand on a page of"):
        save(tiny_bert, tmp_path, examples=[tiny_llama.trace("the cat")])
    with pytest.raises(InputError, match="max_tokens"):
        save(tiny_bert, tmp_path, max_tokens=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="Cannot write"):
        save(tiny_bert, tmp_path / "file")
    with pytest.raises(WriteError, match="missing"):
        save(tiny_bert, tmp_path / "missing" / "site")
    assert not (tmp_path / "missing").exists()


def test_a_window_shortens_the_texts() -> None:
    member = next(f for f in DECODERS if f.name == "mistral")
    settings = {**member.settings, "sliding_window": 12}
    model = hs.load(build(type(member)(member.name, member.config, member.model, settings)))
    assert site._longest(model, 40) == 12
    assert site._longest(model, 8) == 8


def test_a_wrong_runtime_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(gzip.decompress(site.runtime())) > 10_000_000
    monkeypatch.setattr(site, "RUNTIME_SHA256", "0" * 64)
    with pytest.raises(IntegrityError, match="not the pinned runtime"):
        site.runtime()


def test_the_command_writes_a_folder(
    save: Save, tmp_path: Path, tiny_bert: Model, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("headscope.app.cli.pages.load_model", lambda *_: tiny_bert)
    main(["publish", TEXT, "--model", "any", "-o", str(tmp_path / "site"), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["page"] == str(tmp_path / "site/index.html")
    assert Path(said["page"]).is_file()
    assert said["export_error"]["output"] < 1e-5 < said["storage_error"]["output"]


def test_a_tokenizer_that_is_refused_still_names_its_tokens(
    tiny_llama: Model, exported: Callable[[Model], Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise Refusal("Unigram tokenizers are not supported")

    monkeypatch.setattr(site, "page_tokenizer", refuse)
    reason, packed = site._tokenizer(tiny_llama, exported(tiny_llama))
    assert reason == "Unigram tokenizers are not supported"
    names = json.loads(gzip.decompress(packed))["names"]
    assert len(names) == tiny_llama.module.config.vocab_size
    ids = tiny_llama.trace("the cat sat").text.ids
    assert [names[i] for i in ids] == list(tiny_llama.trace("the cat sat").tokens)


def test_a_model_of_images_needs_examples(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"reads images: pass examples=\[model.trace\(image\)"):
        hs.save_live(media_zoo.vit(), tmp_path)


def test_without_a_tokenizer_nothing_is_published(tiny_bert: Model, tmp_path: Path) -> None:
    bare = hs.load(tiny_bert.module)
    with pytest.raises(InputError, match="has no tokenizer"):
        hs.save_live(bare, tmp_path)


@pytest.mark.packaged
@pytest.mark.long
def test_minilm_is_one_file(minilm: Model, tmp_path: Path) -> None:
    written = hs.save_live(minilm, tmp_path / "minilm.html")
    assert written.bytes < 62_000_000
    assert not written.export_error.exceeds(1e-5)
    assert not written.storage_error.exceeds(1e-3)


@pytest.mark.packaged
@pytest.mark.long
def test_smollm2_keeps_its_blocks_without_loss(smollm2: Model, tmp_path: Path) -> None:
    written = hs.save_live(smollm2, tmp_path / "site")
    assert written.bytes < 102_000_000
    assert not written.storage_error.exceeds(1e-5)
