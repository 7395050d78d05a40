"""`amp-migrate explain`: what a code means, why it matters, and what to do."""

from __future__ import annotations

import difflib
import json

import click

from amp_migrate.catalogue.rules import codes, rule
from amp_migrate.cli import completion
from amp_migrate.cli.commands import Command, UserError
from amp_migrate.cli.exits import Told
from amp_migrate.cli.shared import TEXT_OR_JSON
from amp_migrate.report import rules
from amp_migrate.report.terminal import Terminal

EXAMPLES = [
    ("amp-migrate explain AMP013", "why a loop was left alone"),
    ("amp-migrate explain TCU101", "what a finding of lint means"),
    ("amp-migrate explain TCU", "the codes that begin like this"),
]


@click.command(
    cls=Command,
    examples=EXAMPLES,
    exits=Told,
)
@click.argument("code", metavar="CODE", default="", shell_complete=completion.codes)
@TEXT_OR_JSON
def explain(*, code: str, output_format: str) -> Told:
    """Explain what a code means: why it matters, an example, and what to do by hand.

    CODE may be the beginning of several, which are then listed; without it, all are.
    """
    terminal = Terminal()
    wanted = code.strip().upper()
    known = codes()
    found = [one for one in known if one.startswith(wanted)]
    if not found:
        close = difflib.get_close_matches(wanted, known, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise UserError(f"there is no code {code!r}{hint}")
    if output_format == "json":
        told = [rules.as_data(rule(one)) for one in found]
        data = told[0] if wanted in found else told
        terminal.write_text(json.dumps(data, indent=2) + "\n")
    elif wanted in found:
        terminal.write_text(rules.as_text(rule(wanted)))
    else:
        for one in found:
            terminal.write_line(rules.as_line(rule(one)))
    return Told.OK
