"""``python -m amp_migrate.lint.probe FOLDER package.module:factory [PYTHON]``: layers, as JSON lines."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from amp_migrate.catalogue.layers import layer_table
from amp_migrate.lint.probe.build import ProbeError, build

if __name__ == "__main__":
    folder, target, interpreter = (*sys.argv[1:], sys.executable)[:3]
    try:
        for made in build(target, Path(folder), layer_table(), interpreter):
            print(json.dumps(asdict(made)))
    except ProbeError as error:
        sys.exit(str(error))
