"""Pages of the documentation that are made from what the program knows of itself.

``python -m amp_migrate.cli.pages docs`` writes those of the rules, the configuration and the command line.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from amp_migrate.catalogue.gpus import profiles
from amp_migrate.catalogue.rules import rules
from amp_migrate.cli.commands import Command
from amp_migrate.cli.main import main as program
from amp_migrate.report import rules as words
from amp_migrate.run.config import KEYS, TABLE
from amp_migrate.run.config_lint import LINT_KEYS
from amp_migrate.run.keys import Key

NAME = "amp-migrate"
RULES = "rules"


def pages() -> dict[str, str]:
    """All pages that are made, by their paths inside the documentation."""
    everything = rules()
    return {
        "configuration.md": _configuration(),
        "command-line.md": _command_line(),
        f"{RULES}/index.md": words.index(everything),
    } | {f"{RULES}/{rule.code}.md": words.page(rule) for rule in everything}


def _configuration() -> str:
    own = {key: one for key, one in KEYS.items() if key != "lint"}
    example = [_example(TABLE, own), "", _example(f"{TABLE}.lint", LINT_KEYS)]
    return (
        "\n\n".join(
            [
                "# Configuration",
                f"The settings of a project stand in the table `[tool.{TABLE}]` of its `pyproject.toml`: the"
                " nearest one above the\npaths of a run that has such a table, or the one that `--config`"
                " names. Options on the command line win over it.\nAn unknown key, or a value that means"
                " nothing, is an error (exit code 2) that names the key.",
                "All keys at once, each with a value that is not its default:",
                "\n".join(['```toml title="pyproject.toml"', *example, "```"]),
                f"## [tool.{TABLE}]",
                *_keys(own, "migrate"),
                f"## [tool.{TABLE}.lint]",
                *_keys(LINT_KEYS, "lint"),
                "## GPU profiles",
                "`profile` takes one of: "
                + ", ".join(f"`{name}`" for name in profiles.names())
                + ".",
            ]
        )
        + "\n"
    )


def _example(name: str, keys: Mapping[str, Key]) -> str:
    lines = [f"{key} = {one.example}" for key, one in keys.items()]
    return "\n".join([f"[tool.{name}]", *lines])


def _keys(keys: Mapping[str, Key], command: str) -> list[str]:
    parts = []
    for key, one in keys.items():
        facts = [f"values: {one.values}", f"default: {one.default}"]
        if option := _option(command, key):
            facts.append(f"on the command line: `{option}`")
        parts += [f"### `{key}`", one.meaning, "\n".join(f"- {fact}" for fact in facts)]
    return parts


def _option(command: str, key: str) -> str:
    """The option that says the same as a key; empty where there is none."""
    found = program.get_command(click.Context(program), command)
    assert found is not None
    for option in found.params:
        if f"--{key}" in option.opts:
            return "/".join([*option.opts, *option.secondary_opts])
    return ""


def _command_line() -> str:
    parts = [
        "# Command line",
        inspect.cleandoc(program.help or ""),
        f"`{NAME} PATHS` is short for `{NAME} migrate PATHS`. Each command prints its part of this page with"
        " `--help`.",
    ]
    context = click.Context(program, info_name=NAME)
    for name in program.list_commands(context):
        command = program.get_command(context, name)
        assert isinstance(command, Command)
        parts += _command(command, click.Context(command, context, info_name=name))
    return "\n\n".join(parts) + "\n"


def _command(command: Command, context: click.Context) -> list[str]:
    options = [
        f"| {_cell(f'`{record[0]}`')} | {_cell(record[1])} |"
        for option in command.params
        if isinstance(option, click.Option)
        if (record := option.get_help_record(context))
    ]
    examples = [f"{line}  # {meaning}" for line, meaning in command.examples]
    codes = [f"| {code.value} | {code.meaning} |" for code in command.exits]
    return [
        f"## {NAME} {context.info_name}",
        inspect.cleandoc(command.help or ""),
        "\n".join(["```console", *examples, "```"]),
        "\n".join(["| option | |", "|---|---|", *options]),
        "\n".join(["| exit code | |", "|---|---|", *codes]),
    ]


def _cell(text: str) -> str:
    return " ".join(text.replace("|", ", ").split())


def main(folder: str) -> None:
    """Write all pages into a folder, and take out those of rules that are gone."""
    target = Path(folder)
    wanted = pages()
    (target / RULES).mkdir(parents=True, exist_ok=True)
    for file in (target / RULES).glob("*.md"):
        if f"{RULES}/{file.name}" not in wanted:
            file.unlink()
    for name, text in wanted.items():
        (target / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
