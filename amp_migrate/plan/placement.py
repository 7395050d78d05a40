"""Where ``unscale_`` and ``update`` go, found by running the protocol until nothing is left to place."""

from __future__ import annotations

from collections.abc import Collection

from amp_migrate.facts import ir
from amp_migrate.plan.aftermath import Aftermath
from amp_migrate.plan.coverage import Coverage
from amp_migrate.plan.events import Events
from amp_migrate.plan.loops import Refusal
from amp_migrate.plan.protocol import READY, Access, Fault, Placement, Protocol, Site
from amp_migrate.project.link import Program
from amp_migrate.project.optimizers import Slot

_ROUNDS = 6


class Placer:
    """Places the scaler's calls for one optimizer."""

    def __init__(
        self,
        program: Program,
        events: Events,
        slots: frozenset[Slot],
        backwards: frozenset[Site],
        steps: frozenset[Site],
        births: frozenset[Site],
        coverage: Coverage,
        files: Collection[str],
    ) -> None:
        """``files``: where the ways to the optimizer's steps may begin."""
        self.files = files
        self.program = program
        self.events = events
        self.slots = slots
        self.backwards = backwards
        self.steps = steps
        self.births = births
        self.coverage = coverage

    def place(self) -> Placement | Refusal:
        """A placement that no path faults, or the reason why there is none."""
        placement = Placement(update_after=set(self.steps))
        for _ in range(_ROUNDS):
            protocol = self._run(placement)
            if not protocol.accesses:
                break
            for access in protocol.accesses:
                self._answer(access, placement)
        pending = {
            site
            for site, states in protocol.exits.items()
            if states
            and READY not in states
            and site not in placement.update_before
            and self._leaves_step(site, placement)
        }
        if pending:
            placement.update_before |= pending
            protocol = self._run(placement)
        if protocol.unguarded:
            placement.guarded |= protocol.unguarded
            protocol = self._run(placement)
        return self._judge(protocol, placement)

    def _leaves_step(self, site: Site, placement: Placement) -> bool:
        """Whether an exit leads out of the block in which gradients were unscaled."""
        function, path = site
        scope = self.program.functions[function]
        is_return = any(
            stmt.path == path and stmt.kind == "return"
            for stmt in ir.statements(scope.body)
        )
        loop: ir.Path = scope.path
        for stmt in ir.statements(scope.body):
            around = stmt.path == path[: len(stmt.path)] and stmt.path != path
            if around and stmt.kind in ("for", "while"):
                loop = max(loop, stmt.path, key=len)
        return any(
            other == function and (is_return or unscaled[: len(loop)] == loop)
            for other, unscaled in placement.unscale_before
        )

    def _run(self, placement: Placement, handlers: bool = True) -> Protocol:
        protocol = Protocol(
            self.program,
            self.events,
            self.slots,
            self.backwards,
            self.births,
            self.coverage,
            placement,
            handlers,
        )
        for root in self._roots():
            protocol.run(root)
        return protocol

    def _roots(self) -> list[str]:
        """Functions that somebody unseen may call first: those that nothing here calls."""
        involved = [
            qualname
            for qualname in self.program.functions
            if ir.file_of(qualname) in self.files
            and {"backward", "step"} & self.events.kinds(qualname)
        ]
        return [
            qualname
            for qualname in involved
            if not self.program.call_sites.get(qualname)
            or qualname in self.program.escaping
        ]

    def _judge(self, protocol: Protocol, placement: Placement) -> Placement | Refusal:
        faults = sorted(protocol.faults, key=_by_weight)
        if faults and not self._run(placement, handlers=False).faults:
            reason = "an exception handler may leave a step halfway done"
            return Refusal("AMP034", reason, faults[0].line)
        if faults:
            return Refusal(faults[0].code, faults[0].reason, faults[0].line)
        if protocol.accesses:
            access = next(iter(protocol.accesses))
            reason = "scaled gradients are read or edited where they cannot be unscaled first"
            return Refusal("AMP030", reason, access.line)
        line = Aftermath(self.program, protocol.leftovers).harm()
        if line:
            reason = "gradients still count after their step, which a scaler may skip"
            return Refusal("AMP030", reason, line)
        missed = (self.backwards | self.steps) - protocol.visited
        if missed:
            line = min(self._line_of(site) for site in missed)
            return Refusal("AMP031", "no way that leads here is visible", line)
        for site in placement.guarded:
            if not self._backward_before(site):
                reason = "a step whose backward() is not on a way that is visible here"
                return Refusal("AMP031", reason, self._line_of(site))
        return placement

    def _backward_before(self, site: Site) -> bool:
        """Whether some root that leads to a step also goes backward."""
        return any(
            {"backward", "step"} <= self.events.kinds(root)
            for root in self._roots()
            if root == site[0] or self._reaches(root, site[0], set())
        )

    def _reaches(self, function: str, target: str, seen: set[str]) -> bool:
        if function in seen:
            return False
        seen.add(function)
        for _, event in self.events.direct(function):
            for callee in event.callees:
                if callee == target or self._reaches(callee, target, seen):
                    return True
        return False

    def _line_of(self, site: Site) -> int:
        for stmt in ir.statements(self.program.functions[site[0]].body):
            if stmt.path == site[1]:
                return stmt.line
        return 0

    # -- answering an access --------------------------------------------------------------------

    def _answer(self, access: Access, placement: Placement) -> None:
        """Place an ``unscale_`` before an access, in the block where its step is."""
        function, path = self._anchor(access)
        step = self._nearest_step(function, path)
        if step is None:
            placement.unscale_before.add((function, path))
            return
        common = 0
        while common < min(len(path), len(step)) - 1 and path[common] == step[common]:
            common += 1
        if path[common][0] != step[common][0]:
            # Different branches of one statement: each for itself.
            placement.unscale_before.add((function, path))
            return
        block = path[:common]
        child = (*block, path[common])
        for other, existing in list(placement.unscale_before):
            same = other == function and existing[:-1] == child[:-1]
            if same and existing[-1][0] == child[-1][0]:
                if existing[-1][1] <= child[-1][1]:
                    return
                placement.unscale_before.discard((other, existing))
        placement.unscale_before.add((function, child))
        holder = (*block, step[common])
        if (function, step) in placement.update_after and holder != step:
            # The step stands under a condition of its own: every way on meets one update behind it.
            placement.update_after.discard((function, step))
            placement.update_after.add((function, holder))

    def _anchor(self, access: Access) -> Site:
        """The statement, in the function where the step is, that leads to an access."""
        for index in range(len(access.frames) - 1, -1, -1):
            function, path = access.frames[index]
            outer = [
                frame for frame in access.frames[: index + 1] if frame[0] == function
            ]
            path = outer[-1][1]
            steps_elsewhere = any(
                stmt.path[: len(path)] != path
                and (
                    (event.kind == "step" and event.slot in self.slots)
                    or any(
                        "step" in self.events.kinds(callee) for callee in event.callees
                    )
                )
                for stmt, event in self.events.direct(function)
            )
            inside = any(
                "backward" in self.events.kinds(callee)
                for stmt, event in self.events.direct(function)
                if stmt.path[: len(path)] == path
                for callee in event.callees
            )
            if inside:
                # The backward happens in the callee: only there can anything come between.
                return access.frames[min(index + 1, len(access.frames) - 1)]
            if steps_elsewhere:
                return function, path
        return access.frames[-1]

    def _nearest_step(self, function: str, path: ir.Path) -> ir.Path | None:
        """The step (or the call that steps) with the deepest block in common, at or after a path."""
        best: ir.Path | None = None
        depth = -1
        for stmt, event in self.events.direct(function):
            steps = (event.kind == "step" and event.slot in self.slots) or any(
                "step" in self.events.kinds(callee) for callee in event.callees
            )
            if not steps:
                continue
            common = 0
            while (
                common < min(len(path), len(stmt.path))
                and path[common] == stmt.path[common]
            ):
                common += 1
            if common > depth:
                best, depth = stmt.path, common
        return best


def _by_weight(fault: Fault) -> tuple[int, int]:
    return (0 if fault.code == "AMP030" else 1, fault.line)
