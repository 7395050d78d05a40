"""Which older names of a program become torch.amp's, by what edits, and why the others stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from amp_migrate.edit.names.edits import CallDecorator, Edit, MoveImport, Rename
from amp_migrate.edit.names.uses import OLD_NAME, TOP, Binding, Mention, Position, Uses
from amp_migrate.modernize.calls import new_call
from amp_migrate.modernize.elsewhere import Elsewhere
from amp_migrate.modernize.names import FileNames

SINCE = {
    "": (1, 12),
    "autocast": (1, 12),
    "autocast_mode": (1, 12),
    "GradScaler": (2, 3),
    "grad_scaler": (2, 3),
    "OptState": (2, 3),
    "custom_fwd": (2, 4),
    "custom_bwd": (2, 4),
}
"""The first torch whose ``torch.amp`` has a name."""

_MODULES = ("", "autocast_mode", "grad_scaler")
_OF_CUDA_ONLY = ("custom_fwd", "custom_bwd")
_LEAVES = frozenset(
    """autocast GradScaler custom_fwd custom_bwd autocast_mode grad_scaler autocast_mode.autocast
    autocast_mode.custom_fwd autocast_mode.custom_bwd grad_scaler.GradScaler
    grad_scaler.OptState""".split()
)

_ENDS_OLD = re.compile(
    r"(?:^|\.)(?:(cuda|cpu)\.)?amp(?:\.\w+)?\.(?:autocast|GradScaler|custom_fwd|custom_bwd)$"
)
_OTHER_DEVICES = re.compile(
    r"\b(?:transfer_to_npu|gpu_migration|torch_mlu|torch_musa)\b"
)
"""Packages that put their own device in the place of CUDA's."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a name stays."""

    code: str
    message: str
    file: str
    at: Position


@dataclass(slots=True)
class Unit:
    """What changes as one: a variable with every mention of it, or one mention of ``torch.cuda.amp``."""

    file: str
    at: Position
    """Where it is told."""
    edits: list[Edit] = field(default_factory=list)
    reason: Reason | None = None
    silent: bool = False
    """Left alone without a word: marked off, or the fallback of what is modern for an older torch."""
    needs: set[tuple[str, int, str]] = field(default_factory=set)
    """Variables that change only together with it."""
    makes: set[str] = field(default_factory=set)
    """The classes of which it makes instances."""
    tests: set[str] = field(default_factory=set)
    """The classes that it compares with those of instances."""


@dataclass(frozen=True, slots=True)
class Ambient:
    """What a region takes from those around it where it is not told."""

    dtype: bool
    """Whether some region of the program may have another dtype than its device's usual one."""
    cache: bool
    """Whether some region of the program may do without the cache of casts."""


def plan(
    program: Mapping[str, Uses],
    texts: Mapping[str, str],
    version: tuple[int, int],
    elsewhere: Elsewhere,
    writable: Collection[str],
    shown: Callable[[str], str],
) -> list[Unit]:
    """The older names of the files that may be written; those of others only stand in the way.

    ``program``: the files that mention AMP, ``texts`` all files of the program.
    """
    ambient = _ambient(program, texts)
    handed_on = any(map(_hands_on, program.values()))
    found: dict[tuple[str, int, str] | int, Unit] = {}
    for uses in program.values():
        found |= _File(uses, version, ambient, handed_on).units(len(found))
    for key, unit in found.items():
        if unit.reason is None and isinstance(key, tuple) and key[1] == TOP:
            seen = elsewhere.seen(key[0], key[2])
            if seen is not None:
                message = f"{key[2]} is imported from here by {shown(seen)}"
                if seen == key[0]:
                    message = f"{key[2]} may be imported from here"
                unit.reason = Reason("AMP051", message, unit.file, unit.at)
    for unit in found.values():
        if unit.file not in writable and unit.reason is None:
            # Whatever stands there stays.
            unit.reason = Reason("AMP017", "", unit.file, unit.at)
    reason = _replaced(program, texts)
    for unit in found.values():
        if reason is not None and unit.reason is None:
            unit.reason = Reason("AMP051", reason, unit.file, unit.at)
    _agree(found)
    return [unit for unit in found.values() if unit.file in writable]


