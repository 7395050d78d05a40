"""Loaded by every Python that finds the archive on its path: has it join the run, if there is one.

The user's own `sitecustomize`, which this one hides, is run as well.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _run_hidden() -> None:
    archive = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != archive]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("AMP_SMOKE_RUN"):
    from _amp_smoke.children import join  # type: ignore[import-not-found]

    join()
_run_hidden()
