"""``python -m amp_migrate``, and the ``amp-migrate`` command."""

from __future__ import annotations

import sys


def run() -> None:
    """The command line; Ctrl-C is answered also while it is imported."""
    try:
        from amp_migrate.cli.main import main

        main(prog_name="amp-migrate")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    run()
