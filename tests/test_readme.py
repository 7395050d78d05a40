"""What the README says about the program is what the program does."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path

import click
import pytest

from amp_migrate.catalogue.rules import refusals, rules
from amp_migrate.cli.exits import ExitCode
from amp_migrate.run.config import KEYS, load
from amp_migrate.run.config_lint import LINT_KEYS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.M | re.S)


def needs(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"there is no {module} yet")


def test_tables_of_codes() -> None:
    rows = re.findall(r"^\| (AMP0\d\d) \| (.+) \|$", README, flags=re.M)
    assert sorted(rows) == sorted(
        (rule.code, rule.summary) for rule in rules() if rule.kind != "lint"
    )
    codes = [rule.code for rule in refusals()]
    assert [code for code, _ in rows if code in codes] == codes


def test_table_of_exit_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", README, flags=re.M)
    assert rows == [(str(int(code)), code.meaning) for code in ExitCode]


def test_configuration(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    table = tomllib.loads(text)["tool"]["amp-migrate"]
    assert table.keys() == KEYS.keys()
    # Some have no value that says "as by default".
    shown = table["lint"].keys() | set(re.findall(r"^# ([\w-]+) = ", text, re.M))
    assert shown == LINT_KEYS.keys()
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    assert load([str(tmp_path)]).config_file == tmp_path / "pyproject.toml"


def test_diff_is_what_the_tool_writes() -> None:
    needs("amp_migrate.api")
    from amp_migrate.api import migrate_source

    diff, *_ = blocks("diff")
    lines = [line or " " for line in diff.splitlines()[3:]]
    # What the hunk leaves out above.
    head = "import torch\nfrom torch import nn\n\nfrom data import loader\n"
    before, after = (
        head + "".join(f"{line[1:]}\n" for line in lines if line[0] in f" {sign}")
        for sign in "-+"
    )
    result = migrate_source(before)
    assert result.diagnostics == ()
    assert result.output == after


def test_options_exist() -> None:
    needs("amp_migrate.cli.main")
    from amp_migrate.cli.main import main

    context = click.Context(main)
    names = main.list_commands(context)
    known = {
        option
        for command in (main, *(main.get_command(context, name) for name in names))
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    text = "\n".join(re.findall(r"`[^`\n]*`|^amp-migrate .*$", README, flags=re.M))
    text = re.sub(r" -- .*", "", text)  # what goes to the script
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) - {"--index-url"}
    assert named <= known


def test_python_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs("amp_migrate.api")
    (code,) = (text for text in blocks("python") if "import" in text)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    script = refusals()[0].counter_example
    (tmp_path / "src" / "train.py").write_text(script, encoding="utf-8")
    exec(compile(code, "README.md", "exec"), {"text": script})
    printed = capsys.readouterr().out
    assert "scaler.update()" in printed
    assert re.search(r"\['.*train\.py'\]", printed)
    assert (tmp_path / "src" / "train.py").read_text(encoding="utf-8") == script


def test_codemod_command_exists() -> None:
    needs("amp_migrate.api")
    (dotted,) = re.findall(r"libcst\.tool codemod -x (\S+) ", README)
    module, _, name = dotted.rpartition(".")
    from libcst.codemod import CodemodCommand

    command = getattr(importlib.import_module(module), name)
    assert issubclass(command, CodemodCommand)
