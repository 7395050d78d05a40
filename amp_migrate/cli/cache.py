"""`amp-migrate cache`: what is kept from run to run, and where."""

from __future__ import annotations

import click

from amp_migrate.cli.commands import Command
from amp_migrate.cli.exits import Told
from amp_migrate.cli.shared import CACHE_DIR
from amp_migrate.report.terminal import Terminal
from amp_migrate.report.words import number
from amp_migrate.run.cache.store import Store, folder

EXAMPLES = [
    ("amp-migrate cache", "where it is, and how large it is"),
    ("amp-migrate cache clear", "empty it"),
]


@click.command(
    cls=Command,
    examples=EXAMPLES,
    exits=Told,
)
@click.argument("action", type=click.Choice(["info", "clear"]), default="info")
@CACHE_DIR
def cache(*, action: str, cache_dir: str | None) -> Told:
    """Show where results of earlier runs are kept and how much space they take, or delete them."""
    terminal = Terminal()
    # What a run may keep is no matter here.
    store = Store(folder(cache_dir), limit=0)
    found = store.usage() if action == "info" else store.clear()
    done = "" if action == "info" else "deleted "
    size = f"{found.bytes / 2**20:.1f} MB"
    where = store.folder.absolute()
    terminal.write_line(f"{where}: {done}{number(found.entries, 'result')}, {size}")
    return Told.OK
