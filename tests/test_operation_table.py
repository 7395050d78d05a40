"""Each row of ``rules/ops.toml`` against torch, under CUDA's policy of autocast."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import operation_laws

from amp_migrate.catalogue.operations import operations, rows
from amp_migrate.validate.harness import policy


def test_what_is_said_of_operations_holds() -> None:
    script = str(Path(operation_laws.__file__))
    run = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True
    )
    assert json.loads(run.stdout) == []


def test_every_operation_is_tried_or_named() -> None:
    tried = operation_laws.calls().keys()
    assert rows().keys() - tried <= operation_laws.NOT_TRIED
    words = {word for said in rows().values() for word in said}
    assert words <= operation_laws.LAWS.keys() | operation_laws.UNTRIED


def test_autocast_is_that_of_the_stand_in() -> None:
    """What the harness registers with torch, where it is an operation by that name."""

    def known(names: list[str]) -> set[str]:
        return {name.partition(".")[0] for name in names} & rows().keys()

    assert known(policy._LOW) <= operations("half")
    # Which earlier versions leave as it is.
    assert known(policy._FULL) <= operations("fp32") | {"rms_norm"}
    assert known(policy._PROMOTE) <= operations("promote")
    assert policy._BANNED in operations("raises")
