"""What a project says of the packages that it needs: the oldest torch, and an old Lightning."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


OLDEST = (1, 6)
"""The first torch that has AMP; a project that states less cannot use it."""
CHOOSES_DTYPE = (1, 10)
"""The first one with ``torch.autocast``, which is told what it casts to. What is written for a project
that admits it is not written for older ones."""

_TORCH = re.compile(
    r"\s*torch(?![\w.-])\s*(?:\[[^\]]*\])?\s*\(?(?P<bounds>[^;#@)]*)", re.IGNORECASE
)
_LIGHTNING_1 = re.compile(
    r"\s*(?:pytorch[-_.])?lightning(?![\w.-])\s*(?:\[[^\]]*\])?\s*\(?[^;#]*?"
    r"(?:(?:==|~=|\^|<=)\s*v?[01]\b|<\s*v?(?:2(?:\.0)*|1\.[\d.]+)\b(?![.\d]*[1-9]))",
    re.IGNORECASE,
)
"""A requirement that no version 2 of Lightning meets."""
_BOUND = re.compile(
    r"(?P<operator>===|==|~=|>=|<=|(?<!!)=|>|<|\^|~)\s*v?"
    r"(?P<major>\d+)(?:\.(?P<minor>\d+))?(?:\.(?P<patch>\d+))?"
)
_QUOTED = re.compile(r"""(["'])([A-Za-z][^"'\n]*)\1""")
_REQUIREMENT = re.compile(
    r"[\w.-]+\s*(?:\[[^\]]*\])?\s*\(?(?:\s*(?:===|[=~<>!]=|<|>)\s*[\w.*+!-]+\s*,?)*\s*\)?"
    r"\s*(?:[;@].*)?"
)
"""A requirement as a whole, where a message to the user only begins like one."""
_CONDA = re.compile(
    r"""\s*-\s*["']?(?:[\w.-]+::)?(?P<name>[\w.-]+)\s*(?P<bounds>[^"'#]*)"""
)
_ANY_MINOR = 10**6


@dataclass(frozen=True, slots=True)
class StatedTorch:
    """What a project says of the torch that it needs."""

    oldest: tuple[int, int]
    """The lowest that is admitted, of those that code is written for."""
    too_old: str = ""
    """A requirement that none of those meets, with its file, where there is no other."""
    below: str = ""
    """One that admits older ones as well, by name: ``torch>=1.7``."""


def stated_torch(root: Path, pyproject: Mapping[str, object]) -> StatedTorch | None:
    """What ``pyproject``, or else the other files of ``root`` that state requirements, admit.

    None where nothing is stated, or nothing that excludes a version.
    """
    stated = [("pyproject.toml", text) for text in _in_pyproject(pyproject, "torch")]
    found = _bounds(stated) or _bounds(_in_files(root))
    if not found:
        return None
    newest = max(upper for _, _, upper in found)
    floor = OLDEST if newest < CHOOSES_DTYPE else CHOOSES_DTYPE
    oldest = max(min(lower for _, lower, _ in found), floor)
    if newest < OLDEST:
        return StatedTorch(oldest, too_old=found[0][0])
    floors = (text for text, lower, _ in found if (0, 0) < lower < floor)
    return StatedTorch(oldest, below=next(floors, ""))


def _bounds(
    stated: Iterable[tuple[str, str]],
) -> list[tuple[str, tuple[int, int], tuple[int, int]]]:
    """(requirement and file, lowest version, highest version) of what is said of torch."""
    found = []
    for file, text in stated:
        torch = _TORCH.match(text)
        if torch is None:
            continue
        lower, upper = (0, 0), (_ANY_MINOR, 0)
        for bound in _BOUND.finditer(torch["bounds"]):
            low, high = _range(bound)
            lower, upper = max(lower, low), min(upper, high)
        if (lower, upper) != ((0, 0), (_ANY_MINOR, 0)):
            found.append((f"{text.partition('#')[0].strip()} in {file}", lower, upper))
    return found


def _range(bound: re.Match[str]) -> tuple[tuple[int, int], tuple[int, int]]:
    """The lowest and the highest (major, minor) that one comparison admits."""
    major, minor = int(bound["major"]), int(bound["minor"] or 0)
    version = (major, minor)
    match bound["operator"]:
        case ">=" | ">":
            return version, (_ANY_MINOR, 0)
        case "<=":
            return (0, 0), version
        case "<":
            if bound["patch"] and int(bound["patch"]):
                return (0, 0), version
            return (0, 0), (major, minor - 1) if minor else (major - 1, _ANY_MINOR)
        case "^":
            return version, (major, _ANY_MINOR)
        case "~=" if not bound["patch"]:
            return version, (major, _ANY_MINOR)
        case _:
            return version, version if bound["minor"] else (major, _ANY_MINOR)


def needs_lightning_1(root: Path, pyproject: Mapping[str, object]) -> bool:
    """Whether a version of Lightning before 2 is asked for."""
    stated = [text for _, text in _in_files(root)]
    for name in ("lightning", "pytorch-lightning"):
        stated += _in_pyproject(pyproject, name)
    return any(map(_LIGHTNING_1.match, stated))


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
    poetry = _table(_table(pyproject, "tool"), "poetry")
    yield from _in_table(_table(poetry, "dependencies"), package)


def _in_table(table: Mapping[str, object], package: str) -> Iterator[str]:
    """A package's requirement in the form of Poetry and Pipenv."""
    version = table.get(package)
    if isinstance(version, dict):
        version = version.get("version")
    if isinstance(version, str):
        # Poetry's bare "1.13" is a pin.
        yield f"{package} {version if not version[:1].isdigit() else '==' + version}"


def _in_files(root: Path) -> Iterator[tuple[str, str]]:
    """(file, requirement) of the files in ``root`` that state any, but for pyproject.toml."""
    for pattern, requirements in _FILES.items():
        for path in sorted(root.glob(pattern)):
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                # A guess is made from what can be read; this run is not about that file.
                continue
            for found in requirements(text):
                yield path.relative_to(root).as_posix(), found


def _of_lines(text: str) -> Iterable[str]:
    # `install_requires = torch==1.2` is a requirement in the first line of its key.
    return (
        line.removeprefix("install_requires").lstrip(" =\t")
        for line in text.splitlines()
    )


def _of_program(text: str) -> Iterable[str]:
    for line in text.splitlines():
        for found in _QUOTED.finditer(line.partition("#")[0]):
            if _REQUIREMENT.fullmatch(found[2]):
                yield found[2]


def _of_pipfile(text: str) -> Iterable[str]:
    try:
        pipfile = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    for table in ("packages", "dev-packages"):
        for package in ("torch", "lightning", "pytorch-lightning"):
            yield from _in_table(_table(pipfile, table), package)


def _of_conda(text: str) -> Iterable[str]:
    for line in text.splitlines():
        found = _CONDA.match(line)
        if found is not None:
            # Conda's name of torch, and what it says of the build behind the version.
            name = "torch" if found["name"] == "pytorch" else found["name"]
            yield f"{name} {found['bounds']}".strip()


_FILES: Mapping[str, Callable[[str], Iterable[str]]] = {
    "requirements*.txt": _of_lines,
    "requirements/*.txt": _of_lines,
    "setup.cfg": _of_lines,
    "setup.py": _of_program,
    "Pipfile": _of_pipfile,
    "*environment*.y*ml": _of_conda,
    "*conda*.y*ml": _of_conda,
}


def _table(parent: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = parent.get(key)
    return found if isinstance(found, dict) else {}
