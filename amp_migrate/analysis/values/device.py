"""Where a script decides its device, told as the condition under which AMP is on."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

from amp_migrate.analysis.objects.availability import (
    ON_CPU,
    Place,
    Seen,
    Sight,
    is_come_to_before,
    is_over,
    leading_to,
    replaced,
    root_of,
)
from amp_migrate.analysis.objects.moves import (
    Guards,
    Move,
    Moves,
    is_literal_cuda,
    is_text,
)
from amp_migrate.analysis.objects.points_to import Object, PointsTo
from amp_migrate.analysis.objects.points_to import Place as Where
from amp_migrate.analysis.tables.torch_names import TorchNames
from amp_migrate.analysis.values.conditions import (
    Condition,
    alternatives,
    literals,
    render,
    simplified,
)
from amp_migrate.analysis.values.sentinels import left_before, tells_from_none
from amp_migrate.program import ir
from amp_migrate.program.bindings import (
    bindings,
    calls_of,
    each_call,
    parts_of,
    unpacked,
)
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition

_GIVE_BOOLS = frozenset("not in is compare == != < <= > >=".split()) | {
    "not in",
    "is not",
}
_MAKE_DEVICES = ("torch.device", "torch.accelerator.current_accelerator")
_DEVICE_WORD = re.compile(r"(?i)cuda|gpu|cpu|device")
_MOST_CALLS = 6
_MOST_NAMES = 4
_REDUCES = frozenset("mean sum max min std var norm abs pow exp log sqrt".split())
_MAKES_ON_CPU = frozenset(f"torch.{n}" for n in "zeros ones empty full Tensor".split())


@dataclass(frozen=True, slots=True)
class Decision:
    """``enabled``: an expression for the switch; ``after``: a statement it must not be before."""

    enabled: str
    after: ir.Stmt | None = None


@dataclass(frozen=True, slots=True)
class Undecided:
    """``cpu_only``: nothing in the file reaches an accelerator; else the decision is out of sight."""

    cpu_only: bool
    reason: str
    line: int = 0
    """Where; 0 for the optimizer's own."""
    beside: str = "False"
    """The condition where only others, with which it shares a loop, reach an accelerator."""


Tests = Mapping[tuple[ir.Expr, bool], tuple[str, ir.Stmt]]
"""Tests with their outcomes, each with the function and the statement where it is asked."""
Told = Callable[[str, ir.Stmt], str | None]
"""The condition for a switch that is born right after a statement in a function, where it is known
from elsewhere."""


