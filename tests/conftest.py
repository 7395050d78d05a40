"""Options and paths that all tests share."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import click.testing
import pytest

# The helper modules beside the tests are imported by their plain names, however pytest is run.
sys.path.insert(0, str(Path(__file__).parent))

# click before 8.2, which the tool itself is content with, keeps the two streams apart only on request, and
# then has no output of both.
if "mix_stderr" in inspect.signature(click.testing.CliRunner).parameters:
    click.testing.CliRunner.__init__ = functools.partialmethod(  # type: ignore[method-assign]
        click.testing.CliRunner.__init__, mix_stderr=False
    )
    click.testing.Result.output = property(  # type: ignore[method-assign]
        lambda result: result.stdout + result.stderr
    )

# Tests are about what is found now, and leave nothing in the user's folder; those of the cache have one
# of their own. Processes that tests start inherit it.
os.environ["AMP_MIGRATE_NO_CACHE"] = "1"
# Several processes run the tests: further threads of each, of torch's, would wait for a core, and burn one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
for name in ("AMP_MIGRATE_CACHE_DIR", "AMP_MIGRATE_CACHE_LIMIT"):
    os.environ.pop(name, None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the tool makes of the fixtures: migrated.py, migrated/",
    )


HAVE_TORCH = importlib.util.find_spec("torch") is not None
"""The tool needs no torch; running training scripts does."""

NEED_TORCH = [
    "lint/test_mending.py",
    "lint/test_probe.py",
    "validate/test_proofs.py",
    "validate/test_validate.py",
    "test_exactness.py",
    "test_gpu_smoke_training.py",
    "test_projects_training.py",
    "test_training.py",
    "test_trees.py",
]

collect_ignore = [] if HAVE_TORCH else NEED_TORCH


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """What would be installed."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=Path(__file__).resolve().parent.parent,
        check=True,
        capture_output=True,
    )
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def pytest_report_header(config: pytest.Config) -> str | None:
    return (
        None if HAVE_TORCH else "torch is not installed: no training script will be run"
    )
