"""What a file says at a glance, without being parsed: kept from run to run, by its contents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from amp_migrate.program.imports import ImportScan, scan_imports

_FLAGS = ("edits_path", "inserts_path", "is_script", "trains")


@dataclass(frozen=True, slots=True)
class Glance:
    """What is asked of a file of which nobody knows yet whether a run is about it."""

    seems: bool
    """Whether the run may be about it."""
    versioned: bool
    """Whether it says which version it is."""
    configured: bool
    """Whether it speaks of hydra."""
    targets: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    flags: tuple[bool, ...] = (False,) * len(_FLAGS)
    digest: str = ""
    """Of what decides about programs: two texts with the same imports have the same."""

    @property
    def scan(self) -> ImportScan:
        """What it may import."""
        return ImportScan(
            frozenset(self.targets),
            frozenset(self.modules),
            **dict(zip(_FLAGS, self.flags, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Links:
    """Which files belong together."""

    key: str
    """Of all that it was found out from."""
    groups: tuple[tuple[int, ...], ...]
    """The files of each, by their number among the paths in order."""
    layouts: tuple[str, ...]
    """The digest of each group's `Layout.facts`."""


@dataclass(slots=True)
class Memory:
    """What earlier runs found out about the files of a project."""

    glances: dict[str, Glance] = field(default_factory=dict)
    """By the digest of the file."""
    links: Links | None = None
    seen: dict[str, Glance] = field(default_factory=dict)
    """The glances of this run."""

    def glance(self, digest: str, look: Callable[[], Glance]) -> Glance:
        """What is remembered of a file, or else is seen."""
        found = self.glances.get(digest)
        if found is None:
            found = look()
        self.seen[digest] = found
        return found


def glance_at(text: str, seems: bool) -> Glance:
    """What a text says at a glance."""
    scan = scan_imports(text)
    found = (
        tuple(sorted(scan.targets)),
        tuple(sorted(scan.modules)),
        tuple(getattr(scan, flag) for flag in _FLAGS),
    )
    versioned, configured = "__version__" in text, "hydra" in text
    said = (seems, versioned, configured, *found)
    return Glance(*said, digest_of(said))


def seen_from(root: str, path: str) -> str:
    """A path below ``root``, wherever that lies; elsewhere, both decide."""
    inside = f"{root.rstrip('/')}/"
    if path.startswith(inside):
        return path[len(inside) :]
    return "" if path == root else f"{path} from {root}"


def digest_of(plain: object) -> str:
    """The digest of something that JSON can say."""
    return digest(json.dumps(plain, separators=(",", ":")).encode())


def digest(data: bytes) -> str:
    """The digest that contents go by."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
