"""`amp-migrate server`: what an editor starts, to be told while somebody types."""

from __future__ import annotations

from importlib.util import find_spec

import click

from amp_migrate.cli.commands import Command, UserError
from amp_migrate.cli.exits import Served

EXAMPLES = [("amp-migrate server", "what an editor starts")]
INSTALL = 'pip install "amp-migrate[server]"'


@click.command(
    cls=Command,
    examples=EXAMPLES,
    exits=Served,
)
@click.option(
    "--stdio",
    is_flag=True,
    help="Use standard input and output. It always does.",
)
def server(*, stdio: bool) -> Served:
    """Show findings and training loops in an editor as you type, and fix or migrate them there.

    It speaks the language server protocol on standard input and output; an editor starts it.
    """
    if find_spec("pygls") is None:
        raise UserError(f"the server needs pygls: {INSTALL}")
    # Imported here: nothing else needs it.
    from amp_migrate.server.app import serve

    serve(Served.INTERRUPTED)
    return Served.OK
