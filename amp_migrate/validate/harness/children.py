"""What every Python process of a run has: rewritten sources are served, writes go to scratch.

The run is a JSON file that an environment variable names, so that processes started by the script
find it; Python loads `sitecustomize` from the archive, which calls `join`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

from .log import Log
from .overlay.confine import SYSTEM
from .overlay.overlay import Overlay
from .serve import Served

VARIABLE = "AMP_SMOKE_RUN"


def enter(path: str) -> dict[str, Any]:
    """Begin the run that a file describes, in this process and those it will start."""
    os.environ[VARIABLE] = path
    with open(path, encoding="utf-8") as file:
        run: dict[str, Any] = json.load(file)
    log = Log(run["log"])
    texts = {}
    for original, copy in run["served"].items():
        with open(copy, "rb") as text:
            texts[original] = text.read()
    sys.dont_write_bytecode = True
    tempfile.tempdir = os.environ["TMPDIR"] = os.path.join(run["scratch"], "tmp")
    os.makedirs(tempfile.tempdir, exist_ok=True)
    Overlay(run["scratch"], SYSTEM, [run["cwd"]]).install()
    Served(texts, lambda file: log.say("loaded", path=file)).install()
    return run


def join() -> None:
    """In a process that the script started: enter its run."""
    path = os.environ.get(VARIABLE)
    if path and os.path.exists(path):
        Log(enter(path)["log"]).say("process")
