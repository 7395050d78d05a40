"""What a shell offers at the Tab key, by the script that it is given."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# As bash does it: the script's function fills COMPREPLY, and files come in where it stays empty.
ASK = """\
cd {folder}; export PATH={tools}:$PATH
compopt() {{ use_files=yes; }}
eval "$(_AMP_MIGRATE_COMPLETE=bash_source amp-migrate)"
COMP_WORDS=({words}) COMP_CWORD={position}
_amp_migrate_completion amp-migrate
if [ -n "${{COMPREPLY[*]}}" ]; then printf '%s\\n' "${{COMPREPLY[@]}}"
else echo "files: ${{use_files:-no}}"; fi
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    program = folder / "amp-migrate"
    python = shlex.quote(sys.executable)
    program.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {python} -m amp_migrate "$@"\n'
    )
    program.chmod(0o755)
    return folder


@pytest.mark.skipif(
    os.name == "nt" or shutil.which("bash") is None, reason="bash is asked"
)
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("mod", ["modernize"]),
        ("tra", ["files: yes"]),
        ("--explain", ["--explain-plan"]),
        ("migrate mod", ["files: yes"]),
        ("src mod", ["files: yes"]),
        ("--write mod", ["files: yes"]),
        ("lint --output-fi", ["--output-file"]),
        ("lint --output-format s", ["sarif"]),
        ("lint --output-file a", ["files: yes"]),
        ("lint tr", ["files: yes"]),
        ("lint --cache-dir a", ["files: yes"]),
        ("lint --select TCU102,AMP101,tcu30", None),
        ("explain AMP101", ["AMP101"]),
        ("stats --report a", ["files: yes"]),
        ("--python a", ["files: yes"]),
        ("validate --profile ho", ["hopper"]),
        ("validate tr", ["files: yes"]),
    ],
)
def test_bash(
    tools: Path, tmp_path: Path, typed: str, offered: list[str] | None
) -> None:
    script = ASK.format(
        folder=shlex.quote(str(tmp_path)),
        tools=shlex.quote(str(tools)),
        words=f"amp-migrate {typed}",
        position=len(typed.split()),
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert not done.stderr, done.stderr
    lines = done.stdout.splitlines()
    if offered is None:
        assert "TCU102,AMP101,TCU304" in lines
        assert all(one.startswith("TCU102,AMP101,TCU30") for one in lines)
    else:
        assert lines == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_of_the_quick_start_is_given_a_script(shell: str) -> None:
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    assert f"_AMP_MIGRATE_COMPLETE={shell}_source amp-migrate" in page
    done = subprocess.run(
        [sys.executable, "-m", "amp_migrate"],
        env={**os.environ, "_AMP_MIGRATE_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert f"_AMP_MIGRATE_COMPLETE={shell}_complete" in done.stdout