class Devices:
    """The device decisions in some files of a program."""

    def __init__(
        self,
        program: Program,
        torch_names: TorchNames,
        files: Collection[str],
        told: Told = lambda function, birth: None,
    ) -> None:
        self.told = told
        self.files = files
        self.program = program
        self.torch_names = torch_names
        self.torch = "torch"
        """What the file of the birth that is being decided calls torch."""
        self.points_to = program.noted(PointsTo)
        self.moves = Moves(program, files)
        self.sight = Sight(program, files)
        self.reaching = self.moves.reaching
        """The moves to an accelerator that may matter to the birth that is being decided."""
        self._wanted: Tests = {}

    def only_where(self, wanted: Tests) -> Devices:
        """The same, with AMP off wherever a test has another outcome."""
        devices = copy(self)
        devices._wanted = wanted
        return devices

    def decide(self, function: str, birth: ir.Stmt) -> Decision | Undecided:
        """The condition for a switch that is born right after ``birth`` in ``function``."""
        decided = self._decide(function, birth)
        if not self._wanted or isinstance(decided, Undecided):
            return decided
        place = Place(function, birth)
        flag = self._as_flag(self._wanted, place)
        flag = flag or self._as_flag(self._asked_of_parameters(place), place)
        if flag is None:
            reason = "it cannot be seen from the optimizer which precision is chosen"
            return Undecided(False, reason, next(iter(self._wanted.values()))[1].line)
        return _joined(decided, flag)

    def _asked_of_parameters(self, place: Place) -> Tests:
        """The tests that are wanted, of the parameters by which a place's function gets what they ask."""
        program, here = self.program, place.function
        given = {
            (program.owner(value.id, caller), value.id): ir.Name(param.name)
            for param in program.functions[here].params
            for values in (program.arguments(here, param.name),)
            if len(values) == 1 and here not in program.escaping
            for caller, value in values
            if isinstance(value, ir.Name)
        }

        def said(expr: ir.Expr, at: str) -> ir.Expr:
            if isinstance(expr, ir.Operation):
                return replace(expr, operands=tuple(said(e, at) for e in expr.operands))
            root = root_of(expr)
            if root is None:
                return expr
            owner = program.owner(root.id, at)
            return replaced(expr, root, given.get((owner, root.id), root))

        return {
            (said(test, at), outcome): (here, place.stmt)
            for (test, outcome), (at, _) in self._wanted.items()
        }

    def _decide(self, function: str, birth: ir.Stmt) -> Decision | Undecided:
        told = self.told(function, birth)
        if told is not None:
            return Decision(told)
        self.torch = self.torch_names.of(function)
        place = Place(function, birth)
        self.reaching = reaching = self._before_the_next(place)
        if not reaching:
            return Undecided(True, "nothing here is moved to an accelerator")
        own, known = self.moves.own(function, birth)
        kinds = {move.kind for move in reaching}
        if "module" in kinds and "setting" not in kinds:
            # It is another that is moved, with what is fed to it.
            if self.moves.stays(function, birth):
                return self._unmoved(place)
        decided = self._by_own(own, place) if own else self._by_others(known, place)
        moved = [move for move in own if move in reaching]
        if known and not own:
            moved = self._of_parts(reaching)
        if decided is None and own:
            decided = self._by_availability(moved, place)
        if moved and not isinstance(decided, Decision):
            decided = self._by_parameters(moved, place) or decided
        if decided is None and known and not own and self._moves_others_only():
            return self._unmoved(place)
        unseen = "it cannot be seen from the optimizer where the device is decided"
        return decided or self._by_tensor(place) or Undecided(False, unseen)

    def _before_the_next(self, place: Place) -> list[Move]:
        """The moves but for those behind a statement of the same block, one that runs once, that gives the
        name of an optimizer to the next."""
        control = self.program.control(place.function)
        born, end = place.stmt, None
        if not any(o.kind in ("for", "while") for o in control.around(born.path)):
            for stmt in control.block(born.path):
                if stmt.path > born.path and stmt.kind == "assign":
                    if {*stmt.targets} & {*born.targets}:
                        end = stmt
                        break
        return [
            move
            for move in self.moves.reaching
            if end is None
            or move.function != place.function
            or move.stmt.path < end.path
        ]

    def _moves_others_only(self) -> bool:
        """Whether it is known of all that is moved to an accelerator what it is."""
        moved = [move for move in self.reaching if move.kind != "data"]
        return not self._of_parts(moved) and all(
            move.receiver is not None
            and self.points_to.whole(move.receiver, move.function, move.stmt)
            for move in moved
        )

    def _unmoved(self, place: Place) -> Undecided:
        """Where nothing moves the modules that the optimizer trains: a test of what others train on CUDA."""
        asked = self._by_parameters((), place)
        reason = "nothing in sight moves this model to an accelerator"
        return Undecided(True, reason, beside=asked.enabled if asked else "False")

    def _by_own(self, own: list[Move], place: Place) -> Decision | Undecided | None:
        """By where the modules that the optimizer trains are moved to."""
        reaching = [move for move in own if move in self.reaching]
        if not reaching:
            return Undecided(True, "the model here is moved to the CPU only")
        for move in _latest_first(reaching, place):
            same = self._same(move)
            found = self._by_device(same, place)
            if isinstance(found, Decision):
                return self._where_moved(found, [m for m in same if m in own], place)
            if found is not None:
                return found
        plain = self._plain(reaching)
        losses = [m for m in self.reaching if m.kind == "loss"]
        found = self._by_device(losses, place) if plain else None
        if found is None and plain:
            found = self._by_guards(plain, place)
        if found is None:
            # The model is moved out of sight; what it is fed here has to be where it is.
            data = [m for m in self.reaching if m.kind == "data"]
            fed = [m for m in data if m.function == place.function]
            found = self._by_device(fed or self._kept(data, place), place)
        return found

    def _kept(self, data: list[Move], place: Place) -> list[Move]:
        """The moves of what the methods of a place's class keep for its models, if all are to one device."""
        own = self.program.self_class(place.function)
        kept = [
            move
            for move in data
            for other in (self.program.self_class(move.function),)
            if own is not None
            and other is not None
            and own[1] == other[1]
            and any(
                isinstance(target, ir.Attr) and target.value == ir.Name(other[0])
                for target in move.stmt.targets
            )
        ]
        alike = self._same(kept[0]) if kept else []
        return kept if all(move in alike for move in kept) else []

    def _where_moved(
        self, found: Decision, moves: list[Move], place: Place
    ) -> Decision | Undecided:
        """``if use_gpu: model.to(gpus[0])``: what is never the CPU does not tell whether it is used."""
        if not all(self._is_told_by_tests(move, place) for move in moves):
            return found
        flag = self._by_guards(moves, place)
        if flag is None:
            reason = "it cannot be seen from the optimizer whether the model is moved"
            return Undecided(False, reason, moves[0].line)
        return _joined(flag, found)

    def _is_told_by_tests(self, move: Move, place: Place) -> bool:
        """Whether a device is an accelerator always, and a test decides whether something is moved there."""
        device, where = move.device, (move.function, move.stmt)
        if device is None or not all(
            one.kind == "open" or self._is_accelerator(one)
            for one in self.moves.names.of(device, *where)
        ):
            return False
        around = set(literals(self._guards_of(place)))
        return any(
            (test, outcome) not in around and self._is_about_device(test, move)
            # Without CUDA both are off by themselves.
            and not all(
                self.moves.is_call_of(one, "torch.cuda.is_available")
                for one in self.points_to.of(test, *where)
            )
            for test, outcome in literals(self._deciding(move, place))
        )

    def _is_accelerator(self, one: Object) -> bool:
        """``"cuda:0"``, a number, or an option that is one."""
        if one.fields:
            options = self._options(one._replace(fields=one.fields[:1]))
            return bool(options) and all(
                any(a.name == "type" and a.value == ir.Name("int") for a in call.args)
                for call in options
            )
        return is_literal_cuda(one.expr) or (
            isinstance(one.expr, ir.Const) and type(one.expr.value) is int
        )

    def _same(self, move: Move) -> list[Move]:
        """A move to a device variable, and the moves to other variables that hold the same one."""
        if move.device is None:
            return []
        wanted = self._sources(move.device, move.function, move.stmt)
        return [
            other
            for other in self.reaching
            if other.device is not None
            and (
                other is move
                or self._sources(other.device, other.function, other.stmt) & wanted
            )
        ]

    def _by_availability(self, moves: Iterable[Move], place: Place) -> Decision | None:
        """Where the place cannot see the device that is chosen: every one is CUDA where there is any,
        which can be asked anywhere."""
        own = self.program.self_class(place.function)
        for move in moves:
            other = self.program.self_class(move.function)
            if own is not None and other is not None:
                if not self._have_same_instances(own[1], other[1]):
                    return None
            if move.device is None or move.guards:
                return None
            if not self._is_always_run(move.function, move.stmt, place, 0):
                return None
            if not self.moves.is_cuda_if_available(move):
                return None
        return Decision(f"{self.torch}.cuda.is_available()")

    def _of_parts(self, moves: Iterable[Move]) -> list[Move]:
        """The moves by which modules put their own parts somewhere, those included that are moved as soon
        as they are made."""
        return [
            move
            for move in moves
            for own in (self.program.self_class(move.function),)
            if own is not None and self.moves.forward.is_module_class(own[1])
            for moved in self._names_of(move)
            if root_of(moved) == ir.Name(own[0])
        ]

    def _names_of(self, move: Move) -> Iterator[ir.Expr]:
        """What a module that is moved is called, also where it is moved as soon as it is made."""
        if move.receiver is not None and move.kind == "module":
            yield move.receiver
        if isinstance(move.receiver, ir.Call):
            for target in move.stmt.targets:
                if move.kind == "module" or self.moves.forward.is_module(
                    target, move.function
                ):
                    yield target

    def _by_parameters(self, moves: Iterable[Move], place: Place) -> Decision | None:
        """Where the decision is out of sight, but made before: a parameter that the optimizer is given is
        where it was put."""
        if not all(
            is_over(self.program, move.function, move.stmt, place)
            or self._is_made_and_moved(move.receiver, move.function, move.stmt, place)
            for move in moves
        ):
            return None
        made = [(call, place.function) for _, call in each_call((place.stmt,))]
        for target in place.stmt.targets:
            found = self.points_to.of(target, place.function)
            made += (
                (one.expr, one.function)
                for one in found
                if isinstance(one.expr, ir.Call) and one.function != place.function
            )
        given = {
            (
                None
                if module is None
                else self._written(module, function, call.line, place)
            )
            for call, function in made
            for arg in call.args
            for module in self._listed(arg.value, function, 0)
        }
        text = given.pop() if len(given) == 1 else None
        if text is None or text.endswith(")"):
            return None
        functions = self.program.functions.values()
        if any(f.name == "parameters" and f.class_name is not None for f in functions):
            # A list is no iterator.
            return None
        return Decision(f'next({text}.parameters()).device.type == "cuda"')

    def _by_tensor(self, place: Place) -> Decision | None:
        """Of ``Adam([self.log_alpha])``: a tensor that torch makes is where it was put."""
        for _, call in each_call((place.stmt,)):
            match call.args:
                case (
                    ir.Arg(value=ir.Display(items=(ir.Name() | ir.Attr() as one,))),
                    *_,
                ):
                    made = self.program.definitions_of(one, place.function)
                    text = self._written(one, place.function, call.line, place)
                    if text and made and all(map(self._is_made_by_torch, made)):
                        return Decision(f'{text}.device.type == "cuda"')
        return None

    def _is_made_by_torch(self, made: Definition) -> bool:
        value = made.value
        origin = isinstance(value, ir.Call) and (
            self.program.origin(value.func, made.function)
        )
        return bool(origin) and str(origin).startswith("torch.")

    def _listed(
        self, expr: ir.Expr, function: str, depth: int
    ) -> Iterator[ir.Expr | None]:
        """The modules of whose parameters a value is made, by way of variables of a function; None for one
        that is none of its variables."""
        for inner in ir.walk(expr):
            match inner:
                case ir.Call(
                    func=ir.Attr(value=module, attr="parameters" | "named_parameters"),
                    args=(),
                ):
                    yield (
                        module if self._is_variable(root_of(module), function) else None
                    )
                case ir.Name(id=name) if depth < _MOST_NAMES:
                    for made in self.program.definitions(function, name):
                        if made.value is not None:
                            yield from self._listed(made.value, function, depth + 1)

    def _is_variable(self, root: ir.Name | None, function: str) -> bool:
        """Whether a name has one meaning throughout a function: it is no loop's."""
        if root is None:
            return False
        owner = self.program.owner(root.id, function)
        return owner is not None and all(
            made.stmt.kind == "assign"
            for made in self.program.definitions(owner, root.id)
        )

    def _written(self, expr: ir.Expr, at: str, line: int, place: Place) -> str | None:
        """An expression that ``at`` evaluates in ``line``, in the words of the place."""
        if at == place.function:
            return ir.render(expr)
        sites = self.program.call_sites.get(at, ())
        if isinstance(expr, ir.Name) and not self.program.definitions(at, expr.id):
            for site in sites:
                if site.stmt is place.stmt and site.caller == place.function:
                    # What was read for the call can be read behind it.
                    given = self.points_to.argument(site, expr.id)
                    root = None if given is None else root_of(given)
                    bound = {name for name, _, _ in bindings(place.stmt)}
                    if given is not None and root is not None:
                        return None if root.id in bound else ir.render(given)
        seen = self._translated(expr, at, line, place, 0)
        return None if seen is None else ir.render(seen.expr)

    def _is_made_and_moved(
        self,
        moved: ir.Expr | None,
        function: str,
        stmt: ir.Stmt,
        place: Place,
        asked: tuple[str, ...] = (),
    ) -> bool:
        """Whether a function that is left when a place is come to moves what it makes, or is given that by
        such a one: each run of it another one."""
        program = self.program
        if moved is None or ir.is_top(function) or function in asked:
            return False
        if any(function == f for f, _ in leading_to(program, place)):
            return False
        found = self.points_to.of(moved, function, stmt)
        if found and all(o.kind == "value" and o.function == function for o in found):
            return True
        if (
            not isinstance(moved, ir.Name)
            or not program.is_param(function, moved.id)
            or program.definitions(function, moved.id)
            or function in program.escaping
        ):
            return False
        given = [
            (self.points_to.argument(site, moved.id), site)
            for site in program.call_sites.get(function, ())
        ]
        return bool(given) and all(
            one is not None
            and (
                self._is_made_and_moved(
                    one, site.caller, site.stmt, place, (*asked, function)
                )
                or is_over(program, site.caller, site.stmt, place)
                or not self.moves.may_be_trained(
                    one, (site.caller, site.stmt, ()), place.function, place.stmt
                )
            )
            for one, site in given
        )

    def _have_same_instances(self, one: str, other: str) -> bool:
        """Whether what is of one class is of the other: the same, or a mixin and the only class that it is
        mixed into."""
        program = self.program
        mixin, mixed = (one, other) if one in program.bases(other) else (other, one)
        return one == other or (
            mixin in program.bases(mixed)
            and not any(
                mixin in program.bases(related) and mixed not in program.bases(related)
                for related in program.family(mixin) - {mixin}
            )
            and not any(
                ref.name == mixin
                for function, _, call in program.calls_named(
                    program.classes[mixin].name
                )
                for ref in program.resolve(call.func, function)
            )
        )

    def _is_always_run(
        self, function: str, stmt: ir.Stmt, place: Place, depth: int
    ) -> bool:
        """Whether no test decides if a statement is run before a place is come to."""
        if self._may_return_before(function, stmt, place):
            return False
        if ir.is_top(function) or self.program.functions[function].name == "__init__":
            return True
        sites = self.program.call_sites.get(function, [])
        return (
            bool(sites)
            and depth < _MOST_CALLS
            and all(
                not self._guards_of(Place(site.caller, site.stmt))
                and not _is_chosen(site.stmt, site.call)
                and self._is_always_run(site.caller, site.stmt, place, depth + 1)
                for site in sites
            )
        )

    def _may_return_before(self, function: str, stmt: ir.Stmt, place: Place) -> bool:
        """Whether a function may be left before a statement, and a place come to all the same."""
        body = self.program.functions[function].body
        if not any(
            one.kind == "return" and one.line < stmt.line for one in ir.statements(body)
        ):
            return False
        return function not in self.program.calling(place.function)

    def _by_others(self, known: bool, place: Place) -> Decision | Undecided | None:
        """By what else is moved, where no move of the optimizer's own modules is seen."""
        reaching = self.reaching
        settings = [move for move in reaching if move.kind == "setting"]
        data = [move for move in reaching if move.kind in ("data", "mention")]
        if settings:
            found = self._by_device(settings, place)
            plain = self._plain(settings)
            if found is None and plain:
                found = self._by_guards(plain, place)
            return found
        if known and all(move.kind != "data" for move in data):
            # What is moved here is another model.
            return None
        modules = [m for m in reaching if m.kind in ("module", "loss")]
        found = self._by_device([*modules, *data], place)
        if isinstance(found, Decision):
            named = [move for move in modules if move.device is not None]
            return self._where_moved(found, named or data, place)
        if found is not None:
            return found
        plain = self._plain([m for m in modules if m.kind == "module"])
        if plain:
            here = [move for move in plain if move.function == place.function]
            return self._by_guards(here or plain, place)
        plain = self._plain(data)
        for move in plain:
            about = self._about_device(move)
            if about:
                flags = dict.fromkeys(about, (move.function, move.stmt))
                found = self._as_flag(flags, place)
                if found is not None:
                    return found
        if any(not self._about_device(move) for move in plain):
            return Decision(f"{self.torch}.cuda.is_available()")
        return None

    def _plain(self, moves: Iterable[Move]) -> list[Move]:
        """Moves that say "CUDA" and nothing else."""
        return [
            move
            for move in moves
            if move.device is None or self.moves.is_always_cuda(move)
        ]

    # -- by a device variable -----------------------------------------------------------------

    def _by_device(
        self, moves: Iterable[Move], place: Place
    ) -> Decision | Undecided | None:
        """The first device variable that the place can see; its own, and those called so, before others."""
        named = [
            move
            for move in map(self._without_constructor, moves)
            if move.device is not None and ir.key_of(move.device) is not None
        ]

        def order(move: Move) -> tuple[bool, bool]:
            assert move.device is not None
            root = root_of(move.device)
            owner = self.program.owner(root.id, place.function) if root else None
            local = move.function == place.function and owner == place.function
            return not local, "device" not in (ir.key_of(move.device) or "")

        named.sort(key=order)
        for move in named:
            assert move.device is not None
            seen = self.sight.see(move.device, move.function, move.line, place)
            if seen is not None and seen.expr == ON_CPU:
                if move.kind == "module":
                    return Undecided(True, "the model here is moved to the CPU only")
                continue
            decision = None if seen is None else self._device_decision(seen, place)
            if seen is None or decision is None:
                continue
            is_named = all(
                self._is_device(one) or is_text(one)
                for one in self._held(seen, place)
                if not (one.is_none and self._is_chosen_later(seen.expr, place))
            )
            tested = None if is_named else self._tested(move, place)
            if tested is None:
                return decision
            text = ir.render(tested.device) if tested.device is not None else None
            reason = f"`{text}` may hold a value that is not a device (-1, None)"
            return Undecided(False, reason, tested.line)
        return None

    def _without_constructor(self, move: Move) -> Move:
        """``model.to(torch.device(name))`` as a move to ``name``."""
        device = move.device
        if isinstance(device, ir.Call) and len(device.args) == 1:
            if self.program.origin(device.func, move.function) == "torch.device":
                return replace(move, device=device.args[0].value)
        return move

    def _tested(self, move: Move, place: Place) -> Move | None:
        """A move to the same device that is made only if the device is one."""
        around = set(literals(self._guards_of(place)))
        for other in self._same(move):
            assert other.device is not None
            scope = self.program.functions[other.function]
            ways = [
                (literals(other.guards), other.function),
                (left_before(scope.body, other.stmt, len(scope.path)), other.function),
                (literals(self._of_callers(other, place)), place.function),
            ]
            sources = self._sources(other.device, other.function, other.stmt)
            for tests, function in ways:
                same = partial(self._is_from, sources, function)
                for test in tests:
                    if test not in around and tells_from_none(test[0], same):
                        return other
        return None

    def _is_from(
        self, sources: frozenset[tuple[object, ...]], function: str, expr: ir.Expr
    ) -> bool:
        return bool(self._sources(expr, function) & sources)

    def _held(self, seen: Seen, place: Place) -> tuple[Object, ...]:
        """What a variable may be where it is seen."""
        stmt = seen.after or place.stmt
        block = self.program.control(place.function).block(stmt.path)
        before = stmt if seen.after is None else None
        behind = next((one for one in block if one.path > stmt.path), before)
        return self.points_to.of(seen.expr, place.function, behind)

    def _device_decision(self, seen: Seen, place: Place) -> Decision | None:
        text = ir.render(seen.expr)
        held = self._held(seen, place)
        known = [one for one in held if not one.is_none]
        if text is None:
            return None
        test = f'{self.torch}.device({text}).type == "cuda"'
        if known and all(map(self._is_device, known)):
            test = f'{text}.type == "cuda"'
        if len(known) < len(held):
            if not self._is_chosen_later(seen.expr, place):
                return None
            # What is moved to None stays where it is.
            test = f"{text} is not None and {test}"
        return Decision(test, seen.after)

    def _is_chosen_later(self, expr: ir.Expr, place: Place) -> bool:
        """Whether it is the variable of a file, None at first (``gpu.device``), which a function chooses that
        may run before a place is come to. What is imported out of the file keeps what was there first.
        """
        program, function = self.program, place.function
        there = program.elsewhere(expr, function)
        if isinstance(expr, ir.Name) and there is not None:
            return False
        name, home = there or (expr, function)
        if not isinstance(name, ir.Name):
            return False
        owner = program.owner(name.id, home)
        if owner is None or not ir.is_top(owner):
            return False
        chosen = [d for d in program.defined(name.id, home) if d.function != owner]
        return any(not is_come_to_before(program, d.function, place) for d in chosen)

    def _is_device(self, one: Object) -> bool:
        return not one.fields and self.moves.is_call_of(one, *_MAKE_DEVICES)

    def _sources(
        self, expr: ir.Expr, function: str, stmt: ir.Stmt | None = None
    ) -> frozenset[tuple[object, ...]]:
        """Where a device comes from in the end: two expressions that share a source are one device."""
        return frozenset(
            (
                (id(one.expr), one.fields)
                if one.kind != "lost"
                else ("lost", one.fields[-1] if one.fields else one.expr)
            )
            for one in self.moves.names.of(expr, function, stmt)
            if one.kind != "open" and not one.is_none
        )

    # -- by the tests around plain moves ------------------------------------------------------

    def _by_guards(self, moves: list[Move], place: Place) -> Decision | None:
        """The condition under which at least one of the moves runs."""
        around: Condition = frozenset(literals(self._guards_of(place)))
        opposite = {(test, not outcome) for test, outcome in around}
        ways: list[Condition] = []
        tests: dict[tuple[ir.Expr, bool], tuple[str, ir.Stmt]] = {}
        for move in moves:
            own = dict.fromkeys(
                literals(self._of_callers(move, place)), (place.function, place.stmt)
            )
            for test, outcome in literals(self._deciding(move, place)):
                given, function, stmt = self._as_given(test, move, place)
                own[given, outcome] = function, stmt
            condition: Condition = frozenset(own)
            if not condition & opposite:
                ways.append(condition - around)
                tests |= own
        shortest = simplified(frozenset(ways))
        if len(shortest) > 1:
            split = {one for way in shortest for one in alternatives(way)}
            shortest = simplified(frozenset(split))
        if frozenset() in shortest or self._is_moved_before(moves, place):
            return Decision(f"{self.torch}.cuda.is_available()")
        if len(shortest) != 1:
            return None
        (condition,) = shortest
        if not condition <= tests.keys():
            return None
        ordered = {test: tests[test] for test in tests if test in condition}
        return self._as_flag(ordered, place)

    def _as_given(
        self, test: ir.Expr, move: Move, place: Place
    ) -> tuple[ir.Expr, str, ir.Stmt]:
        """A test of a parameter as what those who call the function from the place's file give it, where
        that is one and the same: the test, and where it stands."""
        here = test, move.function, move.stmt
        if not isinstance(test, ir.Name) or move.function == place.function:
            return here
        program = self.program
        scope = program.functions[move.function]
        if all(p.name != test.id for p in scope.params) or program.definitions(
            move.function, test.id
        ):
            return here
        given = {
            (program.argument_at(site, test.id), site.caller): site.stmt
            for site in program.call_sites.get(move.function, [])
            if ir.file_of(site.caller) == ir.file_of(place.function)
        }
        if len(given) != 1:
            return here
        (((value, caller), stmt),) = given.items()
        return here if value is None else (value, caller, stmt)

    def _is_moved_before(self, moves: list[Move], place: Place) -> bool:
        """Whether every way to a place passes one of the moves: each branch has one, or raises."""
        paths = {
            move.stmt.path
            for move in moves
            if move.function == place.function
            # No test within its statement decides about it.
            and len(move.guards)
            == len(self._guards_of(Place(move.function, move.stmt)))
        }
        control = self.program.control(place.function)
        return control.is_passed(lambda stmt: stmt.path in paths, place.stmt.path)

    def _deciding(self, move: Move, place: Place) -> Guards:
        """The tests that decide whether a move runs where its module exists at all."""
        guards = move.guards
        stmt = move.stmt
        target = stmt.targets[0] if len(stmt.targets) == 1 else None
        if target is not None and _is_moved(stmt.value) and _constructs(stmt.value):
            # Each way makes a model of its own, and moves it.
            made = [
                d.value
                for d in self.program.definitions_of(target, move.function)
                if d.value is not None
                and d.value != ir.Const(None)
                and target not in ir.walk(d.value)
            ]
            if all(_is_moved(value) for value in made):
                guards = tuple(g for g in guards if self._is_about_device(g[0], move))
        return guards

    def _of_callers(self, move: Move, place: Place) -> Guards:
        """The tests under which the place's function calls the one that moves."""
        if move.function != place.function:
            for site in self.program.call_sites.get(move.function, []):
                if site.caller == place.function:
                    outer = self._guards_of(Place(site.caller, site.stmt))
                    return tuple(g for g in outer if self._is_about_device(g[0], move))
        return ()

    def _guards_of(self, place: Place) -> Guards:
        """The tests around a statement."""
        found: list[tuple[ir.Expr, bool]] = []
        path = place.stmt.path
        for stmt in self.program.control(place.function).around(path):
            if stmt.kind == "if" and stmt.value is not None:
                if ir.Name("__name__") not in ir.walk(stmt.value):
                    found.append((stmt.value, path[len(stmt.path)][0] == "body"))
        return tuple(reversed(found))

    def _about_device(self, move: Move) -> list[tuple[ir.Expr, bool]]:
        tests = literals(move.guards)
        return [g for g in tests if self._is_about_device(g[0], move)]

    def _is_about_device(self, test: ir.Expr, move: Move) -> bool:
        """Whether a test speaks of devices, also by the values that its variables have."""
        pending: list[tuple[ir.Expr, Where]] = [(test, (move.function, None, ()))]
        seen: set[tuple[ir.Expr, str]] = set()
        while pending:
            expr, place = pending.pop()
            for inner in ir.walk(expr):
                match inner:
                    case ir.Name(id=word) | ir.Attr(attr=word) if _DEVICE_WORD.search(
                        word
                    ):
                        return True
                    case ir.Const(value="cuda" | "cpu" | "gpu"):
                        return True
                    case ir.Name() if (inner, place[0]) not in seen:
                        seen.add((inner, place[0]))
                        found = self.points_to.of(inner, *place)
                        pending += (
                            (one.expr, one.place)
                            for one in found
                            if isinstance(one.expr, (ir.Call, ir.Operation))
                        )
        return False

    def _as_flag(self, tests: Tests, place: Place) -> Decision | None:
        """Tests, each with (function, statement), as one expression that the place can write."""
        parts: list[str] = []
        after: ir.Stmt | None = None
        boolean = True
        for (test, outcome), (function, stmt) in tests.items():
            seen = self._translated(test, function, stmt.line, place, 0)
            text = None if seen is None else render(seen.expr, outcome)
            if seen is None or text is None:
                return None
            if seen.after is not None and (
                after is None or after.line < seen.after.line
            ):
                after = seen.after
            if outcome and not self._is_boolean(test, function, stmt):
                boolean = False
            if (
                isinstance(seen.expr, ir.Operation)
                and seen.expr.op == "or"
                and outcome
                and len(tests) > 1
            ):
                text = f"({text})"
            parts.append(text)
        enabled = " and ".join(parts)
        return Decision(enabled if boolean else f"bool({enabled})", after)

    def _translated(
        self, expr: ir.Expr, at: str, line: int, place: Place, depth: int
    ) -> Seen | None:
        """An expression that ``at`` evaluates in ``line``, as the place can write it."""
        program = self.program
        if depth > 6:
            return None
        if isinstance(expr, ir.Const):
            return Seen(expr)
        if isinstance(expr, ir.Call):
            origin = program.origin(expr.func, at)
            if origin == "torch.cuda.is_available":
                func = ir.Attr(ir.Name(self.torch), "cuda")
                return Seen(ir.Call(ir.Attr(func, "is_available"), ()))
            if origin is None or expr.args:
                return None
            func_seen = self._translated(expr.func, at, line, place, depth + 1)
            return func_seen and Seen(ir.Call(func_seen.expr, ()))
        if isinstance(expr, ir.Operation):
            operands = [
                self._translated(operand, at, line, place, depth + 1)
                for operand in expr.operands
            ]
            whole = [operand for operand in operands if operand is not None]
            if len(whole) < len(operands):
                return None
            waits = [s.after for s in whole if s.after is not None]
            after = max(waits, key=lambda stmt: stmt.line, default=None)
            return Seen(ir.Operation(expr.op, tuple(s.expr for s in whole)), after)
        if root_of(expr) is None:
            return None
        seen = self.sight.see(expr, at, line, place)
        if seen is not None or not isinstance(expr, ir.Name):
            return seen
        # Out of sight; but where it has one value, that can be said again.
        owner = program.owner(expr.id, at)
        if owner is None:
            return None
        if any(p.name == expr.id for p in program.functions[owner].params):
            for caller, value in program.arguments(owner, expr.id):
                if caller == place.function:
                    here = place.stmt.line
                    return self._translated(value, caller, here, place, depth + 1)
            return None
        found = program.definitions(owner, expr.id)
        if len(found) != 1 or found[0].value is None or owner == place.function:
            return None
        return self._translated(
            found[0].value, found[0].function, found[0].stmt.line, place, depth + 1
        )

    def _is_boolean(self, expr: ir.Expr, function: str, stmt: ir.Stmt) -> bool:
        found = self.points_to.of(expr, function, stmt)
        return bool(found) and all(map(self._is_bool, found))

    def _is_bool(self, one: Object) -> bool:
        if one.fields:
            options = self._options(one)
            return bool(options) and all(map(_is_flag, options))
        match one.expr:
            case ir.Const(value=bool()):
                return True
            case ir.Operation(op=op) if op in _GIVE_BOOLS:
                return True
        return self.moves.is_call_of(one, "torch.cuda.is_available", "builtins.bool")

    def options_against(self, function: str, stmt: ir.Stmt) -> Tests:
        """An option of the command line that is not as it is by default where a statement runs: a test of it,
        with the other outcome."""
        for test, outcome in literals(self._guards_of(Place(function, stmt))):
            if not _DEVICE_WORD.search(ir.render(test) or "cuda"):
                if self._by_default(test, function, stmt) is (not outcome):
                    return {(test, not outcome): (function, stmt)}
        return {}

    def _by_default(self, test: ir.Expr, function: str, stmt: ir.Stmt) -> bool | None:
        """The outcome by default of a test of an option that nothing sets later."""
        asked, op = test, ""
        wanted: object = None
        match test:
            case ir.Operation(op="==" | "!=" as op, operands=(asked, ir.Const(wanted))):
                pass
        if not isinstance(asked, (ir.Name, ir.Attr)):
            return None
        found = self.points_to.of(asked, function, stmt)
        if not all(one.fields and not self._may_be_set(one) for one in found):
            return None
        options = {_default(call) for one in found for call in self._options(one)}
        match [*options]:
            case [ir.Const(value)]:
                return (value == wanted) is (op == "==") if op else bool(value)
        return None

    def _may_be_set(self, one: Object) -> bool:
        """Whether an option may have another value than it is read with: ``args.half = True``."""
        attr, own = one.fields[-1][1], self.program.class_of_self
        for function, stmt in self.program.all_statements():
            for target, _, _ in unpacked(stmt):
                match target:
                    case ir.Attr(value=holder, attr=name):
                        if name == attr and own(holder, function) is None:
                            return True
                    case ir.Item(value=holder) if _is_namespace(holder):
                        return True
            for call in calls_of(stmt):
                match call.func, call.args:
                    case ir.Attr(value=holder, attr="update"), _:
                        if _is_namespace(holder):
                            return True
                    case ir.Name(id="setattr"), (
                        ir.Arg(value=of),
                        ir.Arg(value=key),
                        *_,
                    ):
                        named = isinstance(key, ir.Const) and key.value != attr
                        if not named and own(of, function) is None:
                            return True
        return False

    def _options(self, one: Object) -> list[ir.Call]:
        """The options of the command line that give an object its attribute."""
        kind, attr = one.fields[-1]
        return [
            call
            for function, _, call in self.program.calls_named("add_argument")
            if kind == "attribute" and ir.file_of(function) in self.files
            if attr
            in {
                str(arg.value.value).lstrip("-").replace("-", "_")
                for arg in call.args
                if isinstance(arg.value, ir.Const)
            }
        ]


