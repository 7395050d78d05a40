"""What the sizes of layers are judged by: a GPU, layers of the user's own, and models that are built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from amp_migrate.catalogue.rules import CatalogueError
from amp_migrate.cli.commands import UserError
from amp_migrate.report.terminal import Terminal
from amp_migrate.run.config import Settings


def judged(
    settings: Settings, targets: Sequence[str], interpreter: str, terminal: Terminal
) -> Settings:
    """The settings with what was seen of the models that are named, once it is clear that all is there.

    Raises `UserError` where the GPU does not have the type, a file of layers is not valid, or a model
    cannot be built.
    """
    lint = settings.options.lint
    # Imported here: each is for a few users, and all pay for what is imported above.
    if lint.dtype is not None:
        from amp_migrate.catalogue.gpus.target import target

        try:
            target(lint.profile, lint.dtype, lint.align)
        except ValueError as error:
            raise UserError(str(error)) from None
    if lint.extend_rules:
        from amp_migrate.catalogue.layers import layer_table

        try:
            layer_table(lint.extend_rules)
        except CatalogueError as error:
            raise UserError(f"extend-rules: {error}") from None
    if not targets:
        return settings
    from amp_migrate.lint.probe.build import ProbeError, build_all

    terminal.say(
        f"building {', '.join(targets)} with {interpreter}: this runs your code"
    )
    try:
        probed = build_all(targets, Path.cwd(), interpreter, lint.extend_rules)
    except ProbeError as error:
        raise UserError(str(error)) from None
    return replace(
        settings,
        options=replace(settings.options, lint=replace(lint, probed=probed)),
    )
