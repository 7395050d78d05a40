"""What a shell offers at the Tab key, where click does not know it by itself."""

from __future__ import annotations

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from amp_migrate.cli.commands import IMPLIED


def files(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Files and folders, which the shell itself knows."""
    return [CompletionItem(incomplete, type="file")]


def folders(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Folders alone."""
    return [CompletionItem(incomplete, type="dir")]


def paths(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Files, and commands where the first word is still to come."""
    found = files(ctx, param, incomplete)
    parent = ctx.parent
    # click 8.1 says of paths that are not there, too, that the command line has them.
    begun = any(
        value and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        for name, value in ctx.params.items()
    )
    if parent is None or IMPLIED not in ctx.meta or begun:
        return found
    assert isinstance(parent.command, click.Group)
    names = parent.command.list_commands(parent)
    return found + [CompletionItem(one) for one in names if one.startswith(incomplete)]


def codes(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Codes of the catalogue; of a list with commas, its last."""
    from amp_migrate.catalogue.rules import codes as known

    before, comma, last = incomplete.rpartition(",")
    return [
        CompletionItem(f"{before}{comma}{one}")
        for one in known()
        if one.startswith(last.upper())
    ]


def profiles(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Kinds of GPU."""
    from amp_migrate.catalogue.gpus import profiles as known

    return [CompletionItem(one) for one in known.names() if one.startswith(incomplete)]
