"""A file with the findings that are known and accepted, so that only new ones are told.

What identifies a finding has no line numbers (`listing.Told.fingerprint`): code may move, and a file
may grow. The rest of an entry is for those who read the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from amp_migrate.core.results import SourceError
from amp_migrate.report.findings.listing import Told

VERSION = 1
Entry = Mapping[str, str]


def read(path: str) -> list[Entry]:
    """The entries of a baseline. Raises `SourceError`."""
    try:
        data = json.loads(Path(path).read_bytes().decode("utf-8"))
    except OSError as error:
        hint = (
            "; --write-baseline makes one"
            if isinstance(error, FileNotFoundError)
            else ""
        )
        raise SourceError(path, f"cannot be read: {error.strerror}{hint}") from None
    except ValueError as error:
        raise SourceError(path, f"not a baseline: {error}") from None
    version = data.get("version") if isinstance(data, dict) else None
    if version != VERSION:
        raise SourceError(path, f"not a baseline of version {VERSION}")
    entries = data.get("findings")
    if not isinstance(entries, list) or not all(map(_is_entry, entries)):
        raise SourceError(path, "not a baseline: its findings are not in order")
    return entries


def _is_entry(one: object) -> bool:
    if not isinstance(one, dict):
        return False
    needed = ("fingerprint", "path", "code")
    return all(isinstance(one.get(key), str) for key in needed)


def split(
    told: Sequence[Told], entries: Iterable[Entry]
) -> tuple[tuple[Told, ...], int]:
    """The findings that a baseline does not have, and how many it has."""
    known = {one["fingerprint"] for one in entries}
    new = tuple(one for one in told if one.fingerprint not in known)
    return new, len(told) - len(new)


def gone(
    told: Iterable[Told],
    entries: Iterable[Entry],
    looked: Collection[str],
    judged: Callable[[str], bool],
) -> int:
    """How many entries are found no more in the files (relative to the root) that were looked at.

    ``judged``: whether the rule of a code is on in this run.
    """
    found = {one.fingerprint for one in told}
    return sum(
        one["path"] in looked
        and judged(one["code"])
        and one["fingerprint"] not in found
        for one in entries
    )


def text(
    told: Iterable[Told],
    before: Iterable[Entry],
    looked: Collection[str],
    judged: Callable[[str], bool],
    root: Path,
) -> str:
    """A new baseline. What this run did not judge stays as it was, as long as there is such a file."""
    kept = [
        dict(one)
        for one in before
        if not (one["path"] in looked and judged(one["code"]))
        and (root / one["path"]).exists()
    ]
    new = [
        {
            "path": one.relative,
            "code": one.finding.code,
            "symbol": one.finding.symbol,
            "message": one.finding.message,
            "fingerprint": one.fingerprint,
        }
        for one in told
    ]
    unique = {one["fingerprint"]: one for one in [*kept, *new]}
    ordered = sorted(
        unique.values(),
        key=lambda one: (
            one["path"],
            one["code"],
            one.get("symbol", ""),
            one["fingerprint"],
        ),
    )
    # One line each, so that branches which accept different findings merge.
    lines = ",\n".join(f"  {json.dumps(one)}" for one in ordered)
    body = f"[\n{lines}\n ]" if lines else "[]"
    return f'{{\n "version": {VERSION},\n "findings": {body}\n}}\n'