def _joined(*found: Decision) -> Decision:
    """Where all of some conditions hold."""
    after = max(
        (one.after for one in found if one.after is not None),
        key=lambda stmt: stmt.line,
        default=None,
    )
    parts = (f"({d.enabled})" if " or " in d.enabled else d.enabled for d in found)
    return Decision(" and ".join(parts), after)


def _default(call: ir.Call) -> ir.Expr:
    """What an option is where it is left out."""
    if (said := call.argument(99, "default")) is not None:
        return said
    action = call.argument(99, "action")
    if action in (ir.Const("store_true"), ir.Const("store_false")):
        return ir.Const(action == ir.Const("store_false"))
    return ir.Const(None)


def _is_namespace(expr: ir.Expr) -> bool:
    """``args.__dict__``, ``vars(args)``."""
    match expr:
        case ir.Attr(attr="__dict__") | ir.Call(func=ir.Name(id="vars")):
            return True
    return False


def _is_flag(call: ir.Call) -> bool:
    """Whether an option is made a bool by its type or action, and is one where it is left out."""
    named = {arg.name: arg.value for arg in call.args}
    action, default = named.get("action"), named.get("default")
    if action in (ir.Const("store_true"), ir.Const("store_false")):
        return True
    says = named.get("type") == ir.Name("bool") or (
        action is not None
        and (ir.key_of(action) or "").endswith("BooleanOptionalAction")
    )
    return says and isinstance(default, ir.Const) and isinstance(default.value, bool)


