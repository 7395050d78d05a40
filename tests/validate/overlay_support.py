"""Runs scripts under the overlay as the harness does, and as they are, in one and the same folder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from pathlib import Path

import amp_migrate.validate.harness

HARNESS = Path(amp_migrate.validate.harness.__file__).parent

_SITECUSTOMIZE = """
import os
from _amp_smoke.overlay.overlay import Overlay
overlay = Overlay(
    os.environ["SCRATCH"], [os.environ["TEMPORARY"], "/dev", "/proc"], [os.environ["PROJECT"]]
)
overlay.install()
"""


class Ground:
    """A user's folder, and a scratch folder beside it."""

    def __init__(self, root: Path) -> None:
        self.project = root / "project"
        self.scratch = root / "scratch"
        self.archive = root / "harness.zip"
        (self.project / "data").mkdir(parents=True)
        (self.project / "runs" / "old").mkdir(parents=True)
        (self.project / "log.txt").write_text("the user's\n")
        (self.project / "data" / "one.bin").write_bytes(b"one")
        (self.project / "data" / "two.bin").write_bytes(b"two")
        (self.project / "runs" / "old" / "model.pt").write_bytes(b"weights")
        (self.project / "link").symlink_to("data")
        (self.project / "file_link").symlink_to("data/one.bin")
        with zipfile.ZipFile(self.archive, "w") as archive:
            for file in sorted(HARNESS.rglob("*.py")):
                archive.write(file, f"_amp_smoke/{file.relative_to(HARNESS)}")
            archive.writestr("sitecustomize.py", _SITECUSTOMIZE)

    def files(self) -> dict[str, tuple[object, ...]]:
        """All that can be seen of the user's folder."""
        found: dict[str, tuple[object, ...]] = {}
        for path in sorted(self.project.rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if path.is_file() else None
            name = path.relative_to(self.project).as_posix()
            found[name] = (status.st_mode, status.st_mtime_ns, status.st_ino, content)
        return found

    def redirected(self, script: str, *paths: Path) -> str:
        """What the script prints under the overlay; ``paths`` are importable."""
        path = os.pathsep.join([str(self.archive), *map(str, paths)])
        return self._run(script, {"PYTHONPATH": path, "SCRATCH": str(self.scratch)})

    def plain(self, script: str) -> str:
        """What the script prints as it is."""
        return self._run(script, {})

    def _run(self, script: str, more: dict[str, str]) -> str:
        environment = {
            **os.environ,
            "PROJECT": str(self.project),
            "TEMPORARY": tempfile.gettempdir(),
            "PYTHONDONTWRITEBYTECODE": "1",
            **more,
        }
        run = subprocess.run(
            [
                os.environ.get("OVERLAY_PYTHON", sys.executable),
                "-c",
                textwrap.dedent(script),
            ],
            cwd=self.project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        return run.stdout


def agree(ground: Ground, script: str) -> str:
    """Checks that the script prints the same with and without the overlay, which spares the user's."""
    before = ground.files()
    redirected = ground.redirected(script)
    assert ground.files() == before
    plain = ground.plain(script)
    assert redirected == plain
    return plain
