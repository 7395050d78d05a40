"""Where a file mentions apex.amp, and which of its imports serve nothing else."""

from __future__ import annotations

import re

from amp_migrate.edit.names.uses import Binding, Position, Uses

_AMP = re.compile(r"^apex\.amp(?=\.|$)")

_FP16 = re.compile(r"^apex\.fp16_utils(?=\.|$)")

_OF_FP16 = frozenset(
    """BN_convert_float network_to_half prep_param_lists model_grads_to_master_grads
    master_params_to_model_params tofp16 to_python_float clip_grad_norm convert_module
    convert_network FP16Model FP16_Optimizer LossScaler DynamicLossScaler""".split()
)
"""What ``from apex.fp16_utils import *`` imports."""


def _uses_unbound(uses: Uses, names: frozenset[str]) -> bool:
    return any(
        mention.parts[0] in names
        and uses.owner(mention.parts[0], mention.scope) is None
        for mention in uses.mentions
    )


class ApexNames:
    """The names of apex.amp in one file."""

    def __init__(self, uses: Uses) -> None:
        self.mentions: dict[Position, str] = {}
        """The dotted name of each mention."""
        self.imports: set[Position] = set()
        """The imported names that are for apex.amp alone."""
        self.unclear: Position | None = None
        """A name that is apex.amp or something else."""
        self.unknown: dict[Position, str] = {}
        """What else is an older interface, and why it stays."""
        for module, at in uses.stars:
            if _FP16.match(module) and not _uses_unbound(uses, _OF_FP16):
                self.imports.add(at)
            elif _AMP.match(module) or _FP16.match(module) or module == "apex":
                self.unknown[at] = f"everything is imported from {module} (*)"
        self.others: dict[str, list[Position]] = {}
        """Every other mention, by its first name."""
        self.bound: dict[str, list[Position]] = {}
        """Where each name is given a value, in whatever scope."""
        plain: set[tuple[int, str]] = set()
        for mention in uses.mentions:
            owner = uses.owner(mention.parts[0], mention.scope)
            bindings = (
                [] if owner is None else uses.scopes[owner].bindings[mention.parts[0]]
            )
            target = self._target(bindings)
            dotted = ".".join((target, *mention.parts[1:])) if target else ""
            if _AMP.match(dotted):
                self.mentions[mention.at] = dotted
                continue
            if _FP16.match(dotted) and not mention.off:
                message = f"{dotted} has no certain counterpart in torch.amp"
                self.unknown[mention.at] = message
            self.others.setdefault(mention.parts[0], []).append(mention.at)
            if dotted.partition(".")[0] == "apex" and owner is not None:
                plain.add((owner, mention.parts[0]))
        for owner, scope in enumerate(uses.scopes):
            for name, bindings in scope.bindings.items():
                places = self.bound.setdefault(name, [])
                places += [binding.at for binding in bindings]
                target = self._target(bindings)
                for binding in bindings:
                    if binding.kind not in ("import", "from"):
                        continue
                    is_amp = _AMP.match(binding.target) or _AMP.match(binding.module)
                    if is_amp and not target:
                        self.unclear = binding.at
                    root_only = binding.target == "apex" and (owner, name) not in plain
                    if target and (_AMP.match(target) or root_only):
                        # `import apex` for its amp; not where it is there for its own sake.
                        if is_amp or any(
                            uses.owner(m.parts[0], m.scope) == owner
                            and m.parts[0] == name
                            for m in uses.mentions
                            if m.at in self.mentions
                        ):
                            self.imports.add(binding.at)

    @staticmethod
    def _target(bindings: list[Binding]) -> str:
        """What apex a variable stands for wherever the import of apex succeeds."""
        found = {b.target for b in bindings if b.target.partition(".")[0] == "apex"}
        if len(found) != 1:
            return ""
        tries = {
            number
            for b in bindings
            if b.target in found
            for number, field in b.tries
            if field == "body"
        }
        for other in bindings:
            if other.target in found:
                continue
            if other.target or not any(
                field == "handlers" and number in tries for number, field in other.tries
            ):
                return ""
        return found.pop()