def _is_chosen(stmt: ir.Stmt, call: ir.Call) -> bool:
    """Whether a test on a statement's own line decides if a call in it is run."""
    return any(
        one is call
        for inner in parts_of(stmt)
        if isinstance(inner, ir.Operation) and inner.op in ("if", "and", "or")
        for operand in inner.operands[1:]
        for one in ir.walk(operand)
    )


def _latest_first(moves: list[Move], place: Place) -> list[Move]:
    """Of several moves of one model, the last one before the place decides."""

    def order(move: Move) -> tuple[int, int]:
        if move.function != place.function:
            return (1, 0)
        before = move.line <= place.stmt.line
        return (0, -move.line) if before else (2, move.line)

    return sorted(moves, key=order)


def _is_moved(value: ir.Expr | None) -> bool:
    """``... .cuda()`` or ``... .to(device)``."""
    return isinstance(value, ir.Call) and ir.method_of(value) in ("cuda", "to")


def _constructs(value: ir.Expr | None) -> bool:
    return (
        isinstance(value, ir.Call)
        and isinstance(value.func, ir.Attr)
        and isinstance(value.func.value, ir.Call)
    )


def stays_on_cpu(program: Program, expr: ir.Expr, function: str) -> bool:
    """Whether a value is computed on the CPU wherever the model is: of nothing but numbers and a tensor that
    torch makes there, whose elements are set one by one (a number of another device may be stored).
    """
    return _is_on_cpu(program, expr, function, frozenset()) is True


