"""The monitor is silent on correct code, and finds what is broken, where it is broken."""

from __future__ import annotations

import pytest
from broken import BROKEN, FIXTURES, SCRIPTS, Broken, golden
from correct import CORRECT
from monitored import watch
from projects_support import Project, migrated

from amp_migrate.smoke.harness.monitor_rules import RULES

MIGRATED = sorted(path.parent.name for path in FIXTURES.glob("*/migrated.py"))


@pytest.mark.parametrize("name", MIGRATED)
def test_silent_on_fixtures(name: str) -> None:
    seen = watch(golden(name))
    assert not seen.error
    assert seen.rules() == set()


@pytest.mark.parametrize("name", migrated())
def test_silent_on_projects(name: str) -> None:
    seen = watch(Project(name).after())
    assert not seen.error
    assert seen.rules() == set()


@pytest.mark.parametrize("name", SCRIPTS)
def test_silent_on_what_is_broken_later(name: str) -> None:
    seen = watch(SCRIPTS[name])
    assert not seen.error
    assert seen.rules(notes=True) == set()


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_finds(broken: Broken) -> None:
    seen = watch(broken.text())
    rules = seen.rules()
    assert (broken.rule, broken.line()) in rules, (rules, seen.error)
    assert {rule for rule, _ in rules} <= {broken.rule, *broken.others}


@pytest.mark.parametrize("name", CORRECT)
def test_silent_on_other_styles(name: str) -> None:
    seen = watch(CORRECT[name])
    assert not seen.error
    assert seen.rules(notes=True) == set()


def test_every_rule_is_tried() -> None:
    tried = {broken.rule for broken in BROKEN} | {"scaler-with-bfloat16"}
    assert tried == set(RULES)
    assert {rule.severity for rule in RULES.values()} == {"error", "warning", "note"}
