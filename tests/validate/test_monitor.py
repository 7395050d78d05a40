"""The monitor is silent on correct code, and finds what is broken, where it is broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from broken import BROKEN, FIXTURES, SCRIPTS, Broken, golden
from correct import CORRECT, ON_THE_CPU
from monitored import watch
from projects_support import Project, migrated

from amp_migrate.catalogue.rules import lint_rules


def told() -> list[str]:
    """The rules of lint that the monitor, or the table that it reads, calls by name."""
    files = [*HARNESS.glob("*.py"), ROOT / "rules" / "protocol.toml"]
    said = {
        word
        for file in files
        for word in re.findall(r'"([a-z0-9-]+)"', file.read_text(encoding="utf-8"))
    }
    return [rule.name for rule in lint_rules() if rule.name in said]


ROOT = Path(__file__).parents[2]
HARNESS = ROOT / "amp_migrate" / "validate" / "harness" / "protocol"
MIGRATED = sorted(path.parent.name for path in FIXTURES.glob("*/migrated.py"))


@pytest.mark.parametrize("name", MIGRATED)
def test_silent_on_fixtures(name: str) -> None:
    seen = watch(golden(name))
    assert not seen.error
    assert seen.rules() == set()


@pytest.mark.parametrize("name", migrated())
def test_silent_on_projects(name: str) -> None:
    project = Project(name)
    seen = watch(project.after())
    assert not seen.error
    assert {rule for rule, _ in seen.rules()} == project.reported


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


@pytest.mark.parametrize("name", ON_THE_CPU)
def test_silent_on_the_cpu(name: str) -> None:
    text = ON_THE_CPU[name]
    seen = watch(text, forced=False)
    assert not seen.error
    assert seen.rules(notes=True) == set()
    # It is not silent because it is blind.
    clipped = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    broken = watch(text.replace("scaler.unscale_(optimizer)", clipped), forced=False)
    assert {rule for rule, _ in broken.rules()} == {
        "clipped-scaled-gradients",
        "read-scaled-gradients",
    }


def test_every_rule_is_tried() -> None:
    tried = {broken.rule for broken in BROKEN} | {"scaler-with-bfloat16"}
    text = (ROOT / "docs" / "validate.md").read_text(encoding="utf-8")
    assert tried == set(told()) == set(re.findall(r"^\| .*\| `([\w-]+)` ", text, re.M))


WEIGHTS = "\nprint([p.detach().numpy().tobytes().hex() for p in model.parameters()])\n"
BY_HAND = [broken.text() for broken in BROKEN if broken.base == "small"]


@pytest.mark.parametrize("text", [*CORRECT.values(), *BY_HAND])
def test_changes_no_numbers(text: str) -> None:
    if "model = " not in text:
        text = text.replace("out = ", "model = out = ")
    alone = watch(text + WEIGHTS, monitored=False)
    watched = watch(text + WEIGHTS)
    assert alone.output == watched.output
    assert alone.randomness == watched.randomness
    assert alone.error == watched.error


def test_keeps_nothing_alive() -> None:
    ending = """\
import gc, weakref
kept = [weakref.ref(thing) for thing in (optimizer, scaler, model[0].weight, loss)]
grad = model[0].weight.grad.untyped_storage()._weak_ref()
assert None not in [reference() for reference in kept]
del optimizer, scaler, model, loss
gc.collect()
print([reference() for reference in kept], torch.UntypedStorage._expired(grad))
"""
    seen = watch(SCRIPTS["small"] + ending)
    assert not seen.error
    assert seen.output == "[None, None, None, None] True\n"


def test_findings_are_told_at_once_and_counted_at_the_end() -> None:
    broken = next(b for b in BROKEN if b.name == "clip by value")
    seen = watch(broken.text())
    (new,), (final,) = seen.news, seen.findings
    assert (new["count"], final["count"]) == (1, 6)
    assert new["path"].endswith("script.py")
    assert {**new, "count": 6, "final": True} == final


def test_a_run_that_is_cut_off_has_no_update_missing() -> None:
    stop = "    scaler.step(optimizer)\n    if step == 2: raise KeyboardInterrupt\n"
    seen = watch(SCRIPTS["small"].replace("    scaler.step(optimizer)\n", stop))
    assert seen.error.startswith("KeyboardInterrupt")
    assert seen.findings == []


def test_what_is_disabled_is_not_judged() -> None:
    clipped = next(b for b in BROKEN if b.name == "clip by value").text()
    seen = watch(clipped, forced=False)
    assert not seen.error
    assert seen.findings == []


def test_a_scaler_is_useless_with_bfloat16() -> None:
    text = SCRIPTS["small"].replace(
        '"cuda", dtype=torch.float16', '"cpu", torch.bfloat16'
    )
    seen = watch(text.replace('GradScaler("cuda")', 'GradScaler("cpu")'), forced=False)
    assert not seen.error
    assert seen.rules(notes=True) == {("scaler-with-bfloat16", 15)}
