"""Several scripts in one call, one after the other or at the same time."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from test_ending import ENDLESS, _lives, _started, _until, _validate
from validated import PLAIN

from amp_migrate.cli.exits import Proof

NOTHING = "print('no training here')\nif __name__ == '__main__':\n    pass\n"


def verdicts(out: str) -> Any:
    """Without what is another time each time."""
    found = json.loads(out)["scripts"]
    for one in found:
        del one["seconds"]
    return found


def test_processes_come_to_the_same_in_the_same_order(validate: Any) -> None:
    files = {"slow.py": "import time; time.sleep(1)\n" + PLAIN, "none.py": NOTHING}
    files["b.py"] = PLAIN.replace("range(6)", "range(3)")
    names = ["slow.py", "none.py", "b.py"]
    options = [*names, "--monitor-only", "--json"]
    alone = validate(files, *options)
    assert [one["script"] for one in verdicts(alone.out)] == names
    assert [one["steps"] for one in verdicts(alone.out)] == [6, 0, 3]
    together = validate({}, *options, "--jobs", "2")
    assert (together.code, together.err) == (alone.code, alone.err)
    assert verdicts(together.out) == verdicts(alone.out)


def test_scripts_of_a_project_run_in_it_as_it_is_configured(validate: Any) -> None:
    files = {
        "own/pyproject.toml": '[tool.amp-migrate]\ndtype = "bfloat16"\n',
        "own/steps.txt": "2",
        "loose/none.py": NOTHING,
    }
    files["own/train.py"] = PLAIN.replace(
        "range(6)", "range(int(open('steps.txt').read()))"
    )
    found = verdicts(validate(files, "own", "loose", "--json").out)
    assert [one["script"] for one in found] == ["own/train.py", "loose/none.py"]
    assert (found[0]["outcome"], found[0]["steps"]) == ("proven", 2)
    # Nothing is scaled for bfloat16.
    assert "L1 scaled" not in {level["level"] for level in found[0]["levels"]}


def test_arguments_follow_two_dashes(validate: Any) -> None:
    said = validate({"a.py": PLAIN}, "a.py", "5")
    assert said.code == 2
    assert "5: no such file; arguments of the script follow --" in said.err


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_all_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    for script in ("a.py", "b.py"):
        (tmp_path / script).write_text(ENDLESS)
    process = _validate(tmp_path, "a.py", "b.py", "--jobs", "2")
    _until(lambda: len(_started(tmp_path)) == 4)
    started = _started(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate()
    assert process.returncode == Proof.INTERRUPTED
    _until(lambda: not any(map(_lives, started)))
    assert not list(tmp_path.glob("amp-migrate-*"))
