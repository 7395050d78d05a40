"""What the documentation shows is what the program does: every fenced block of every page is tried."""

from __future__ import annotations

import configparser
import doctest
import importlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from fixtures_support import FIXTURES
from libcst.codemod import CodemodCommand
from pages_support import (
    DOCS,
    NAMES,
    PAGES,
    ROOT,
    Block,
    Page,
    Sandbox,
    hunks,
    parse,
    same_output,
)

from amp_migrate import api
from amp_migrate.catalogue.rules import codes, lint_rule
from amp_migrate.cli.main import main
from amp_migrate.run.config import load
from amp_migrate.server.settings import KEYS, EditorSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TITLED = {"python", "toml", "yaml", "json", "diff", "lua", "ini"}
PROGRAMS = set("amp-migrate python python3 pip git mkdocs flake8 .ci/run".split())
"""What commands that are only listed may begin with."""
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))

SCHEMAS = {".gitlab-ci.yml": "vendor.gitlab-ci"}
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))

every_page = pytest.mark.parametrize("page", [*map(Page, PAGES)], ids=NAMES)


@every_page
def test_every_block_is_of_a_kind_that_is_tried(page: Page) -> None:
    fences = re.findall(r"^\s*(?:```|~~~)", page.text, flags=re.M)
    assert len(fences) == 2 * len(page.blocks), "a fence that nobody looks into"
    for block in page.blocks:
        assert bool(block.title) == (block.language in TITLED), block.place
        assert block.language in TITLED | {"console", "pycon", "mermaid"}, block.place


