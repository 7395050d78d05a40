"""The rule catalogue: its files and examples, and that core and catalogue know the same codes."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from amp_migrate.catalogue import rules as catalogue
from amp_migrate.catalogue.protocol import protocol
from amp_migrate.catalogue.rules import CatalogueError, Refusal, refusal, rules

ROOT = Path(__file__).resolve().parent.parent
RULES = ROOT / "rules"
ALL = [rule for rule in rules() if isinstance(rule, Refusal)]

# Examples that need what the test environment lacks: another package, a process group, or (the
# compiled one) a C++ compiler.
NOT_RUN = {"AMP002", "AMP003", "AMP007", "AMP008", "AMP053"}


def by_code(rules: list[Refusal]) -> Any:
    return pytest.mark.parametrize("rule", rules, ids=lambda rule: rule.code)


def migrate(text: str, kind: str = "refusal") -> Any:
    if importlib.util.find_spec("amp_migrate.api") is None:
        pytest.skip("there is no amp_migrate.api to run examples through")
    from amp_migrate.api import migrate_source, modernize_source

    return modernize_source(text) if kind == "old-use" else migrate_source(text)


def test_every_file_is_a_rule() -> None:
    names = sorted(
        path.name for path in RULES.iterdir() if path.name.startswith("AMP0")
    )
    assert names == [f"{rule.code}-{rule.name}.toml" for rule in ALL]


def test_the_core_and_the_catalogue_know_the_same_codes() -> None:
    used = {
        code
        for path in (ROOT / "amp_migrate").rglob("*.py")
        if path.name != "catalogue.py"
        for code in re.findall(r"\bAMP0\d\d\b", path.read_text(encoding="utf-8"))
    }
    if "AMP090" not in used:
        pytest.skip("the core is not there yet")
    assert used == {rule.code for rule in ALL}


@by_code(list(ALL))
def test_words(rule: Refusal) -> None:
    assert rule.kind in ("refusal", "old-use")
    assert rule.summary == rule.summary.strip() and len(rule.summary) < 60
    assert not rule.summary.endswith(".")
    assert rule.message.endswith(".") and "\n" not in rule.message
    assert rule.remedy and len(rule.remedy) < 85 and not rule.remedy.endswith(".")
    assert rule.why.endswith((".", ")", '."')) and len(rule.why) > 100
    assert all(source.startswith("https://") for source in rule.sources)
    assert len(set(rule.sources)) == len(rule.sources)
    assert all(len(line) <= 100 for line in rule.by_hand)
    ast.parse("\n".join(rule.by_hand))


@pytest.fixture(scope="module")
def said_here() -> str:
    """All that the package may say."""
    return "\n".join(
        str(node.value)
        for path in (ROOT / "amp_migrate").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
    )


@by_code([rule for rule in ALL if rule.advice])
def test_advice_by_what_the_message_says(rule: Refusal, said_here: str) -> None:
    for phrase, lines in rule.advice.items():
        assert lines and all(len(line) <= 100 for line in lines)
        ast.parse("\n".join(lines))
        assert phrase in said_here, f"{rule.code}: no message says {phrase!r}"
        said = rule.by_hand_for(f"here {phrase} is", "clip(model)")
        assert said == tuple("clip(model)" if x == "{line}" else x for x in lines)
        assert rule.by_hand_for(f"here {phrase} is", "") != ()
    assert rule.by_hand_for("nothing of the kind", "clip(model)") == rule.by_hand


@by_code([rule for rule in ALL if rule.example])
def test_example_is_refused_with_its_code(rule: Refusal) -> None:
    result = migrate(rule.example, rule.kind)
    assert result.output == rule.example
    assert {diagnostic.code for diagnostic in result.diagnostics} == {rule.code}


@by_code([rule for rule in ALL if rule.counter_example])
def test_counter_example_is_migrated(rule: Refusal) -> None:
    result = migrate(rule.counter_example, rule.kind)
    assert [str(diagnostic.message) for diagnostic in result.diagnostics] == []
    assert result.changed
    assert rule.kind != "refusal" or "scaler.step(" in result.output


@by_code([rule for rule in ALL if rule.example and rule.code not in NOT_RUN])
def test_examples_run(
    rule: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)  # some save a checkpoint
    for text in filter(None, (rule.example, rule.counter_example)):
        exec(compile(text, f"{rule.code}.py", "exec"), {"__name__": "__main__"})


def test_unknown_code() -> None:
    with pytest.raises(CatalogueError, match="no rule file for the code 'AMP999'"):
        refusal("AMP999")


GOOD = """\
code = "AMP077"
name = "made-up"
kind = "refusal"
summary = "with a made-up reason"
message = "It is made up."
remedy = "unmake it"
why = "Because."
by_hand = ["pass"]
example = ""
sources = ["https://example.org"]
"""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('code = "AMP077"\n', "", "no code"),
        ("code =", "cod =", "unknown keys: cod"),
        ('"AMP077"', '"AMP078"', "holds the rule AMP078-made-up"),
        ('name = "made-up"', 'name = "other"', "holds the rule AMP077-other"),
        ('name = "made-up"', "name = 1", "name must be a string"),
        ('["pass"]', '"pass"', "by_hand must be a list of strings"),
        ('["pass"]', "[]", "by_hand must be a list of strings"),
        ('["pass"]', "[1]", "by_hand must be a list of strings"),
        ('"refusal"', '"misuse"', "kind must be 'refusal', 'old-use' or 'lint'"),
        ('code = "AMP077"', "code = ", "Invalid value"),
    ],
)
def test_malformed_file(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = tmp_path / "AMP077-made-up.toml"
    path.write_text(GOOD, encoding="utf-8")
    assert catalogue._load(path).name == "made-up"
    path.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(
        CatalogueError, match=f"^AMP077-made-up.toml: .*{re.escape(complaint)}"
    ):
        catalogue._load(path)


def test_the_protocol_is_an_automaton_whose_faults_are_rules() -> None:
    table = protocol()
    states = set(table["gradients"])
    moves = [to for call in table["calls"].values() for to in call.values()]
    broken = {to for to in moves if to not in states}
    assert all(set(call) == states for call in table["calls"].values())
    assert set(table["behind-backward"]) < broken
    broken |= set(table["behind-backward"].values())
    uses = [use for one in table["gradients"].values() for use in one.values()]
    broken |= {name for use in uses for name in use.values()}
    assert all(map(catalogue.lint_code, broken))
    assert {to for to in moves if to in states} == states
