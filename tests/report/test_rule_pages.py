"""What is told of a rule: `amp-migrate explain`, and the pages of the documentation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amp_migrate.catalogue.rules import Rule, codes, rule, rules
from amp_migrate.cli.main import main
from amp_migrate.report.rules_pages import pages, with_table

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "rules"


def explain(*arguments: str) -> Result:
    command = ["explain", *arguments]
    return CliRunner().invoke(main, command, prog_name="amp-migrate")


def test_the_pages_are_those_of_the_rules() -> None:
    wanted = pages()
    found = {file.name: file.read_text("utf-8") for file in FOLDER.iterdir()}
    again = "python -m amp_migrate.report.rules_pages docs/rules README.md"
    assert sorted(found) == sorted(wanted), f"run: {again}"
    assert [name for name in wanted if wanted[name] != found[name]] == [], again


def test_the_table_of_the_readme_is_that_of_the_rules() -> None:
    text = (FOLDER.parent.parent / "README.md").read_text(encoding="utf-8")
    assert with_table(text) == text


@pytest.mark.parametrize("one", rules(), ids=lambda one: one.code)
def test_explain_tells_everything(one: Rule) -> None:
    result = explain(one.code)
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    assert words.startswith(f"{one.code} {one.name} ")
    for text in (one.message, one.why, *one.by_hand, *one.sources):
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