@every_page
def test_blocks(
    page: Page,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """With --update-golden: sessions are written anew."""
    update = request.config.getoption("--update-golden")
    if page.trains:
        pytest.importorskip("torch")
    sandbox = Sandbox(tmp_path)
    monkeypatch.chdir(sandbox.work)
    for block in page.blocks:
        if block.is_session:
            printed = [sandbox.run(command) for command, _ in block.commands]
            if update:
                page.show(block, printed)
            else:
                _session(block, printed)
        elif block.language == "console":
            _listed(block)
        elif block.language == "pycon":
            _doctest(block)
        elif block.language == "diff":
            _diff(block, tmp_path)
        elif block.title:
            sandbox.write(block.title, block.text)
            _file(block, sandbox)


def _session(block: Block, printed: list[str]) -> None:
    for (command, wanted), got in zip(block.commands, printed, strict=True):
        assert same_output(wanted, got), f"{block.place}: {command}\n{got}"


def _listed(block: Block) -> None:
    for line in block.lines:
        if "_AMP_MIGRATE_COMPLETE=" in line:
            continue  # tests/test_completion.py
        first, *rest = shlex.split(line)
        assert first in PROGRAMS, f"{block.place}: {line}"
        if first == "amp-migrate":
            parse(line)
        if first.startswith("python") and rest[0] == "-m" and rest[1] != "venv":
            assert importlib.util.find_spec(rest[1]), f"{block.place}: {line}"
        if "libcst.tool" in rest:
            module, _, name = rest[rest.index("-x") + 1].rpartition(".")
            command = getattr(importlib.import_module(module), name)
            assert issubclass(command, CodemodCommand), block.place


def _doctest(block: Block) -> None:
    test = doctest.DocTestParser().get_doctest(
        block.text, {}, block.page, block.page, block.line
    )
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(test, out=said.append).failed == 0, "".join(said)


def _diff(block: Block, folder: Path) -> None:
    """The title is the fixture that is changed like that."""
    fixture = ROOT / block.title
    assert FIXTURES in fixture.parents, block.place
    plain = fixture / ("plain.py" if (fixture / "plain.py").exists() else "plain")
    inner = folder / f"line{block.line}"
    inner.mkdir()
    rewritten = Sandbox(inner).migrated(plain)
    before, after = (
        [file.read_text("utf-8") for file in files]
        for files in (
            [plain] if plain.is_file() else sorted(plain.rglob("*.py")),
            sorted(rewritten.rglob("*.py")),
        )
    )
    for old, new in hunks(block.text):
        assert any(
            f"\n{old}" in f"\n{first}" and f"\n{new}" in f"\n{second}"
            for first, second in zip(before, after, strict=True)
        ), f"{block.place}: not what becomes of {block.title}:\n{old}"


def _file(block: Block, sandbox: Sandbox) -> None:
    if block.language == "python":
        compile(block.text, block.place, "exec")
    elif block.language == "toml":
        _served(tomllib.loads(block.text))
        if Path(block.title).name == "pyproject.toml":
            folder = (sandbox.work / block.title).parent
            assert load([str(folder)]).config_file == folder / "pyproject.toml"
    elif block.language == "json":
        _served(json.loads(block.text))
    elif block.language == "ini":
        configparser.ConfigParser().read_string(block.text)
    elif block.language == "lua":
        (words,) = re.findall(r"cmd = \{(.*)\}", block.text)
        (options,) = re.findall(r"init_options = \{ (\w+) = true \}", block.text)
        parse(" ".join(json.loads(f"[{words}]")))
        EditorSettings.read({options: True})
    elif block.language == "yaml":
        data = yaml.safe_load(block.text)
        for line in _strings(data):
            if line.startswith("amp-migrate "):
                parse(line)
        if block.title == ".pre-commit-config.yaml":
            _hooks(data)
        elif block.title in SCHEMAS or block.title.startswith(".github/"):
            _pipeline(sandbox.work / block.title, data)


def _served(data: dict[str, Any]) -> None:
    """How an editor starts the server, where that is what it is about."""
    if "migration" in data:
        EditorSettings.read(data)
    for inner in (data.get("language-server", {}).get("amp-migrate"), data):
        if inner is None:
            continue
        short = {key.rpartition(".")[2]: value for key, value in inner.items()}
        if "command" in short:
            arguments = short.get("args") or short["commandArguments"]
            parse(shlex.join([short["command"], *arguments]))
            EditorSettings.read(short.get("config") or short["initializationOptions"])


def _hooks(data: dict[str, Any]) -> None:
    entries = {hook["id"]: hook["entry"] for hook in HOOKS}
    ours = (repo for repo in data["repos"] if "amp-migrate" in repo["repo"])
    for hook in (one for repo in ours for one in repo["hooks"]):
        parse(shlex.join([*shlex.split(entries[hook["id"]]), *hook.get("args", [])]))


def _pipeline(file: Path, data: dict[str, Any]) -> None:
    """What GitHub and GitLab read, and what it asks of our action."""
    for job in data.get("jobs", {}).values():
        for step in job["steps"]:
            if "/amp-migrate@" in step.get("uses", ""):
                assert step["with"].keys() <= ACTION["inputs"].keys()
                named = re.findall(
                    rf"steps\.{step['id']}\.outputs\.([\w-]+)", str(data)
                )
                assert named and set(named) <= ACTION["outputs"].keys()
    if importlib.util.find_spec("check_jsonschema"):
        schema = SCHEMAS.get(file.name, "vendor.github-workflows")
        words = ["-m", "check_jsonschema", "--builtin-schema", schema, str(file)]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def _strings(data: object) -> list[str]:
    """The lines of all strings in what YAML holds."""
    if isinstance(data, dict):
        return [one for value in data.values() for one in _strings(value)]
    if isinstance(data, list):
        return [one for value in data for one in _strings(value)]
    return data.splitlines() if isinstance(data, str) else []


@every_page
def test_what_the_text_names_exists(page: Page) -> None:
    inline = " ".join(re.findall(r"`[^`\n]+`", page.prose))
    context = click.Context(main)
    commands = [main.get_command(context, name) for name in main.list_commands(context)]
    known = {
        option
        for command in (main, *commands)
        if command is not None
        for parameter in command.get_params(context)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    foreign = {"--index-url", "--update-golden"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", inline)) <= known | foreign
    named = set(re.findall(r"\b(?:AMP|TCU)\d{3}\b", page.text))
    assert named <= set(codes())
    files = {
        path.as_posix() for path in ROOT.rglob("*.py") if ".venv" not in path.parts
    }
    for name in re.findall(r"`([\w./]+\.py)`", page.prose):
        titles = {block.title for block in page.blocks}
        assert name in titles or any(path.endswith(f"/{name}") for path in files), name


def test_the_readme_is_short_and_sets_up_with_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.encode()) <= 10_000
    assert len(re.findall(r"^python3 -m venv \.venv && ", text, flags=re.M)) == 2


def test_links_lead_somewhere() -> None:
    """mkdocs looks after those inside of docs/; here those of the pages beside it."""
    for name in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#:]+)", (ROOT / name).read_text("utf-8")):
            assert (ROOT / target).exists(), f"{name}: {target}"


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for path in DOCS.rglob("*.md"):
        name = path.relative_to(DOCS).as_posix()
        assert name in text or re.match(r"rules/[A-Z]+\d+\.md", name), name


def test_the_whole_api_is_documented() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^::: amp_migrate\.api\.(\w+)$", text, flags=re.M)) == {
        *api.__all__
    }


def test_the_rules_of_the_monitor_are_documented() -> None:
    text = (DOCS / "validate.md").read_text(encoding="utf-8")
    row = r"^\| \[(\w+)\]\(rules/\1.md\) \| `([\w-]+)` \| (\w+) \|$"
    rows = re.findall(row, text, flags=re.M)
    assert rows
    for code, name, severity in rows:
        assert (lint_rule(code).name, lint_rule(code).severity) == (name, severity)


def test_the_settings_of_the_server_are_documented() -> None:
    text = (DOCS / "editors.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([\w-]+)` \|", text, flags=re.M) == [*KEYS]