def _hands_on(uses: Uses) -> bool:
    """Whether torch.cuda itself is handed on as a value: then its ``amp`` may be found anywhere."""
    names = FileNames(uses)
    return any(
        mention.role not in ("call", "alias")
        and names.dotted(mention.parts, mention.scope) in ("torch.cuda", "torch.cpu")
        for mention in uses.mentions
    )


def _replaced(program: Mapping[str, Uses], texts: Mapping[str, str]) -> str | None:
    """Why the older names may not be torch's own, if something in the program puts others there."""
    if any(map(_OTHER_DEVICES.search, texts.values())):
        return "another device's package may replace torch.cuda.amp"
    for uses in program.values():
        names = FileNames(uses)
        for parts in uses.patches:
            dotted = names.dotted(parts, TOP) if parts else ""
            if OLD_NAME.match(dotted) or OLD_NAME.match(".".join(parts)):
                return "the program replaces names in torch.cuda.amp"
    return None


def _agree(found: Mapping[tuple[str, int, str] | int, Unit]) -> None:
    """Leave alone what goes only with something that stays."""
    changed = True
    while changed:
        changed = False
        kept = [unit for unit in found.values() if unit.reason or unit.silent]
        for unit in found.values():
            if unit.reason is not None or unit.silent:
                continue
            others = [found[key] for key in unit.needs if key in found]
            others += [other for other in kept if other.tests & unit.makes]
            for other in others:
                if other.reason is None and not other.silent:
                    continue
                message = "another use of the same class cannot change"
                reason = other.reason or Reason("AMP051", message, other.file, other.at)
                unit.reason = Reason(
                    "AMP051",
                    f"goes only with another: {reason.message or message}",
                    reason.file,
                    reason.at,
                )
                changed = True
                break


def _ambient(program: Mapping[str, Uses], texts: Mapping[str, str]) -> Ambient:
    words = re.compile(r"bf16|bfloat16|set_autocast|autocast_(?:cpu|gpu)?_?dtype")
    dtypes = {dtype for uses in program.values() for dtype in uses.autocast_dtypes}
    usual = {"torch.float16", "torch.half", "float16", "half"}
    return Ambient(
        dtype=not dtypes <= usual or any(map(words.search, texts.values())),
        cache=any(
            "cache_enabled" in text or "autocast_cache" in text
            for text in texts.values()
        ),
    )