def is_moved_to_cpu(
    program: Program, expr: ir.Expr, function: str, around: frozenset[str] = frozenset()
) -> bool:
    """Whether a value is seen to be moved to the CPU, or computed of what is: ``criterion(out.cpu(), y)``."""

    def is_moved(one: ir.Expr, name: str = "") -> bool:
        return is_moved_to_cpu(program, one, function, around | {name})

    match expr:
        case ir.Call(func=ir.Attr(attr="cpu"), args=()):
            return True
        case ir.Call(func=ir.Attr(attr="to"), args=(ir.Arg(value=where), *_)):
            return where == ir.Const("cpu") or (
                isinstance(where, ir.Call)
                and program.origin(where.func, function) == "torch.device"
                and [arg.value for arg in where.args] == [ir.Const("cpu")]
            )
        case ir.Operation(op=op, operands=operands) if op != "if":
            return any(is_moved(one) for one in operands)
        case ir.Call(func=func, args=args) if not program.callees(expr, function):
            given = [arg.value for arg in args[:1]]
            if isinstance(func, ir.Attr) and func.attr in _REDUCES:
                given.append(func.value)
            return any(is_moved(one) for one in given)
        case ir.Name(id=name) if name not in around:
            return program.owner(name, function) == function and any(
                made.value is not None
                and made.index is None
                and is_moved(made.value, name)
                for made in program.definitions(function, name)
            )
    return False


