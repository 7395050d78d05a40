"""After files were rewritten: which of them held uncommitted work, and what takes the rewrite back.

The state has to be asked for before the first file is written.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from amp_migrate.report import diff
from amp_migrate.run.outcome import Migration
from amp_migrate.sources.discovery import git_root

_LISTED = 20
"""With more files than this, a command that names them all is no longer one to copy."""


@dataclass(frozen=True, slots=True)
class Repository:
    """What git knew of the files in one work tree."""

    root: str
    staged: frozenset[str]
    """Real paths of files that differ from the last commit, but not from the index."""
    beyond_git: frozenset[str]
    """Real paths of files whose content git has nowhere: modified, untracked or ignored."""
    files: frozenset[str]
    """Real paths of all files that were asked about."""

    @property
    def uncommitted(self) -> frozenset[str]:
        """Real paths of files with work that is in no commit."""
        return self.staged | self.beyond_git


def uncommitted_work(migrations: Sequence[Migration]) -> list[Repository]:
    """The repositories that the files of ``migrations`` are in; none where git cannot be run."""
    by_root: dict[str, list[str]] = {}
    for migration in migrations:
        real = str(Path(migration.document.path).resolve())
        root = git_root(str(Path(real).parent))
        if root is not None:
            by_root.setdefault(root, []).append(real)
    found = (_ask_git(root, paths) for root, paths in by_root.items())
    return [repository for repository in found if repository is not None]


def all_committed(
    repositories: Sequence[Repository], migrations: Sequence[Migration]
) -> bool:
    """Whether each file of ``migrations`` was as its repository's last commit has it."""
    real = {str(Path(one.document.path).resolve()) for one in migrations}
    kept = {
        path
        for one in repositories
        for path in one.files
        if path not in one.uncommitted
    }
    return real <= kept


def advice(
    repositories: Sequence[Repository],
    written: Sequence[Migration],
    cwd: str | None = None,
) -> Iterator[str]:
    """The lines to print once the files of ``written`` have been replaced."""
    here = str(Path(cwd or Path.cwd()).resolve())
    for repository in repositories:
        own = {
            real: migration
            for migration in written
            if (real := str(Path(migration.document.path).resolve()))
            in repository.files
        }
        yield from _advice(repository, own, here)


def _advice(
    repository: Repository, own: dict[str, Migration], here: str
) -> Iterator[str]:
    inside = Path(here).is_relative_to(repository.root)
    git = "git" if inside else f"git -C {shlex.quote(repository.root)}"
    base = here if inside else repository.root

    uncommitted = [path for path in own if path in repository.uncommitted]
    if uncommitted:
        verb = (
            "file that was changed"
            if len(uncommitted) == 1
            else "files that were changed"
        )
        yield f"{len(uncommitted)} {verb} had uncommitted changes:"
        yield from (f"  {own[path].document.path}" for path in uncommitted)

    restorable = [path for path in own if path not in repository.beyond_git]
    if len(restorable) <= _LISTED:
        by_patch = [path for path in own if path in repository.beyond_git]
    else:
        restorable, by_patch = [], list(own)
    if restorable:
        names = " ".join(
            shlex.quote(os.path.relpath(path, base)) for path in restorable
        )
        yield f"to undo: {git} checkout -- {names}"
    if by_patch:
        patch = _save_patch([own[path] for path in by_patch], repository.root)
        if any(path in repository.beyond_git for path in by_patch):
            yield "git cannot tell your changes from the rewrite; this patch holds only the rewrite"
        yield f"to undo: git -C {shlex.quote(repository.root)} apply -R {shlex.quote(patch)}"


def _save_patch(migrations: Sequence[Migration], root: str) -> str:
    handle, name = tempfile.mkstemp(prefix="amp-migrate-undo-", suffix=".patch")
    with os.fdopen(handle, "wb") as file:
        file.write(diff.of_migrations(migrations, cwd=root))
    return name


def _ask_git(root: str, paths: Sequence[str]) -> Repository | None:
    relative = {os.path.relpath(path, root): path for path in paths}
    tracked = _git(root, "ls-files", "-z", "--", *relative)
    changed = _git(
        root, "status", "--porcelain", "-z", "--no-renames", "-uno", "--", *relative
    )
    if tracked is None or changed is None:
        return None
    states = {relative[line[3:]]: line[:2] for line in changed if line[3:] in relative}
    staged = {path for path, state in states.items() if state[1] == " "}
    untracked = relative.keys() - set(tracked)
    return Repository(
        root,
        staged=frozenset(staged),
        beyond_git=frozenset(
            (states.keys() - staged) | {relative[name] for name in untracked}
        ),
        files=frozenset(paths),
    )


def _git(root: str, *arguments: str) -> list[str] | None:
    """The entries of git's null-separated answer; None where there is no git, or it refuses."""
    try:
        done = subprocess.run(
            [
                "git",
                "--no-optional-locks",
                "--literal-pathspecs",
                "-C",
                root,
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(done.stdout).split("\0") if done.returncode == 0 else None
