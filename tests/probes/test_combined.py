"""Probes trained on tiny models, end to end: attention, cache, control, files, predictions."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.errors import FileFormatError, InputError, UnknownName
from headscope.model.load import kept_parameters, randomized
from headscope.model.model import Model
from headscope.probes import features as store
from headscope.probes.features import (
    AttentionReader,
    Store,
    Streamed,
    open_store,
    punctuation,
    read_treebank,
    right_branching,
    store_size,
    targets,
)
from headscope.probes.predict import scorer_of
from headscope.probes.training import ProbeBatch
from headscope.probes.word_vectors import WordVectors
from headscope.text.document import Document

SENTENCES = (
    # words, heads (1-based, 0 for the root)
    ("the cat sat on the mat .", (2, 3, 0, 6, 6, 3, 3)),
    ("she asked the nurse a question", (2, 0, 4, 2, 6, 2)),
    ("unbelievable", (0,)),
    ("the red dog ran under the blue table , and the cat lay", None),
    ("it was fine !", (3, 3, 0, 3)),
    ("he said that the house was unbelievable .", (2, 0, 7, 5, 7, 7, 2, 2)),
)


def document(number: int, text: str, heads: tuple[int, ...] | None, part_of: str) -> Document:
    words = text.split()
    if heads is None:
        heads = (0, *range(1, len(words)))
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    return Document(
        id=f"s{number}",
        text=text,
        words=tuple(words),
        spans=tuple((int(a), int(a) + len(w)) for a, w in zip(starts, words, strict=False)),
        sentences=((0, len(words)),),
        upos=tuple("PUNCT" if word in ".,!" else "X" for word in words),
        parents=tuple(head - 1 for head in heads),
        relations=tuple("punct" if word in ".,!" else "dep" for word in words),
        part_of=part_of,
    )


def treebank_documents() -> list[Document]:
    return [document(i, *sentence, f"d{i % 3}") for i, sentence in enumerate(SENTENCES)]


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return treebank_documents()


@pytest.fixture(scope="module")
def vectors() -> WordVectors:
    generator = np.random.default_rng(0)
    words = sorted({word for text, _ in SENTENCES for word in text.split()})[:-4]
    array = generator.normal(size=(len(words), 4)).astype(np.float32)
    rows = {word: row for row, word in enumerate(words)}
    return WordVectors("toy", "toy", "0" * 64, array, rows, array.mean(0))


def stored(model: Model, documents: list[Document], folder: Path | None, **options: Any) -> Store:
    reader = AttentionReader(model, **options)
    return open_store(reader, read_treebank(documents), reader.survey(documents), folder)


def slow_tables(model: Model, text: Document, over: str = "attention") -> np.ndarray:
    """`word column head` from the trace, by loops (Clark et al. 2019, section 4.1)."""
    trace = model.trace(text.text, norms=True)
    trace = trace.norm_weighted() if over == "norm" else trace
    attention = trace.attention.values
    n_layers, n_heads = attention.shape[:2]
    offsets = trace.text.offsets
    assert offsets is not None
    special = [i for i, is_special in enumerate(trace.text.special) if is_special]
    edges = (special[0], special[-1]) if len(special) > 1 else (0,)
    members = [
        [
            i
            for i, (start, end) in enumerate(offsets)
            if not trace.text.special[i] and start < stop and end > first
        ]
        for first, stop in text.spans
    ]
    n = len(text)
    table = np.zeros((n, n + 2 * len(edges), n_layers * n_heads))
    for layer in range(n_layers):
        for head in range(n_heads):
            a, k = attention[layer, head], layer * n_heads + head
            for p, own in enumerate(members):
                for q, others in enumerate(members):
                    table[p, q, k] = np.mean([sum(a[i, j] for j in others) for i in own])
                for e, edge in enumerate(edges):
                    table[p, n + e, k] = np.mean([a[i, edge] for i in own])
                    table[p, n + len(edges) + e, k] = sum(a[edge, i] for i in own)
    return table


@pytest.mark.parametrize("over", ["attention", "norm"])
@pytest.mark.parametrize("name", ["tiny_bert", "tiny_llama"])
def test_attention_between_words_and_edges(
    name: str, over: Any, documents: list[Document], request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(name)
    reader = AttentionReader(model, over=over)
    expected_edges = {
        "tiny_bert": ("first special", "last special"),
        "tiny_llama": ("first token",),
    }
    assert reader.edges == expected_edges[name]
    found = dict(reader.read(list(enumerate(documents))))
    assert sorted(found) == list(range(len(documents)))
    for number, one in enumerate(documents):
        np.testing.assert_allclose(found[number], slow_tables(model, one, over), atol=1e-6)


def test_encoder_decoders_are_read_in_their_encoder(
    tiny_t5: Model, documents: list[Document]
) -> None:
    reader = AttentionReader(tiny_t5)
    ((_, table),) = reader.read([(0, documents[0])])
    sites = tiny_t5.wiring.of_block("encoder")
    assert table.shape == (7, reader.columns(7), sum(site.n_heads for site in sites))
    assert table[:, :7].sum(1).min() > 0


def test_cut_sentences_and_words_without_tokens(
    tiny_bert: Model, documents: list[Document]
) -> None:
    reader = AttentionReader(tiny_bert, max_tokens=5)  # [CLS], three tokens, [SEP]
    surveyed = reader.survey(documents)
    assert surveyed.truncated == 6  # "unbelievable" has four tokens
    assert surveyed.has_tokens[0].tolist() == [True] * 3 + [False] * 4
    ((_, table),) = reader.read([(0, documents[0])])
    assert not table[3:].any()
    assert not table[:, 3:7].any()
    assert targets(documents[0], surveyed.has_tokens[0]).tolist() == [1, 2, 7, -1, -1, -1, -1]


def test_the_store_is_what_streaming_gives(
    tiny_bert: Model, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    treebank = read_treebank(documents)
    reader = AttentionReader(tiny_bert)
    said: list[str] = []
    surveyed = reader.survey(documents)
    first = open_store(reader, treebank, surveyed, tmp_path, say=said.append)
    numbers = [3, 0, 2]
    for kept, fresh in zip(
        first.take(numbers), Streamed(reader, treebank).take(numbers), strict=True
    ):
        assert kept.dtype == np.float16
        np.testing.assert_allclose(kept, fresh, atol=5e-4)
    size = store_size(reader, treebank)
    assert size == 2 * sum(n * (n + 4) for n in treebank.lengths) * len(reader.heads)
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert (folder / "attention.npy").stat().st_size == size + 128  # the header of .npy
    assert said == [f"Storing attention: {size / 1e6:,.0f} MB in {folder}"]
    monkeypatch.setattr(AttentionReader, "read", None)  # a second time nothing runs
    again = open_store(reader, treebank, surveyed, tmp_path, say=said.append)
    assert said[-1] == f"Attention is stored: {folder}"
    assert again.values.tobytes() == first.values.tobytes()


def test_a_damaged_store_is_made_again(
    tiny_bert: Model, documents: list[Document], tmp_path: Path
) -> None:
    first = stored(tiny_bert, documents, tmp_path).values.tobytes()
    (file,) = tmp_path.glob("*/attention.npy")
    file.write_bytes(file.read_bytes()[:1000])
    assert stored(tiny_bert, documents, tmp_path).values.tobytes() == first


def test_other_weights_have_another_store(
    tiny_bert: Model, documents: list[Document], tmp_path: Path
) -> None:
    stored(tiny_bert, documents, tmp_path)
    stored(randomized(tiny_bert), documents, tmp_path)
    stored(tiny_bert, documents, tmp_path, max_tokens=9)
    stored(tiny_bert, documents, tmp_path, over="norm")
    with tiny_bert.edit(hs.ablate(0, 0)):
        stored(tiny_bert, documents, tmp_path)
    assert len(list(tmp_path.glob("*/attention.npy"))) == 5


def test_old_stores_make_room_in_the_users_cache(
    tiny_bert: Model, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path))
    reader = AttentionReader(tiny_bert)
    monkeypatch.setattr(
        store, "MAX_STORE_BYTES", store_size(reader, read_treebank(documents)) + 1000
    )
    stored(tiny_bert, documents, None)
    stored(tiny_bert, documents[:5], None)
    (kept,) = (tmp_path / "probes").glob("*/about.json")
    assert json.loads(kept.read_text())["treebank"]["sentences"] == 5


def test_a_full_disk_is_said_beforehand(
    tiny_bert: Model, documents: list[Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = dataclasses.make_dataclass("Usage", ["free"])
    monkeypatch.setattr(store.shutil, "disk_usage", lambda path: usage(100))  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"takes 0.0 GB and .* has 0.0 GB free. Name another"):
        stored(tiny_bert, documents, tmp_path)


def test_the_control_keeps_embeddings_and_nothing_else(tiny_bert: Model, tiny_llama: Model) -> None:
    assert kept_parameters(tiny_bert) == (
        "bert.embeddings.word_embeddings.weight",
        "bert.embeddings.position_embeddings.weight",
    )
    assert kept_parameters(tiny_llama) == ("model.embed_tokens.weight",)
    before = torch.random.get_rng_state()
    fresh, again, other = (randomized(tiny_bert, seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    kept = kept_parameters(tiny_bert)
    own = dict(tiny_bert.module.named_parameters())
    for name, parameter in fresh.module.named_parameters():
        same = dict(again.module.named_parameters())[name]
        assert torch.equal(parameter, same)
        if name in kept:
            assert torch.equal(parameter, own[name])
            assert parameter.data_ptr() != own[name].data_ptr()
        elif parameter.ndim == 2 and "token_type" not in name and "decoder" not in name:
            assert not torch.equal(parameter, own[name])
            assert not torch.equal(parameter, dict(other.module.named_parameters())[name])


@pytest.mark.filterwarnings("ignore:The probe has not converged")
def test_a_probe_over_norms_reads_norms_again(tiny_bert: Model, documents: list[Document]) -> None:
    probe, plain = (
        hs.train_probe(tiny_bert, documents, documents, "attention", over=over, cache=False)
        for over in ("norm", "attention")
    )
    assert probe.provenance["options"]["over"] == "norm"
    assert not np.allclose(probe.parameters["weights"], plain.parameters["weights"])
    reader = AttentionReader(tiny_bert, over="norm")
    scorer = scorer_of(probe)
    for one in documents:
        ((_, table),) = reader.read([(0, one)])
        batch = ProbeBatch(
            torch.ones(1, len(one), dtype=torch.bool),
            torch.full((1, len(one)), -1),
            torch.from_numpy(table)[None],
            None,
        )
        best = scorer(batch)[0].argmax(-1)
        expected = tuple(-1 if parent == len(one) else int(parent) for parent in best)
        assert probe.predict(one, tiny_bert) == expected
    with pytest.raises(UnknownName, match="Unknown kind of attention 'norms'"):
        hs.train_probe(tiny_bert, documents, documents, "attention", over="norms")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:The probe has not converged")
@pytest.mark.parametrize("kind", ["attention", "attention+words", "distance+words"])
@pytest.mark.parametrize("control", [False, True])
def test_a_probe_from_start_to_file(
    kind: str,
    control: bool,
    tiny_bert: Model,
    documents: list[Document],
    vectors: WordVectors,
    tmp_path: Path,
) -> None:
    options = {"kind": kind, "vectors": vectors, "control": control, "epochs": 2}
    probe = hs.train_probe(tiny_bert, documents, documents, cache=tmp_path / "c", **options)
    again = hs.train_probe(tiny_bert, documents, documents, cache=tmp_path / "c", **options)
    streamed = hs.train_probe(tiny_bert, documents, documents, cache=False, **options)
    for name, values in probe.parameters.data_vars.items():
        assert values.values.tobytes() == again.parameters[name].values.tobytes()
        np.testing.assert_allclose(streamed.parameters[name], values, atol=2e-2, rtol=2e-2)
    assert probe.scores.sizes["sentence"] == len(documents)
    assert probe.log.sizes["epoch"] == 2
    about = probe.provenance
    assert about["train"]["hash"] == hs.read(documents, unit="sentence").hash
    assert about["control_seed"] == (0 if control else None)
    assert about["seconds"].keys() == {"read", "attention", "training", "scoring"}
    probe.save(tmp_path / "probe.nc")
    opened = hs.open(tmp_path / "probe.nc")
    assert isinstance(opened, hs.Probe)
    assert opened.uas == probe.uas
    assert repr(opened) == repr(probe)
    assert opened.provenance == json.loads(json.dumps(probe.provenance))
    if kind != "distance+words":
        assert opened.reliance.dims == ("direction", "layer", "head")
        np.testing.assert_array_equal(opened.reliance, probe.reliance)
    else:
        with pytest.raises(InputError, match="relies on no head"):
            _ = opened.reliance
    for decoding in ("greedy", "tree"):
        heads = probe.predict(documents[0], tiny_bert, decoding=decoding, vectors=vectors)
        assert heads == opened.predict(documents[0], tiny_bert, decoding=decoding, vectors=vectors)
    dataclasses.replace(documents[0], parents=heads)  # which refuses what is no tree


def test_predictions_are_what_was_scored(
    tiny_bert: Model, documents: list[Document], vectors: WordVectors, tmp_path: Path
) -> None:
    probe = hs.train_probe(
        tiny_bert, documents, documents, "attention+words", vectors=vectors, cache=tmp_path
    )
    predict = partial(probe.predict, model=tiny_bert, vectors=vectors)
    for decoding in ("greedy", "tree"):
        right = [
            sum(a == b for a, b in zip(predict(d, decoding=decoding), d.parents, strict=True))
            for d in documents
        ]
        scored = probe.scores["right"].sel(decoding=decoding, punctuation="with")
        assert right == scored.values.tolist()


def test_a_probe_of_a_causal_model(
    tiny_llama: Model, documents: list[Document], tmp_path: Path
) -> None:
    probe = hs.train_probe(tiny_llama, documents, documents, "attention", cache=tmp_path)
    assert probe.provenance["edges"] == ["first token"]
    assert probe.parameters.sizes["edge"] == 2
    assert probe.predict("the cat sat", tiny_llama) is not None


def test_documents_of_several_sentences_are_parsed_one_by_one(
    tiny_bert: Model, documents: list[Document], tmp_path: Path
) -> None:
    probe = hs.train_probe(tiny_bert, documents, documents, "attention", cache=tmp_path)
    both = Document(
        id="both",
        text="the cat sat she asked",
        words=("the", "cat", "sat", "she", "asked"),
        spans=((0, 3), (4, 7), (8, 11), (12, 15), (16, 21)),
        sentences=((0, 3), (3, 5)),
    )
    heads = probe.predict(both, tiny_bert, decoding="tree")
    assert [heads[:3].count(-1), heads[3:].count(-1)] == [1, 1]
    assert all(head == -1 or head < 3 for head in heads[:3])
    assert all(head == -1 or head >= 3 for head in heads[3:])


def test_mistakes_are_said(
    tiny_bert: Model, tiny_llama: Model, documents: list[Document], tmp_path: Path
) -> None:
    with pytest.raises(UnknownName, match="Unknown kind of probe 'words'"):
        hs.train_probe(tiny_bert, documents, documents, "words")  # type: ignore[arg-type]
    bare = [Document("bare", "the cat", ("the", "cat"), ((0, 3), (4, 7)), ((0, 2),))]
    with pytest.raises(InputError, match=r"Document 'bare' of .* has no trees"):
        hs.train_probe(tiny_bert, bare, documents, "attention")
    with pytest.raises(InputError, match="epochs should be a whole number from 1 on, not 0"):
        hs.train_probe(tiny_bert, documents, documents, "attention", epochs=0)
    probe = hs.train_probe(tiny_bert, documents, documents, "attention", cache=tmp_path)
    with pytest.raises(UnknownName, match="Unknown decoding 'mst'"):
        probe.predict(documents[0], tiny_bert, decoding="mst")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"was trained on .* with other weights"):
        probe.predict(documents[0], tiny_llama)
    probe.save(tmp_path / "probe.nc")
    with pytest.raises(InputError, match="document should be a document or a text, not 3"):
        probe.predict(3, tiny_bert)  # type: ignore[arg-type]
    (tmp_path / "broken.nc").write_bytes((tmp_path / "probe.nc").read_bytes()[:4000])
    with pytest.raises(FileFormatError):
        hs.open(tmp_path / "broken.nc")


def test_baseline_and_punctuation(documents: list[Document]) -> None:
    assert right_branching(3).tolist() == [1, 2, 3]
    assert right_branching(1).tolist() == [1]
    assert punctuation(documents[0]).tolist() == [False] * 6 + [True]
    by_relation = dataclasses.replace(documents[0], upos=None)
    assert punctuation(by_relation).tolist() == [False] * 6 + [True]
    by_letters = dataclasses.replace(documents[0], upos=None, relations=None)
    assert punctuation(by_letters).tolist() == [False] * 6 + [True]


@pytest.mark.long
@pytest.mark.packaged
@pytest.mark.xdist_group("packaged")
@pytest.mark.filterwarnings("ignore:The probe has not converged")
def test_half_precision_changes_no_score(minilm: Model, data_folder: Path, tmp_path: Path) -> None:
    treebank = hs.read(data_folder / "gum" / "en_gum-dev.conllu", unit="sentence").sample(60)
    options = {"kind": "attention", "epochs": 2}
    kept = hs.train_probe(minilm, treebank, treebank, cache=tmp_path, **options)
    streamed = hs.train_probe(minilm, treebank, treebank, cache=False, **options)
    assert kept.uas > 0.35  # on what it has seen; right-branching has about 0.3
    assert abs(kept.uas - streamed.uas) < 0.003
    np.testing.assert_allclose(kept.reliance, streamed.reliance, rtol=0.02, atol=1e-3)