def _is_on_cpu(
    program: Program, expr: ir.Expr, function: str, around: frozenset[str]
) -> bool | None:
    """None of what is no tensor, as far as can be seen: numbers, and what comes out of a configuration."""
    match expr:
        case ir.Operation(operands=operands):
            parts = [_is_on_cpu(program, one, function, around) for one in operands]
            return None if set(parts) == {None} else False not in parts
        case ir.Call(func=ir.Attr(value=value, attr=attr)) if attr in _REDUCES:
            reduced = expr.argument(0, "input") if value == ir.Name("torch") else value
            return reduced is not None and _is_on_cpu(
                program, reduced, function, around
            )
        case ir.Name(id=name) if name not in around:
            if program.owner(name, function) != function or program.is_param(
                function, name
            ):
                return False
            found = program.definitions(function, name)
            stored = any(
                isinstance(target, ir.Item) and target.value == expr
                for stmt in program.statements(function)
                for target in stmt.targets
            )
            made = {
                (stored and _is_made_on_cpu(program, d.value, function))
                or _is_on_cpu(program, d.value, function, around | {name})
                for d in found
                if d.value is not None
            }
            return None if made <= {None} else False not in made
        case ir.Call():
            return False
    return None


def _is_made_on_cpu(program: Program, value: ir.Expr, function: str) -> bool:
    """``torch.zeros(n)``, where nothing says on which device."""
    return (
        isinstance(value, ir.Call)
        and (program.origin(value.func, function) or "") in _MAKES_ON_CPU
        and value.argument(len(value.args), "device") is None
    )
