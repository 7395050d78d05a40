"""What is told of a rule: `amp-migrate explain`."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from amp_migrate.catalogue.rules import Refusal, Rule, codes, rule, rules
from amp_migrate.cli.main import main


def explain(*arguments: str) -> Result:
    command = ["explain", *arguments]
    return CliRunner().invoke(main, command, prog_name="amp-migrate")


@pytest.mark.parametrize("one", rules(), ids=lambda one: one.code)
def test_explain_tells_everything(one: Rule) -> None:
    result = explain(one.code)
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    assert words.startswith(f"{one.code} {one.name} ")
    helps = (one.remedy,) if isinstance(one, Refusal) else ()
    for text in (one.message, *helps, one.why, *one.by_hand, *one.sources):
        assert " ".join(text.split()) in words
    assert json.loads(explain(one.code, "--output-format", "json").stdout)["why"]


def test_a_beginning_lists_and_nothing_lists_all() -> None:
    lines = explain("tcu1").stdout.splitlines()
    assert len(lines) == sum(code.startswith("TCU1") for code in codes()) > 1
    assert rule("TCU102").summary in lines[1]
    assert len(explain().stdout.splitlines()) == len(codes())
    data = json.loads(explain("AMP05", "--output-format", "json").stdout)
    assert [one["code"] for one in data] == ["AMP051", "AMP052", "AMP053"]


def test_an_unknown_code() -> None:
    result = explain("AMP113X")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: there is no code 'AMP113X'; did you mean ")
    assert len(result.stderr.splitlines()) == 1
