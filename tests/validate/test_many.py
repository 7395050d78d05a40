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
    options = [*files, "--monitor-only", "--json"]
    alone = validate(files, *options)
    assert [one["script"] for one in verdicts(alone.out)] == list(files)
    assert [one["steps"] for one in verdicts(alone.out)] == [6, 0]
    together = validate({}, *options, "--jobs", "2")
    assert (together.code, together.err) == (alone.code, alone.err)
    assert verdicts(together.out) == verdicts(alone.out)


def test_scripts_of_a_project_run_in_it_as_it_is_configured(validate: Any) -> None:
    text = PLAIN.replace("range(6)", "range(int(open('steps.txt').read()))")
    files = {
        "own/pyproject.toml": "[tool.amp-migrate]\n",
        "own/steps.txt": "2",
        "own/train.py": text,
    }
    (found,) = verdicts(validate(files, "own", "--monitor-only", "--json").out)
    assert (found["script"], found["steps"]) == ("own/train.py", 2)
    wrong = {"own/pyproject.toml": '[tool.amp-migrate]\ndtype = "float8"\n'}
    assert "dtype: must be one of" in validate(wrong, "own").err


def test_arguments_follow_two_dashes(validate: Any) -> None:
    said = validate({"a.py": PLAIN}, "a.py", "5")
    assert said.code == 2
    assert "5: no such file; arguments of the script follow --" in said.err


@pytest.mark.skipif(os.name == "nt", reason="processes")
def test_all_end_when_nobody_reads_on(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(NOTHING)
    (tmp_path / "b.py").write_text(ENDLESS)
    reading, writing = os.pipe()
    os.close(reading)
    process = _validate(tmp_path, "a.py", "b.py", "--jobs", "2", stdout=writing)
    os.close(writing)
    process.communicate()
    assert process.returncode == Proof.CUT_SHORT
    _until(lambda: not list(tmp_path.glob("amp-migrate-*")))


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_all_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    for script in ("a.py", "b.py"):
        (tmp_path / script).write_text(ENDLESS)
    process = _validate(tmp_path, "a.py", "b.py", "--jobs", "2")
    _until(lambda: len(_started(tmp_path)) == 4)
    started = _started(tmp_path)
    if Path("/proc").is_dir():
        # What dies is begun again; only who is killed has no time to tidy up.
        os.kill(_parent(started[0]), signal.SIGKILL)
        _until(lambda: len(_started(tmp_path)) == 6)
        started = _started(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate()
    assert process.returncode == Proof.INTERRUPTED
    _until(lambda: not any(map(_lives, started)))
    assert len(list(tmp_path.glob("amp-migrate-*"))) <= Path("/proc").is_dir()


def _parent(process: int) -> int:
    status = Path(f"/proc/{process}/stat").read_text()
    return int(status.rpartition(")")[2].split()[1])
