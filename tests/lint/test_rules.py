"""Every rule of lint against its own bad and good example."""

from __future__ import annotations

import re

import pytest
from lint_support import lint

from amp_migrate.catalogue.rules import LintRule, codes, lint_rules
from amp_migrate.lint.checks import CHECKS
from amp_migrate.lint.suppressions import UNUSED

ALL = lint_rules()


def by_code(rules: tuple[LintRule, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rule", rules, ids=lambda rule: rule.code)


def test_every_code_of_a_check_has_a_rule_and_every_rule_a_check() -> None:
    checked = [UNUSED, *(code for check in CHECKS for code in check.codes)]
    assert len(checked) == len(set(checked))
    assert set(checked) == {rule.code for rule in ALL} <= set(codes())


@by_code(ALL)
def test_words(rule: LintRule) -> None:
    assert rule.summary == rule.summary.strip() and len(rule.summary) < 70
    assert not rule.summary.endswith(".")
    assert rule.message.endswith(".") and "\n" not in rule.message
    assert rule.why.endswith((".", ")", '."')) and len(rule.why) > 100
    assert rule.example and rule.counter_example
    assert all(source.startswith("https://") for source in rule.sources)
    assert len(set(rule.sources)) == len(rule.sources)
    assert all(len(line) <= 100 for line in rule.by_hand)
    assert re.fullmatch(r"(AMP[12]|TCU[123])\d\d", rule.code)


@by_code(ALL)
def test_bad_example(rule: LintRule) -> None:
    found = lint(rule.example, select=(rule.code,), **rule.options)
    assert {finding.code for finding in found} == {rule.code}


@by_code(ALL)
def test_good_example(rule: LintRule) -> None:
    found = lint(rule.counter_example, select=(rule.code,), **rule.options)
    assert found == ()
