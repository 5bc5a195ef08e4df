"""`headscope effects`."""

from __future__ import annotations

import pytest

from tests.app.test_cli import run


@pytest.mark.packaged
@pytest.mark.usefixtures("smollm2")
def test_effects_are_ranked_and_say_what_they_hold_for(capsys: pytest.CaptureFixture[str]) -> None:
    text = "When Mary and John went to the store, John gave a drink to"
    arguments = ["effects", text, "--target", " Mary", "--foil", " John", "--method", "gradient"]
    assert run(*arguments, "--top", "3") == 0
    said = capsys.readouterr().out
    assert "logit(' Mary') − logit(' John') = 6.1" in said
    assert "L23 H3" in said
    assert "of this text alone" in said
    assert run("effects", text, "--target", "Maryland Mary") == 2
    assert "A prediction is of one token" in capsys.readouterr().err
