"""``python -m amp_migrate``: the same as the ``amp-migrate`` command."""

from __future__ import annotations

from amp_migrate.cli.main import main

if __name__ == "__main__":
    main(prog_name="amp-migrate")
