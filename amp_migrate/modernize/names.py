"""What the names of one file stand for, as far as older AMP interfaces are concerned."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from amp_migrate.edit.names.uses import OLD_NAME, TOP, Binding, Mention, Uses

_NEW_ROOTS = ("torch.amp", "torch.autocast", "torch.GradScaler")


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a variable stands for."""

    target: str = ""
    """The dotted name, where all its values are that."""
    old: tuple[Binding, ...] = ()
    """The bindings to an older interface."""
    has_new: bool = False
    """Where the target is not clear: one of its values is torch.amp's already."""


class FileNames:
    """The names of one file."""

    def __init__(self, uses: Uses) -> None:
        self.uses = uses
        self.meaning = cache(self._meaning)
        self._asked: set[tuple[int, str]] = set()
        """Variables whose meaning is being found: `a = b` and `b = a` lead nowhere."""

    def dotted(self, parts: tuple[str, ...], scope: int) -> str:
        """``torch.cuda.amp.autocast`` for what is written as ``amp.autocast``; else nothing."""
        owner = self.uses.owner(parts[0], scope)
        if owner is None:
            return ""
        target = self.meaning(owner, parts[0]).target
        return ".".join((target, *parts[1:])) if target else ""

    def root(self, mention: Mention) -> tuple[int, str] | None:
        """The variable that a mention begins with, where it is bound to an older interface."""
        owner = self.uses.owner(mention.parts[0], mention.scope)
        if owner is None:
            return None
        target = self.meaning(owner, mention.parts[0]).target
        return (owner, mention.parts[0]) if OLD_NAME.match(target) else None

    def torch(self, scope: int) -> str:
        """What a scope calls torch, by an import at the top level; nothing where it does not."""
        for name in self.uses.scopes[TOP].bindings:
            if self.uses.owner(name, scope) == TOP:
                if self.meaning(TOP, name).target == "torch":
                    return name
        return ""

    def _meaning(self, owner: int, name: str) -> Meaning:
        bindings = self.uses.scopes[owner].bindings[name]
        self._asked.add((owner, name))
        targets = [self._target(binding, owner) for binding in bindings]
        self._asked.discard((owner, name))
        pairs = list(zip(bindings, targets, strict=True))
        old = tuple(b for b, target in pairs if OLD_NAME.match(target))
        if len(set(targets)) == 1:
            return Meaning(targets[0], old)
        found = {target for target in targets if OLD_NAME.match(target)}
        if len(found) == 1 and self._never_falls_back(bindings, old):
            return Meaning(found.pop(), old)
        return Meaning("", old, any(t.startswith(_NEW_ROOTS) for t in targets))

    def _target(self, binding: Binding, owner: int) -> str:
        if binding.kind == "alias":
            root = self.uses.owner(binding.parts[0], owner)
            if root is None or (root, binding.parts[0]) in self._asked:
                return ""
            return self.dotted(binding.parts, owner)
        return binding.target

    def _never_falls_back(
        self, bindings: list[Binding], old: tuple[Binding, ...]
    ) -> bool:
        """``try: from torch.cuda.amp import autocast / except ImportError: class autocast: ...``

        Every torch that has the newer names has the older ones too: the handler never runs.
        """
        for binding in old:
            for number, field in binding.tries[-1:]:
                if field != "body" or number not in self.uses.sound:
                    continue
                others = [b for b in bindings if b not in old]
                if all((number, "handlers") in other.tries for other in others):
                    return True
        return False