class _File:
    def __init__(
        self,
        uses: Uses,
        version: tuple[int, int],
        ambient: Ambient,
        handed_on: bool,
    ) -> None:
        """``handed_on``: see `_hands_on`, for some file of the program."""
        self.uses = uses
        self.handed_on = handed_on
        self.names = FileNames(uses)
        self.version = version
        self.ambient = ambient

    def units(self, start: int) -> dict[tuple[str, int, str] | int, Unit]:
        """By variable, or numbered from ``start``."""
        if self.uses.off:
            return {}
        found: dict[tuple[str, int, str] | int, Unit] = {}
        for owner, scope in enumerate(self.uses.scopes):
            for name, bindings in scope.bindings.items():
                self._variable(found, owner, name, bindings)
        self._same_imports(found)
        direct: list[Unit] = []
        for mention in self.uses.mentions:
            dotted = self.names.dotted(mention.parts, mention.scope)
            if not OLD_NAME.match(dotted):
                if dotted.partition(".")[0] not in ("torch", "apex"):
                    self._unclear(found, start, mention.parts, mention.at, mention.off)
                continue
            root = self.names.root(mention)
            homes = self._homes(mention)
            if root is None and homes:
                # It changes with the names that it is given here, and they with one another.
                root = homes[0][1:]
                for home in homes:
                    found[home].needs.update(homes)
            if root is not None:
                unit = found[(self.uses.path, root[0], root[1])]
            else:
                unit = found[start + len(found)] = Unit(self.uses.path, mention.at)
                direct.append(unit)
            self._mention(unit, mention, dotted)
        self._plain_imports(direct)
        for tail, at in self.uses.tails:
            self._unclear(found, start, ("", *tail), at, off=False)
        for module, at in self.uses.stars:
            if OLD_NAME.match(module):
                self._alone(found, start, at, "everything is imported from it (*)")
        for text, at in self.uses.strings:
            self._alone(found, start, at, f"{text} stands in a string")
        return found

    def _unclear(
        self,
        found: dict[tuple[str, int, str] | int, Unit],
        start: int,
        parts: tuple[str, ...],
        at: Position,
        off: bool,
    ) -> None:
        """Tell of a name that may be torch.cuda's, where nobody can say: ``self.cuda.amp.autocast``."""
        written = ".".join(parts)
        ends = _ENDS_OLD.search(written)
        if ends is not None and (self.handed_on or ends[1] is not None):
            message = (
                f"{written.lstrip('.')} may be torch's, by a way that is not followed"
            )
            self._alone(found, start, at, message).silent = off

    def _alone(
        self,
        found: dict[tuple[str, int, str] | int, Unit],
        start: int,
        at: Position,
        message: str,
    ) -> Unit:
        unit = found[start + len(found)] = Unit(self.uses.path, at)
        self._leave(unit, message, at)
        return unit

    def _leave(
        self, unit: Unit, message: str, at: Position, code: str = "AMP051"
    ) -> None:
        if unit.reason is None:
            unit.reason = Reason(code, message, self.uses.path, at)

    # -- variables ----------------------------------------------------------------------------

    def _variable(
        self,
        found: dict[tuple[str, int, str] | int, Unit],
        owner: int,
        name: str,
        bindings: list[Binding],
    ) -> None:
        meaning = self.names.meaning(owner, name)
        if not meaning.old and not OLD_NAME.match(meaning.target):
            return
        first = (meaning.old or tuple(bindings))[0]
        unit = found[(self.uses.path, owner, name)] = Unit(self.uses.path, first.at)
        if not meaning.target:
            # One binding of several: nobody can tell which class a mention means.
            unit.silent = meaning.has_new
            self._leave(unit, f"{name} is bound to something else, too", first.at)
            return
        if self.uses.scopes[owner].is_class:
            self._leave(unit, f"{name} is an attribute of a class", first.at)
        leaf = _leaf(meaning.target)
        self._check_there(unit, meaning.target, leaf, first.at)
        for binding in meaning.old:
            if binding.kind == "alias":
                root = self.uses.owner(binding.parts[0], owner)
                assert root is not None
                unit.needs.add((self.uses.path, root, binding.parts[0]))
            else:
                new = OLD_NAME.sub("torch.amp", binding.target)
                unit.edits.append(MoveImport(binding.at, binding.target, new))

    def _same_imports(self, found: dict[tuple[str, int, str] | int, Unit]) -> None:
        """What binds a variable of one of several scopes (``nonlocal``) goes with all of them."""
        sharing: dict[Position, set[tuple[str, int, str]]] = {}
        for key in found:
            if isinstance(key, tuple):
                for binding in self.uses.scopes[key[1]].bindings[key[2]]:
                    sharing.setdefault(binding.at, set()).add(key)
        for keys in sharing.values():
            if len(keys) > 1:
                for key in keys:
                    found[key].needs |= keys

    def _plain_imports(self, direct: list[Unit]) -> None:
        """``import torch.cuda.amp``: it changes with the last mention of what it imports."""
        for scope in self.uses.scopes:
            for bindings in scope.bindings.values():
                for binding in bindings:
                    if not OLD_NAME.match(binding.module) or not direct:
                        continue
                    if any(unit.reason or unit.silent for unit in direct):
                        continue
                    if _leaf(binding.module) not in _MODULES:
                        continue
                    new = OLD_NAME.sub("torch.amp", binding.module)
                    edit = MoveImport(binding.at, binding.module, new)
                    direct[0].edits.append(edit)

    # -- mentions -----------------------------------------------------------------------------

    def _mention(self, unit: Unit, mention: Mention, dotted: str) -> None:
        leaf, at = _leaf(dotted), mention.at
        name = leaf.rpartition(".")[2]
        written = ".".join(mention.parts)
        unit.silent = unit.silent or mention.off or mention.shim
        # What is kept as a value may be compared later; nobody does that with regions.
        if mention.role in ("tested", "compared") or (
            mention.role == "value" and name == "GradScaler"
        ):
            unit.tests.add(name)
        new = self._new_name(unit, mention, dotted)
        if leaf not in _LEAVES:
            what = (
                f"{written} is used as a value"
                if not leaf
                else f"{written} is not in torch.amp"
            )
            if not (mention.role == "alias" and leaf in _MODULES):
                self._leave(unit, what, at)
                return
        self._check_there(unit, dotted, leaf, at)
        device = dotted.split(".")[1]
        match mention.role:
            case "call" if leaf not in _MODULES and name != "OptState":
                made = new_call(
                    name, mention, new, device, self.ambient, self._torch(mention)
                )
                unit.makes.add(name)
                if isinstance(made, str):
                    self._leave(unit, made, at)
                else:
                    unit.edits.append(made)
            case "decorator" if name in _OF_CUDA_ONLY:
                unit.edits.append(CallDecorator(at, written, new, device))
            case "alias":
                unit.needs.update(self._homes(mention))
                self._rename(unit, at, written, new)
            case "type" | "tested":
                self._rename(unit, at, written, new)
            case "text":
                self._leave(unit, f"{written} stands in a text", at)
            case "decorator":
                self._leave(unit, f"@{written} is not called", at)
            case _:
                self._leave(unit, f"{written} is used as a value", at)

    def _homes(self, mention: Mention) -> list[tuple[str, int, str]]:
        """The variables that an alias binds."""
        owners = {
            name: self.uses.owner(name, mention.scope) for name in mention.aliases
        }
        return [
            (self.uses.path, owner, name)
            for name, owner in owners.items()
            if owner is not None
        ]

    def _rename(self, unit: Unit, at: Position, old: str, new: str) -> None:
        if old != new:
            unit.edits.append(Rename(at, old, new))

    def _new_name(self, unit: Unit, mention: Mention, dotted: str) -> str:
        """What a mention is written as: a variable's name stays, its import changes."""
        written = ".".join(mention.parts)
        if self.names.root(mention) is not None:
            return written
        torch = self._torch(mention)
        owner = self.uses.owner(mention.parts[0], mention.scope)
        assert owner is not None
        if self.names.meaning(owner, mention.parts[0]).target == "torch":
            torch = mention.parts[0]
        if not torch:
            self._leave(unit, "torch itself is not imported", mention.at)
        return OLD_NAME.sub(f"{torch}.amp", dotted)

    def _torch(self, mention: Mention) -> str:
        return self.names.torch(mention.scope)

    def _check_there(self, unit: Unit, dotted: str, leaf: str, at: Position) -> None:
        """Leave a unit alone where torch.amp does not have a name in every torch to support."""
        name = leaf.rpartition(".")[2]
        if (leaf and leaf not in _LEAVES) or (
            dotted.startswith("torch.cpu.") and name in _OF_CUDA_ONLY
        ):
            self._leave(unit, f"there is no torch.amp.{leaf}", at)
            return
        since = max(SINCE[part] for part in leaf.split("."))
        if since > self.version:
            wanted = "{}.{}".format(*since)
            message = (
                f"torch.amp.{leaf} needs torch {wanted} (--torch-version {wanted})"
            )
            self._leave(unit, message, at, "AMP052")


def _leaf(dotted: str) -> str:
    """What follows ``torch.cuda.amp.``."""
    found = OLD_NAME.match(dotted)
    assert found is not None
    return dotted[found.end() + 1 :]
