"""The oldest torch that a project says it supports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

OLDEST = (1, 10)
"""The first torch that has ``torch.autocast``; a project that states less cannot use AMP on it."""

_TORCH = re.compile(
    r"\s*torch(?![\w.-])\s*(?:\[[^\]]*\])?\s*\(?(?P<bounds>[^;#@)]*)", re.IGNORECASE
)
_LOWER = re.compile(
    r"(?P<operator>===|==|~=|>=|>|\^|~)\s*v?(?P<major>\d+)(?:\.(?P<minor>\d+))?"
)


def stated_torch_version(
    root: Path, pyproject: Mapping[str, object]
) -> tuple[int, int] | None:
    """The lowest torch admitted in ``pyproject``, or else in ``root``'s requirements files.

    None where nothing is stated, or no lower bound.
    """
    bounds = [
        bound for text in _in_pyproject(pyproject) if (bound := _lower_bound(text))
    ]
    if not bounds:
        bounds = [bound for text in _in_files(root) if (bound := _lower_bound(text))]
    return max(min(bounds), OLDEST) if bounds else None


def _lower_bound(requirement: str) -> tuple[int, int] | None:
    torch = _TORCH.match(requirement)
    if torch is None:
        return None
    found = _LOWER.search(torch["bounds"])
    return (int(found["major"]), int(found["minor"] or 0)) if found else None


def _in_pyproject(pyproject: Mapping[str, object]) -> Iterator[str]:
    project = _table(pyproject, "project")
    groups = [
        project.get("dependencies"),
        *_table(project, "optional-dependencies").values(),
        *_table(pyproject, "dependency-groups").values(),
    ]
    for group in groups:
        if isinstance(group, list):
            yield from (item for item in group if isinstance(item, str))
    poetry = _table(_table(_table(pyproject, "tool"), "poetry"), "dependencies").get(
        "torch"
    )
    if isinstance(poetry, dict):
        poetry = poetry.get("version")
    if isinstance(poetry, str):
        # Poetry's bare "1.13" is a pin.
        yield f"torch {poetry if not poetry[:1].isdigit() else '==' + poetry}"


def _in_files(root: Path) -> Iterator[str]:
    for path in sorted(root.glob("requirements*.txt")):
        try:
            yield from path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            # A guess is made from what can be read; this run is not about that file.
            continue


def _table(parent: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = parent.get(key)
    return found if isinstance(found, dict) else {}
