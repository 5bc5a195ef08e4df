"""Pages with several traces, a story, evidence and effects."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headscope as hs
from headscope.errors import InputError, UnknownName
from headscope.page.evidence import make_evidence
from headscope.page.payload import live_command
from headscope.page.replies import replies_for
from headscope.page.selection import foil_of
from tests.page.golden_payload import golden_encoder, golden_trace


def header_of(path: Path) -> dict[str, Any]:
    found = re.search(r'id="headscope-header">(.*?)</script>', path.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def test_a_story_is_a_list_of_selections(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    story = [
        ("It rests.", {"layer": 0, "head": 0, "word": 2, "tab": "matrix"}),
        ("Here too.", "#head=L1H0&off=L0H1"),
    ]
    golden_trace().save_page(page, story=story)  # type: ignore[arg-type]
    header = header_of(page)
    assert [step["selection"] for step in header["story"]] == [
        "head=L0H0&word=2&tab=matrix",
        "head=L1H0&off=L0H1",
    ]
    stored = header["traces"][0]["blocks"][0]["vectors"]
    assert [part["layer"] for part in stored] == [0, 1]
    with pytest.raises(
        UnknownName, match=r"Unknown part of a selection 'heads'\. Did you mean 'head'"
    ):
        golden_trace().save_page(page, story=[("", {"heads": 1})])
    with pytest.raises(InputError, match="There is no token 9: they go from 0 to 2"):
        golden_trace().save_page(page, story=[("", {"word": 9})])


def test_several_traces_in_one_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    one, two = golden_trace(), golden_encoder()
    hs.save_page([one, (two, two), two], page, story=[("Two.", {"example": 1, "tab": "lines"})])
    header = header_of(page)
    assert [example["traces"] for example in header["examples"]] == [[0], [1, 2], [3]]
    hs.save_page([two, two], page)
    assert [example["traces"] for example in header_of(page)["examples"]] == [[0, 1]]
    for wrong, message in (
        ([], "There is no trace to show"),
        ([one, "x"], "A Trace is needed, not str"),
        ([one, (one, one, one)], "one trace or compares two; 3 given"),
    ):
        with pytest.raises(InputError, match=message):
            hs.save_page(wrong, page)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="There is no example 2: they go from 0 to 0"):
        hs.save_page(one, page, story=[("", {"example": 2})])


def test_a_page_has_a_short_title_and_a_picture(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    golden_trace().save_page(page, titles=['A "title" that goes on and on and on and on and on'])
    text = page.read_text("utf-8")
    assert "<title>A &quot;title&quot; that goes on and on and on an… · headscope</title>" in text
    assert '<meta property="og:image" content="data:image/png;base64,iVBOR' in text
    assert '<meta property="og:description" content="What 2 × 2 attention heads of golden' in text


def test_effects_are_stored(tmp_path: Path, tiny_llama: hs.Model) -> None:
    page = tmp_path / "page.html"
    trace = tiny_llama.trace("the cat sat")
    trace.save_page(page)
    assert header_of(page)["traces"][0]["effects"] is None
    trace.save_page(page, effects=True)
    part = header_of(page)["traces"][0]["effects"]
    assert part["kind"] == "prediction"
    measured = trace.with_effects().effects
    assert measured is not None
    expected = hs.effects(tiny_llama, "the cat sat", measure="logprob", progress=False)
    np.testing.assert_allclose(measured.values, expected, atol=1e-5)
    path = tmp_path / "trace.nc"
    trace.with_effects().save(path)
    again = hs.open(path)
    assert isinstance(again, hs.Trace)
    assert again.effects is not None
    np.testing.assert_array_equal(again.effects.values, measured.values)
    again.save_page(page, effects=True)
    trace.save(path)
    with pytest.raises(InputError, match=r"do not know their model .* model\.trace\(text\)"):
        hs.open(path).save_page(page, effects=True)  # type: ignore[union-attr]


def test_effects_of_a_position_and_under_edits(tiny_llama: hs.Model) -> None:
    with tiny_llama.edit(hs.ablate(0, 0)):
        inside = tiny_llama.trace("the cat sat", effects=True)
    outside = inside.with_effects(position=1)
    assert inside.provenance["changed"] == "without L0 H0"
    assert inside.effects is not None
    assert outside.effects is not None
    assert float(inside.effects.values[0, 0]) == pytest.approx(0, abs=1e-5)
    assert float(outside.effects.values[0, 0]) == pytest.approx(0, abs=1e-5)
    assert outside.effects.position == 1
    assert np.abs(outside.effects.values).max() > 1e-4


@pytest.mark.parametrize("step", ["It rests.", ("It rests.",), (3, {"layer": 0}), None])
def test_a_step_that_is_none_is_refused(tmp_path: Path, step: Any) -> None:
    with pytest.raises(InputError, match="should be a caption and a selection"):
        golden_trace().save_page(tmp_path / "page.html", story=[step])


def test_bare_attention_has_no_command_and_a_readable_title(tmp_path: Path) -> None:
    weights = np.full((1, 2, 3, 3), 1 / 3, dtype=np.float32)
    for tokens in (["The", "cat", "sat"], ["The", " cat", " sat"]):
        hs.save_page(hs.Trace.from_arrays(weights, tokens), tmp_path / "page.html")
        header = header_of(tmp_path / "page.html")
        assert header["command"] == ""
        assert header["traces"][0]["title"] == "The cat sat"


def test_samples_go_from_strong_to_weak(tiny_bert: hs.Model) -> None:
    words = ["the", "a", "cat", "dog", "bird", "sat", "on", "in", "under", "mat", "tree"]
    texts = [" ".join(words[(i * j) % 11] for j in range(1, 4 + i % 7)) for i in range(60)]
    result = hs.analyze(tiny_bert, texts, ["distance", "head_samples"], progress=False)
    cards = make_evidence(result, tiny_bert.trace("the cat sat")).part["cards"]
    state = result.states["self"]["head_samples"]
    for layer, head in np.ndindex(2, 4):
        kept = state.isel(layer=layer, head=head)
        counts = kept["histogram"].values.reshape(5, -1).sum(1)[::-1]
        highest = kept["highest"].values[::-1, 0]
        samples = cards[f"L{layer}H{head}"]["samples"]
        weights = [sample["links"][0][2] for sample in samples]
        assert weights == sorted(weights, reverse=True)
        assert weights == pytest.approx(highest[highest >= 0], abs=1e-4)
        assert [s["share"] for s in samples] == pytest.approx(counts[counts > 0] / 60, abs=1e-4)
    assert (
        "samples"
        not in make_evidence(
            hs.analyze(tiny_bert, texts, "distance", progress=False), tiny_bert.trace("the cat sat")
        ).part["cards"]["L0H0"]
    )


def test_evidence_makes_cards(tmp_path: Path, tiny_bert: hs.Model, encoder_results: Any) -> None:
    trace = tiny_bert.trace("the cat sat")
    analysis = next(result for result in encoder_results if "distance" in result)
    probes = [result for result in encoder_results if "accuracy" in result]
    assert len(make_evidence(encoder_results, trace).part["cards"]) == 2 * 4
    card = make_evidence([analysis, *probes], trace).part["cards"]["L1H2"]
    number = next(number for number in card["numbers"] if number["name"] == "distance")
    assert number["value"] == pytest.approx(float(analysis["distance"][1, 2]), rel=1e-3)
    low, high = analysis["distance_interval"].values[:, 1, 2]
    assert (number["low"], number["high"]) == pytest.approx((low, high), rel=1e-3)
    assert number["unit"] == "tokens"
    assert card["sentences"][0].endswith(f"{analysis.n_documents} documents.")
    reordered = make_evidence([*probes, analysis], trace).part["cards"]["L1H2"]
    assert reordered["sentences"][0] == card["sentences"][0]
    before = next(number for number in card["looks"] if number["title"] == "the previous token")
    share = float(analysis["offset_share"].sel(offset=-1)[1, 2])
    assert before["value"] == pytest.approx(share, rel=1e-3)
    for relation in card["relations"]:
        assert relation["value"] > (relation["baseline"] or 0)
    trace.save_page(tmp_path / "page.html", evidence=analysis)
    assert analysis.corpus_name in header_of(tmp_path / "page.html")["evidence"]["about"]
    with pytest.raises(InputError, match="Give a run of the same model"):
        make_evidence(analysis, golden_trace())


def test_over_norms(tmp_path: Path, tiny_bert: hs.Model) -> None:
    trace = tiny_bert.trace("the cat sat", norms=True)
    trace.save_page(tmp_path / "page.html", over="norm")
    part = header_of(tmp_path / "page.html")["traces"][0]
    assert part["over"] == "norm"
    edit = {"edits": [{"kind": "off", "layer": 0, "head": 1}]}
    edited, _ = replies_for([trace.norm_weighted()]).reply("edit", edit)
    assert edited["traces"][0]["over"] == "norm"
    assert part["blocks"][0]["vectors"] == []
    with pytest.raises(InputError, match="norms=True"):
        tiny_bert.trace("the cat").save_page(tmp_path / "page.html", over="norm")


def test_the_command_for_a_live_page(tiny_bert: hs.Model) -> None:
    trace = tiny_bert.trace("the cat's mat", "the dog")
    shown = live_command(trace)
    assert shown == "headscope serve --model FOLDER --text 'the cat'\"'\"'s mat' --pair 'the dog'"
    compared = live_command(tiny_bert.trace("the cat"), tiny_bert.trace("the dog"))
    assert compared == "headscope serve --model FOLDER --text 'the cat' --compare 'the dog'"


@pytest.mark.packaged
@pytest.mark.long
def test_pages_are_small_and_quick(tmp_path: Path) -> None:
    """Default pages of SmolLM2: megabytes by tokens, each within 3 s on two cores."""
    model = hs.load("smollm2")
    text = " ".join(document.text for document in hs.demo_corpus())
    ids = model.require_tokenizer()(text)["input_ids"]
    for n_tokens, megabytes in ((133, 4), (291, 12), (547, 30)):
        trace = model.trace(model.require_tokenizer().decode(ids[:n_tokens]))
        began = time.process_time()
        trace.save_page(tmp_path / "page.html")  # type: ignore[attr-defined]
        assert time.process_time() - began < 6
        assert (tmp_path / "page.html").stat().st_size < megabytes * 1e6


def test_a_plain_encoder_has_no_position_to_predict_at(tiny_bert: hs.Model) -> None:
    encoder = hs.load(tiny_bert.module.base_model, tiny_bert.tokenizer, name="encoder")
    trace = encoder.trace("the cat sat")
    assert trace.with_effects().effects is not None
    with pytest.raises(InputError, match=r"encoder predicts nothing, .* at position 1"):
        trace.with_effects(position=1)


def test_an_exercise_has_questions_and_answers(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    trace = golden_trace()
    trace.save_page(
        page,
        exercise=[
            ("Which head decides?", {"word": 2}, "effect"),
            ("Find it.", "#word=1", "induction"),
            ("Which one?", {}, [(0, 1), (1, 0)]),
        ],
    )
    assert header_of(page)["exercise"] == [
        {"question": "Which head decides?", "selection": "word=2", "answer": "effect", "heads": []},
        {"question": "Find it.", "selection": "word=1", "answer": "induction", "heads": []},
        {"question": "Which one?", "selection": "", "answer": "heads", "heads": ["L0H1", "L1H0"]},
    ]
    trace.save_page(page)
    assert "exercise" not in header_of(page)
    wrong: list[tuple[Any, type[Exception], str]] = [
        (("Which?", {}), InputError, "a text, a selection and an answer"),
        (("Which?", {}, "inducton"), UnknownName, "Did you mean 'induction'"),
        (("Which?", {}, [(0, 9)]), InputError, "There is no head 9: they go from 0 to 1"),
        (("Which?", {}, []), InputError, r"should be 'effect', a role, or heads"),
        (("Which?", {"word": 9}, "effect"), InputError, "There is no token 9"),
    ]
    for question, error, message in wrong:
        with pytest.raises(error, match=message):
            trace.save_page(page, exercise=[question])
    bare = hs.Trace.from_arrays([[[[1.0, 0], [0.5, 0.5]]]], ["a", "b"])
    with pytest.raises(InputError, match="save the page with effects=True"):
        bare.save_page(page, exercise=[("Which?", {}, "effect")])


def test_a_language_model_opens_on_its_last_word(tmp_path: Path, tiny_llama: hs.Model) -> None:
    page = tmp_path / "page.html"
    trace = tiny_llama.trace("the cat sat on the mat")
    last = len(trace.tokens) - 1
    trace.save_page(page)
    rows = trace.attention.values[:, :, last].copy()
    rows[..., [0, last - 1, last]] = 0
    layer, head = np.unravel_index(rows.max(-1).argmax(), rows.shape[:2])
    parts = dict(p.split("=") for p in header_of(page)["selection"].split("&"))
    assert (parts["head"], parts["word"]) == (f"L{layer}H{head}", str(last))
    assert "tour" not in header_of(page), "a tour to the head that decides needs effects"
    measured = trace.with_effects()
    measured.save_page(page)
    sizes = np.abs(measured.effects.values.values)  # type: ignore[union-attr]
    layer, head = np.unravel_index(sizes.argmax(), sizes.shape)
    parts = dict(p.split("=") for p in header_of(page)["selection"].split("&"))
    assert parts["head"] == f"L{layer}H{head}"
    assert header_of(page)["tour"]["decider"] == parts["head"]


def test_the_foil_is_another_answer_in_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = golden_trace()
    texts = [token.strip() for token in trace.tokens]

    def foil(*answers: str) -> str:
        top = [(f" {answer}", 0.1) for answer in answers]
        monkeypatch.setattr(type(trace.predictions), "top", lambda self, position=None: top)
        return foil_of(trace)

    assert foil(texts[1], "elsewhere", texts[2]).strip() == texts[2]
    assert foil("elsewhere", texts[1]) == "", "the prediction is not in the text"
    assert foil(texts[1], texts[2].capitalize(), "elsewhere") == ""
