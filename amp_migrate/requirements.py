"""What a project says of the packages that it needs: the oldest torch, and an old Lightning."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

OLDEST = (1, 10)
"""The first torch that has ``torch.autocast``; a project that states less cannot use AMP on it."""

_TORCH = re.compile(
    r"\s*torch(?![\w.-])\s*(?:\[[^\]]*\])?\s*\(?(?P<bounds>[^;#@)]*)", re.IGNORECASE
)
_LIGHTNING_1 = re.compile(
    r"\s*(?:pytorch[-_.])?lightning(?![\w.-])\s*(?:\[[^\]]*\])?\s*\(?[^;#]*?"
    r"(?:(?:==|~=|\^|<=)\s*v?[01]\b|<\s*v?(?:2(?:\.0)*|1\.[\d.]+)\b(?![.\d]*[1-9]))",
    re.IGNORECASE,
)
"""A requirement that no version 2 of Lightning meets."""
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
        bound
        for text in _in_pyproject(pyproject, "torch")
        if (bound := _lower_bound(text))
    ]
    if not bounds:
        bounds = [bound for text in _in_files(root) if (bound := _lower_bound(text))]
    return max(min(bounds), OLDEST) if bounds else None


def needs_lightning_1(root: Path, pyproject: Mapping[str, object]) -> bool:
    """Whether a version of Lightning before 2 is asked for."""
    stated = [*_in_files(root)]
    for name in ("lightning", "pytorch-lightning"):
        stated += _in_pyproject(pyproject, name)
    return any(map(_LIGHTNING_1.match, stated))


def _lower_bound(requirement: str) -> tuple[int, int] | None:
    torch = _TORCH.match(requirement)
    if torch is None:
        return None
    found = _LOWER.search(torch["bounds"])
    return (int(found["major"]), int(found["minor"] or 0)) if found else None


def _in_pyproject(pyproject: Mapping[str, object], package: str) -> Iterator[str]:
    """The requirements that are stated; of those in Poetry's own form, a package's."""
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
        package
    )
    if isinstance(poetry, dict):
        poetry = poetry.get("version")
    if isinstance(poetry, str):
        # Poetry's bare "1.13" is a pin.
        yield f"{package} {poetry if not poetry[:1].isdigit() else '==' + poetry}"


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
