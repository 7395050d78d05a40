"""Reachability: the functions and classes of a program that can run when one of its scripts does.

What is mentioned in code that can run can run itself. A class whose name is looked up out of sight may
be any; then nothing is left out. Of a class that is made those methods can run that such code names, or
a library may call.

An ``if`` that a run meets once takes one of its arms. Where all that leads to a place leads through one
arm, the other does not run beside that place, nor what only the other brings to life: `Live.required`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from amp_migrate.analysis.objects.carriers import (
    PLAIN_BASES,
    UNFOLDED,
    UnseenCalls,
)
from amp_migrate.analysis.objects.points_to import RETURNS_SELF
from amp_migrate.analysis.objects.read_only_uses import is_only_looked_at
from amp_migrate.core.effort import spend
from amp_migrate.program import ir
from amp_migrate.program.bindings import IMPORTS, calls_of, outcome, parts_of, unpacked
from amp_migrate.program.control_flow import ends, is_main_guard
from amp_migrate.program.layout import Located
from amp_migrate.program.link import Program, Ref

Arm = tuple[str, ir.Path, str]
"""A block of an ``if``: its function, the path of the ``if``, and ``body`` or ``orelse``."""
Arms = frozenset[Arm]

_LOOKUPS = frozenset(
    """builtins.exec builtins.__import__ inspect.getmembers hydra.utils.instantiate
    hydra.utils.get_class""".split()
)
_OF_FILE = frozenset(f"builtins.{name}" for name in "globals locals vars eval".split())
"""What looks up the names of the file in which it is called."""
_IMPORT = "importlib.import_module"
_PLAIN_METACLASSES = frozenset(("abc.ABCMeta", "dataclasses.dataclass"))
_MOST_VALUES = 6
_CALL_BY_NAME = frozenset(("fire", "jsonargparse", "ray"))
_PROTOCOL_OF_MODULES = frozenset(
    """add_module apply bfloat16 buffers children compile cpu cuda double eval extra_repr flatten_parameters
    float forward get_buffer get_extra_state get_parameter get_submodule half load_state_dict modules
    named_buffers named_children named_modules named_parameters parameters register_buffer register_module
    register_parameter requires_grad_ reset reset_parameters set_extra_state set_submodule share_memory
    state_dict to to_empty train type zero_grad""".split()
)
"""What libraries call on modules: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html"""
_KEEP_TO_THEMSELVES = frozenset(
    "buffers load_state_dict named_parameters parameters state_dict zero_grad".split()
)
"""Methods of modules that hand out no module, nor call one."""
_ASK = frozenset(f"builtins.{name}" for name in "super isinstance issubclass".split())


@dataclass(slots=True)
class _Effects:
    """What a function brings to life when it runs."""

    functions: dict[str, Arms] = field(default_factory=dict)
    """Those that can run then, each with the arms that lead to every mention of it."""
    classes: dict[str, list[str | None]] = field(default_factory=dict)
    """Those of which there may be instances, and where these are kept: names, or None where they may
    be anywhere."""
    made: dict[str, Arms] = field(default_factory=dict)
    """The same classes, with the arms that lead to every mention of them."""
    named: set[str] = field(default_factory=set)
    """Attributes that are mentioned, and strings: methods that may be called."""
    loose: set[str] = field(default_factory=set)
    """Names whose values are more than called."""
    is_open: bool = False
    """Something is looked up by a name that is not in sight: it may be any function or class."""
    is_unfolded: bool = False
    """Something calls what an object holds without its name."""
    names_any: bool = False
    """Something gets an object's attribute by a name that is not in sight."""
    reads_any: bool = False
    """The same, and does not call it: only a property runs by that."""


class Live:
    """What can run when one of some files is run as a script."""

    def __init__(
        self,
        program: Program,
        files: Collection[str],
        started: Collection[str],
        taken: Arms = frozenset(),
    ) -> None:
        """``started``: those that may be the script; the others are imported. ``taken``: the arms that
        are known to run."""
        self.program = program
        self._taken = {(function, path): block for function, path, block in taken}
        self.functions: dict[str, None] = {}
        self.classes: dict[str, None] = {}
        """Those of which there may be instances."""
        self._all = _Effects()
        self._effects: dict[str, _Effects] = {}
        self._reader = reader = program.noted(_Reader)
        self._roots = [ir.top_of(ir.global_name(file, "")) for file in sorted(files)]
        self._roots += reader.entry_points(started)
        self._pending = list(self._roots)
        self._unnamed: dict[str, list[str]] = {}
        """Methods of classes that are made, by names that nothing says which can run."""
        self._around = around = frozenset(files)
        self._started = frozenset(started)
        unmade: dict[str, list[str]] = {}
        """Functions by the one in which they stand, which makes them when it runs."""
        while self._pending:
            function = self._pending.pop()
            if function in self.functions or function not in program.functions:
                continue
            file, parent = ir.file_of(function), program.functions[function].parent
            if file not in around:
                # Another script hands it to a function that both call.
                continue
            if parent is not None and parent not in self.functions:
                unmade.setdefault(parent, []).append(function)
                continue
            self.functions[function] = None
            self._pending += unmade.pop(function, ())
            spend(40)
            own = frozenset(arm for arm in taken if arm[0] == function)
            effects = reader.of(function, file in started, around, own)
            self._effects[function] = effects
            self._add(effects)

    @property
    def is_open(self) -> bool:
        """Whether something is looked up by a name that is not in sight: it may be any function or
        class."""
        return self._all.is_open

    def _add(self, more: _Effects) -> None:
        found = self._all
        self._pending += more.functions
        found.loose |= more.loose
        found.is_open |= more.is_open
        found.is_unfolded |= more.is_unfolded
        found.names_any |= more.names_any
        found.reads_any |= more.reads_any
        found.named |= more.named
        for name in [*self._unnamed] if found.names_any else more.named:
            self._pending += self._unnamed.pop(name, ())
        is_property = self.program.is_property
        if more.reads_any:
            for methods in self._unnamed.values():
                self._pending += filter(is_property, methods)
        for class_name, holders in more.classes.items():
            if ir.file_of(class_name) not in self._around:
                continue
            for base in self.program.bases(class_name):
                found.classes.setdefault(base, []).extend(holders)
                if base not in self.classes:
                    self.classes[base] = None
                    for name, method in self.program.classes[base].methods:
                        if (
                            found.names_any
                            or (found.reads_any and is_property(method))
                            or name in found.named
                            or self._reader.may_be_called_unseen(base, name)
                        ):
                            self._pending.append(method)
                        else:
                            self._unnamed.setdefault(name, []).append(method)

    def takes(self, function: str, path: ir.Path, block: str) -> bool:
        """Whether the ``body``, or the ``orelse``, of an ``if`` can run."""
        return self._taken.get((function, path), block) == block

    def reaches(self, function: str, path: ir.Path) -> bool:
        """Whether a statement of a function can run, other arms aside that are not known to be taken."""
        return self.runs(function) and all(
            self.takes(*arm) for arm in self._reader.arms(function, path)
        )

    def executes(self, function: str, path: ir.Path) -> bool:
        """Whether a statement of a function can run with what the running part of the program sets its
        options to: no ``if`` around it always goes the other way."""
        program, is_started = self.program, ir.file_of(function) in self._started
        return not any(
            outer.kind == "if"
            and outer.value is not None
            and self._reader.outcome(
                outer.value, function, is_started, self._around, self.functions
            )
            is (path[len(outer.path)][0] != "body")
            for outer in program.control(function).around(path)
        )

    def required(self, function: str, path: ir.Path) -> Arms:
        """The arms that a run takes in which a statement of a function runs."""
        own = self._reader.arms(function, path)
        found = self._needed.get(function, frozenset()) | own
        # Both arms of one `if`: it cannot run at all, as far as is known.
        return found if len({arm[:2] for arm in found}) == len(found) else frozenset()

    @cached_property
    def _needed(self) -> dict[str, Arms]:
        """By function, the arms that every way to it leads through."""
        found: dict[str, Arms] = {}
        mentioned: dict[str, Arms] = {}
        made: dict[str, Arms] = {}
        pending = [root for root in self._roots if root in self._effects]
        found |= dict.fromkeys(pending, frozenset())
        left = dict.fromkeys(self._effects)
        while pending or left:
            if not pending:
                # What only what is not made leads to.
                pending.append(left.popitem()[0])
                found.setdefault(pending[-1], frozenset())
            function = pending.pop()
            left.pop(function, None)
            for name in self._passed_on(function, found[function], mentioned, made):
                owner = self.program.functions[name].class_name
                if owner in self.classes and owner not in made:
                    continue
                arms = mentioned.get(name, frozenset()) | made.get(
                    owner or "", frozenset()
                )
                if name not in self._roots and found.get(name) != arms:
                    found[name] = arms
                    pending.append(name)
        return found

    def _passed_on(
        self,
        function: str,
        here: Arms,
        mentioned: dict[str, Arms],
        made: dict[str, Arms],
    ) -> Iterator[str]:
        """The functions to which more ways lead by what one of them brings to life."""
        program, effects = self.program, self._effects[function]
        changed: dict[str, None] = {}
        for class_name, arms in effects.made.items():
            for base in program.bases(class_name):
                if _meet(made, base, here | arms):
                    methods = program.classes[base].methods
                    changed |= dict.fromkeys(name for _, name in methods)
        for name, arms in effects.functions.items():
            if _meet(mentioned, name, here | arms):
                changed[name] = None
        return (name for name in changed if name in self._effects)

    def runs(self, function: str) -> bool:
        """Whether a function can run: a method only where there may be an instance."""
        owner = self.program.functions[function].class_name
        return function in self.functions and (owner is None or owner in self.classes)

    def is_apart(self, class_name: str) -> bool:
        """Whether all calls of a class's instances are in sight."""
        found = self._all
        holders = found.classes.get(class_name, ())
        return not found.is_unfolded and all(
            name is not None and name not in found.loose for name in holders
        )


def runs_once(
    program: Program,
    function: str,
    stmt: ir.Stmt | None = None,
    call: ir.Expr | None = None,
) -> bool:
    """Whether a run of a program comes to a call once at most, or to a function."""
    reader = program.noted(_Reader)
    if stmt is None or call is None:
        return reader.runs_once(function)
    return reader.comes_once(function, stmt, call)


class _Reader:
    """Reads what the functions of a program bring to life: once, whatever runs them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._known: dict[tuple[str, bool, frozenset[str] | None, Arms], _Effects] = {}
        self._once: dict[str, bool] = {}
        self._called_by_name: dict[str, bool] = {}
        self._found = _Effects()
        """Of what is being read."""
        self._arms: Arms = frozenset()
        """Those that lead to what is being read."""
        self._is_started = False
        self._taken: dict[ir.Path, str] = {}
        self._files: Collection[str] = ()
        """Those that run together."""
        self._running: Collection[str] | None = None
        """The functions that can run, once that is known."""
        self._differs = False
        """Whether what is being read depends on them."""

    def of(
        self,
        function: str,
        is_started: bool,
        files: frozenset[str],
        taken: Arms = frozenset(),
    ) -> _Effects:
        """What a function does; ``is_started``: its file may be the script. ``files``: with that, those that
        run together, and so what calls it. ``taken``: the arms of it that are known to run.
        """
        for around in (None, files):
            key = (function, is_started, around, taken)
            if key in self._known:
                return self._known[key]
        self._found, self._is_started = _Effects(), is_started
        self._files, self._differs = files, False
        self._taken = {path: block for _, path, block in taken}
        self._read_imports(function)
        for stmt in self._run(self.program.functions[function].body, function):
            self._arms = self.arms(function, stmt.path)
            self._read(stmt, function)
        around = files if self._differs else None
        self._known[function, is_started, around, taken] = self._found
        return self._found

    def outcome(
        self,
        test: ir.Expr,
        function: str,
        is_started: bool,
        files: frozenset[str],
        running: Collection[str],
    ) -> bool | None:
        """What a test comes to where nothing but some functions runs, if it is always the same."""
        self._is_started, self._files, self._running = is_started, files, running
        try:
            return self._outcome(test, function)
        finally:
            self._running = None

    def _may_run(self, function: str) -> bool:
        return self._running is None or function in self._running

    def _read_imports(self, function: str) -> None:
        """Take what a name may stand for that an import is not alone to bind: it is not resolved."""
        self._arms = frozenset()
        for name in {name for name, _ in self.program.functions[function].imports}:
            if len(self.program.bindings(function, name)) < 2:
                continue
            if self._gives_way(name, function):
                continue
            for file, expr in self.program.targets(name, function):
                if expr is None:
                    self._found.is_open |= not self._reach_file(file)
                else:
                    top = ir.top_of(ir.global_name(file, ""))
                    self._mention_all(self.program.resolve(expr, top))

    def _gives_way(self, name: str, function: str) -> bool:
        """Whether a module's name goes to what the module makes, ``net = net.Net()``, and nothing says it
        before: that call tells which of its classes is meant."""
        program = self.program
        anew = [
            made
            for made in program.bindings(function, name)
            if made.stmt.kind not in IMPORTS
        ]
        control = program.control(function)
        told = {
            made.stmt.path
            for made in anew
            if isinstance(made.value, ir.Call)
            and program.resolve(made.value.func, function)
        }
        return bool(told) and not any(
            where != function
            or (
                stmt.path not in told
                and any(
                    binds.kind in IMPORTS
                    for binds in control.reaching(name, stmt.path)[0]
                )
            )
            for where, stmt in program.mentioning(name)
            if stmt.kind not in IMPORTS
            and ir.Name(name) in parts_of(stmt)
            and program.owner(name, where) == function
        )

    def _mention_all(self, refs: Collection[Ref]) -> None:
        for ref in refs:
            if ref.kind == "function":
                self._mention(ref.name)
            elif ref.kind == "class":
                self._make(ref.name)

    def _may_be_asked_for(self, scope: ir.Function) -> bool:
        """``getattr(trainer, name)()``"""
        for caller, stmt, call in self.program.calls_named("getattr"):
            if len(call.args) > 1 and not (
                is_only_looked_at(self.program, caller, stmt, call)
            ):
                name = call.args[1].value
                if isinstance(name, ir.Const):
                    if name.value == scope.name:
                        return True
                elif scope.class_name is not None and (
                    scope.class_name
                    in self.program.instance_classes(call.args[0].value, caller)
                ):
                    return True
        return False

    def arms(self, function: str, path: ir.Path) -> Arms:
        """The arms that a run takes on its way to a statement of a function, of each ``if`` that it
        meets once."""
        control = self.program.control(function)
        if path not in control.statements or not self.runs_once(function):
            return frozenset()
        found: list[Arm] = []
        for outer in (*control.around(path), None):
            for earlier in control.block(path)[: path[-1][1]]:
                leaving = {block.field for block in earlier.blocks if ends(block.body)}
                if _chooses(earlier) and len(leaving) == 1:
                    # What is behind it is come to through the other arm.
                    other = "orelse" if leaving == {"body"} else "body"
                    found.append((function, earlier.path, other))
            if outer is None:
                break
            if outer.kind in ("for", "while"):
                found.clear()
            elif _chooses(outer):
                found.append((function, outer.path, path[len(outer.path)][0]))
            path = outer.path
        return frozenset(found)

    def runs_once(self, function: str) -> bool:
        """Whether a run of a program calls a function once at most."""
        if function not in self._once:
            self._once[function] = False  # of one that calls itself
            self._once[function] = ir.is_top(function) or self._is_called_once(function)
        return self._once[function]

    def _is_called_once(self, function: str) -> bool:
        program = self.program
        scope = program.functions[function]
        sites = program.call_sites.get(function, ())
        if len(sites) != 1 or function in program.escaping or scope.is_generator:
            return False
        if not all(program.keeps_function(d, function) for d in scope.decorators):
            return False
        if self._may_be_asked_for(scope):
            return False
        if scope.class_name is not None:
            # A base class may call it, or an operator.
            hidden = scope.name.startswith("__") and scope.name != "__init__"
            if hidden or program.external_bases(scope.class_name):
                return False
        return self.comes_once(sites[0].caller, sites[0].stmt, sites[0].call)

    def comes_once(self, caller: str, stmt: ir.Stmt, call: ir.Expr) -> bool:
        """Whether a run of a program comes to a call once at most."""
        control = self.program.control(caller)
        return (
            stmt.path in control.statements
            and stmt.kind not in ("for", "while")
            and not any(o.kind in ("for", "while") for o in control.around(stmt.path))
            and not any(
                isinstance(inner, (ir.Comprehension, ir.Deferred))
                and any(part is call for part in ir.walk(inner))
                for inner in parts_of(stmt)
            )
            and self.runs_once(caller)
        )

    @cached_property
    def _own_methods(self) -> frozenset[str]:
        return frozenset(
            name for one in self.program.classes.values() for name, _ in one.methods
        )

    def entry_points(self, started: Collection[str]) -> Iterator[str]:
        """What nothing in a script calls, and can be called without arguments: a package's command
        (``[project.scripts]``) is such a function."""
        for name in self._uncalled:
            if ir.file_of(name) in started:
                yield name

    @cached_property
    def _uncalled(self) -> list[str]:
        return [
            name
            for name, function in self.program.functions.items()
            if function.parent == ir.top_of(name)
            and function.class_name is None
            and name not in self.program.escaping
            and not self.program.call_sites.get(name)
            and all(p.default is not None or "*" in p.kind for p in function.params)
        ]

    def _run(self, body: tuple[ir.Stmt, ...], function: str) -> Iterator[ir.Stmt]:
        """The statements of a block that can run."""
        for stmt in body:
            yield stmt
            if stmt.kind in ("functiondef", "classdef"):
                continue
            chosen = None
            if stmt.kind == "if" and stmt.value is not None:
                chosen = self._outcome(stmt.value, function)
                if stmt.path in self._taken:
                    chosen = self._taken[stmt.path] == "body"
            for block in stmt.blocks:
                if chosen is None or (block.field == "body") is chosen:
                    yield from self._run(block.body, function)
                    if chosen is not None and ends(block.body):
                        return

    def _read(self, stmt: ir.Stmt, function: str) -> None:
        program, found = self.program, self._found
        if stmt.kind == "functiondef":
            decorators = program.functions[stmt.names[1]].decorators
            if not all(self._is_plain(d, function) for d in decorators):
                self._mention(stmt.names[1])
        elif stmt.kind == "classdef":
            self._define(stmt, function)
        held = self._held(stmt, function)
        harmless = {id(target) for target, _, _ in unpacked(stmt)}
        asked: set[int] = set()
        called = {id(call.func) for call in calls_of(stmt)}
        for call in calls_of(stmt):
            if program.origin(call.func, function) in _ASK:
                asked |= {
                    id(inner) for arg in call.args for inner in ir.walk(arg.value)
                }
            harmless.add(id(call.func))
            if isinstance(call.func, ir.Attr) and (
                call.func.attr in RETURNS_SELF
                or (
                    call.func.attr in _KEEP_TO_THEMSELVES
                    and call.func.attr not in self._own_methods
                )
            ):
                harmless.add(id(call.func.value))
            is_called = id(call) in called
            found.is_open = found.is_open or (
                not self._is_import_alone(call, stmt, function)
                and self._looks_up(call, function, is_called)
            )
            found.is_unfolded = found.is_unfolded or self._gets_any(call, function)
            if self._names_any(call, function):
                walks = self._only_walks(call, stmt, function)
                found.reads_any |= walks
                found.names_any |= not walks
        exprs = () if stmt.kind == "classdef" else stmt.exprs
        for expr in exprs:
            for inner in self._mentioned(expr, stmt, function):
                if isinstance(inner, ir.Const) and isinstance(inner.value, str):
                    found.loose.add(inner.value)
                    found.named.add(inner.value)
                if isinstance(inner, ir.Call) and isinstance(inner.func, ir.Call):
                    held.setdefault(id(inner.func.func), "")
                if not isinstance(inner, (ir.Name, ir.Attr)):
                    continue
                name = inner.id if isinstance(inner, ir.Name) else inner.attr
                if name == "__subclasses__" or (
                    isinstance(inner, ir.Attr)
                    and name == "__dict__"
                    and self._is_imported(inner.value, function)
                    and not self._reach_names(inner.value, function)
                ):
                    found.is_open = True
                if isinstance(inner, ir.Attr):
                    found.named.add(name)
                if id(inner) not in harmless:
                    found.loose.add(name)
                    if program.origin(inner, function) == "builtins.getattr":
                        found.names_any = True
                found.is_unfolded = found.is_unfolded or name in UNFOLDED
                for ref in program.resolve(inner, function):
                    if ref.kind == "function":
                        self._mention(ref.name)
                    elif ref.kind == "class" and id(inner) not in asked:
                        self._make(ref.name, held.get(id(inner)))

    def _mentioned(
        self, expr: ir.Expr, stmt: ir.Stmt, function: str
    ) -> Iterator[ir.Expr]:
        """The parts of an expression, of a table those entries that are asked for."""
        asked = None
        if isinstance(expr, ir.Display) and expr is stmt.value:
            if any(self.program.resolve(item, function) for item in expr.items):
                asked = self._asked_of(stmt, function)
        if (
            not isinstance(expr, ir.Display)
            or asked is None
            or (asked and not expr.keys)
        ):
            yield from ir.walk(expr)
            return
        for key, item in zip(expr.keys, expr.items, strict=False):
            if not isinstance(key, ir.Const) or key.value in asked:
                yield from ir.walk(item)

    def _asked_of(self, stmt: ir.Stmt, function: str) -> list[object] | None:
        """The keys with which a table is asked, where all are known: none by ``isinstance``."""
        (target,) = stmt.targets if len(stmt.targets) == 1 else (None,)
        program = self.program
        if not isinstance(target, ir.Name):
            return None
        owner = program.owner(target.id, function)
        found: list[object] = []
        for other, inner_stmt in program.mentioning(target.id):
            for expr in inner_stmt.exprs:
                items = {
                    id(inner.value): inner
                    for inner in ir.walk(expr)
                    if isinstance(inner, ir.Item)
                }
                tested = {
                    id(call.args[1].value)
                    for call in ir.calls_in(expr)
                    if program.origin(call.func, other) in _ASK and len(call.args) > 1
                }
                for inner in ir.walk(expr):
                    if id(inner) in tested:
                        continue
                    if target.id in (
                        inner.attr if isinstance(inner, ir.Attr) else None,
                        inner.value if isinstance(inner, ir.Const) else None,
                    ):
                        return None
                    if inner is target or not isinstance(inner, ir.Name):
                        continue
                    there = program.owner(inner.id, other)
                    if there is None or program.home(there, inner.id) != (
                        owner,
                        target.id,
                    ):
                        continue
                    item = items.get(id(inner))
                    values = item and self._values(item.key, other)
                    if not values:
                        return None
                    found += values
        return found

    def _define(self, stmt: ir.Stmt, function: str) -> None:
        """What a class statement runs."""
        program = self.program
        class_name = stmt.names[1]
        found = program.classes[class_name]
        for inner in self._run(found.body, function):
            self._read(inner, function)
            # `size = property(get_size)`
            self._found.named |= {
                part.id for part in parts_of(inner) if isinstance(part, ir.Name)
            }
        registers = any(
            method in ("__init_subclass__", "__new__")
            for base in program.bases(class_name)[1:]
            for method, _ in program.classes[base].methods
        )
        written = [e for e in stmt.exprs if e not in found.bases]
        for ref in (r for e in written for r in program.resolve(_made_by(e), function)):
            if ref.kind == "function":
                self._mention(ref.name)
        # A test runner makes them.
        registers |= any(
            base.endswith("TestCase") for base in program.external_bases(class_name)
        )
        if registers or not all(self._is_plain(e, function) for e in written):
            self._make(class_name)

    def _make(self, class_name: str, holder: str | None = None) -> None:
        self._found.classes.setdefault(class_name, []).append(holder)
        _meet(self._found.made, class_name, self._arms)

    def _mention(self, function: str) -> None:
        _meet(self._found.functions, function, self._arms)

    def _is_plain(self, decorator: ir.Expr, function: str) -> bool:
        """Whether a decorator is known not to keep what it is given."""
        if self.program.keeps_function(decorator, function):
            return True
        return self.program.origin(_made_by(decorator), function) in _PLAIN_METACLASSES

    def _is_import_alone(self, call: ir.Call, stmt: ir.Stmt, function: str) -> bool:
        """Whether a call imports a module that nothing takes: one that registers what it defines."""
        if self.program.origin(call.func, function) != _IMPORT:
            return False
        whole = stmt.value
        if isinstance(whole, ir.Comprehension) and whole.elements == (call,):
            whole = call
        if whole is not call:
            return False
        match stmt:
            case ir.Stmt(kind="expr"):
                return True
            case ir.Stmt(kind="assign", targets=(ir.Name(id=name),)):
                return all(
                    inner in other.targets
                    for _, other in self.program.mentioning(name)
                    for inner in parts_of(other)
                    if ir.last_of(inner) == name or inner == ir.Const(name)
                )
        return False

    def _looks_up(self, call: ir.Call, function: str, is_called: bool) -> bool:
        """Whether a call gets something by a name that is not in sight; ``is_called``: and that is called at
        once."""
        program = self.program
        origin = program.origin(call.func, function)
        if origin == _IMPORT:
            named = call.argument(0, "name")
            package = self._package(call.argument(1, "package"), function)
            values = [(d.value, d.index) for d in self.program.set_to(named, function)]
            packages = [
                _package_of(value, package) if index is None else None
                for value, index in values or [(named, None)]
            ]
            return not all(one is not None and self._reach_all(one) for one in packages)
        if origin in _OF_FILE:
            if origin == "builtins.vars" and call.args:
                # `vars(models)` is `models.__dict__`.
                home = call.args[0].value
                return self._is_imported(home, function) and not self._reach_names(
                    home, function
                )
            return not self._reach_file(ir.file_of(function), through=True)
        if origin in _LOOKUPS:
            return True
        if origin == "builtins.getattr" and len(call.args) > 1:
            home, name = call.args[0].value, call.args[1].value
            if isinstance(home, ir.Call):
                if program.origin(home.func, function) == _IMPORT:
                    # All of that package can run anyway.
                    return False
            if isinstance(name, ir.Const):
                return False
            file = program.module_file(home, function)
            if file is not None and self._reach_file(file, through=not is_called):
                # getattr(models, name)(): what is called is no module.
                return False
            # Of a module of the project; of an object it is one of its attributes.
            return self._is_imported(home, function)
        if any(
            ref.kind == "made" and ref.name == "torch.load"
            for ref in program.resolve(call.func, function)
        ):
            # A whole model that was saved.
            self._differs = True
            for class_name in program.classes:
                if ir.file_of(class_name) in self._files and self._is_made(class_name):
                    self._make(class_name)
        return False

    def _is_made(self, class_name: str) -> bool:
        """Whether something may make an object of a class: what nobody makes is in no file."""
        program = self.program.whole or self.program  # Another run may have saved it.
        facts = program.classes[class_name]
        methods = {method for _, method in facts.methods}
        return bool(facts.decorators) or any(
            stmt.kind != "classdef" and function not in methods
            for function, stmt in program.mentioning(facts.name)
        )

    @staticmethod
    def _package(anchor: ir.Expr | None, function: str) -> str | None:
        """The package, dotted, to which a relative import is told to relate."""
        if isinstance(anchor, ir.Const):
            return str(anchor.value)
        folder, _, name = ir.file_of(function).rpartition("/")
        of_package = anchor == ir.Name("__name__") and name == "__init__.py"
        if of_package or anchor == ir.Name("__package__"):
            return folder.strip("/").replace("/", ".")
        return None

    def _reach_all(self, package: str) -> bool:
        """Take all that the modules of a package define or import; whether that can be told."""
        for file in self.program.modules:
            dotted = file.removesuffix(".py").replace("/", ".").replace("\\", ".")
            if f".{package}." in f".{dotted}." and not self._reach_file(file):
                return False
        return True

    def _reach_file(self, file: str, through: bool = False) -> bool:
        """Take all that a file defines or imports; whether that can be told. ``through``: with what the
        modules of the project have that it imports."""
        program = self.program
        pending, seen = [file], set[str]()
        while pending:
            file = pending.pop()
            if file in seen or file not in program.modules:
                continue
            seen.add(file)
            self._take_file(file)
            for name in program.modules[file].star_imports:
                match program.layout and program.layout.locate(file, name):
                    case None if program.layout is not None:
                        continue  # Another project's has nothing of this one.
                    case Located(file=starred, rest=()):
                        pending.append(starred)
                    case _:
                        return False
            for one in self._imports(file) if through else ():
                module = program.module_file(*one)
                if module is not None:
                    pending.append(module)
                elif self._is_elsewhere(*one):
                    return False
        return True

    def _is_elsewhere(self, name: ir.Name, function: str) -> bool:
        """Whether what an import binds is of the project, in a file that is not read. (What a file that is
        read has without a definition, something put there that took it itself.)"""
        layout, origin = self.program.layout, self.program.origin(name, function) or ""
        if layout is None or not self.program.is_local(origin):
            return self.program.is_local(origin)
        targets = {
            target
            for one, target in self.program.functions[function].imports
            if one == name.id
        }
        return not all(
            isinstance(located := layout.locate(ir.file_of(function), target), Located)
            and located.file in self.program.modules
            for target in targets
        )

    def _take_file(self, file: str) -> None:
        for one in self._imports(file):
            self._mention_all(self.program.resolve(*one))
        facts = self.program.modules[file]
        for function in facts.functions:
            self._mention(function)
        for class_name in facts.classes:
            self._make(class_name)

    def _imports(self, file: str) -> Iterator[tuple[ir.Name, str]]:
        """The names that a file imports anywhere, and where."""
        facts = self.program.modules[file]
        top = facts.top.qualname
        for function in {*facts.functions, top}:
            for name, _ in self.program.functions[function].imports:
                yield ir.Name(name), function

    def _reach_names(self, module: ir.Expr, function: str) -> bool:
        """Take all that a module has under its names, ``models.__dict__``; whether that can be told."""
        file = self.program.module_file(module, function)
        return file is not None and self._reach_file(file)

    def _gets_any(self, call: ir.Call, function: str) -> bool:
        """``getattr(self, name)``, ``vars(self)``: what an object holds under any name."""
        origin = self.program.origin(call.func, function)
        if origin == "builtins.getattr" and len(call.args) > 1:
            return not isinstance(call.args[1].value, ir.Const)
        return origin == "builtins.vars"

    def _names_any(self, call: ir.Call, function: str) -> bool:
        """Whether a call gets an attribute of an object of the project by a name out of sight: as a
        command line of methods does."""
        origin = self.program.origin(call.func, function) or ""
        if origin.partition(".")[0] in _CALL_BY_NAME or origin == "builtins.dir":
            return True
        if origin.rpartition(".")[2] not in ("getattr", "methodcaller", "attrgetter"):
            return False
        if all(isinstance(arg.value, ir.Const) for arg in call.args[1:2] or call.args):
            return False
        home = self.program.origin(call.args[0].value, function)
        return home is None or self.program.is_local(home)

    def _only_walks(self, call: ir.Call, stmt: ir.Stmt, function: str) -> bool:
        """Whether what is got goes into a variable of the function and no further, and nothing calls it:
        ``part = getattr(part, word)``."""
        match stmt:
            case ir.Stmt(
                kind="assign", targets=(ir.Name(id=name) as part,), value=value
            ) if (
                value is call
                and self.program.owner(name, function) == function
                and not ir.is_top(function)
            ):
                own = self.program.mentioning(name)
            case _:
                return False
        for where, one in own:
            plain = {id(target) for target, _, _ in unpacked(one)}
            for inner in parts_of(one):
                match inner:
                    case ir.Attr(value=read):
                        plain.add(id(read))
                    case ir.Item(value=read) if (
                        one.targets == (part,) and one.value is inner
                    ):
                        plain.add(id(read))
                    case ir.Call(func=func, args=(first, *_)) if (
                        self.program.origin(func, where) == "builtins.getattr"
                    ):
                        plain.add(id(first.value))
            if any(e == part and id(e) not in plain for e in parts_of(one)):
                return False
            if where != function and self.program.owner(name, where) == function:
                return False
        return True

    def may_be_called_unseen(self, class_name: str, method: str) -> bool:
        """Whether a library may call a method by its name: one of a protocol that it has for modules, or,
        of other classes, any that the project itself never calls."""
        bases = self.program.external_bases(class_name)
        if method.startswith("__") or not bases <= PLAIN_BASES:
            return True
        if bases and not method.startswith("_"):
            return method in _PROTOCOL_OF_MODULES
        if method not in self._called_by_name:
            self._called_by_name[method] = any(
                isinstance(inner, ir.Call) and ir.method_of(inner) == method
                for function, stmt in self.program.mentioning(method)
                # `super()._apply(fn)` is no call of one's own.
                if self.program.functions[function].name != method
                for inner in parts_of(stmt)
            )
        return not self._called_by_name[method]

    def _held(self, stmt: ir.Stmt, function: str) -> dict[int, str | None]:
        """The classes of ``name = Class()``, by their mentions, and where the instances are kept."""
        found: dict[int, str | None] = {}
        for target, made, index in unpacked(stmt):
            while isinstance(made, ir.Call) and isinstance(made.func, ir.Attr):
                if made.func.attr not in RETURNS_SELF:
                    break
                made = made.func.value
            if isinstance(made, ir.Call) and index is None and len(stmt.targets) == 1:
                if isinstance(target, ir.Name):
                    found[id(made.func)] = target.id
                elif isinstance(target, ir.Attr) and self._is_own(target, function):
                    found[id(made.func)] = target.attr
        return found

    def _is_own(self, attribute: ir.Attr, function: str) -> bool:
        """Whether only code in sight calls what an attribute holds: no library's container does."""
        own = self.program.class_of_self(attribute.value, function)
        return own is not None and self.program.external_bases(own) <= PLAIN_BASES

    def _is_imported(self, expr: ir.Expr, function: str) -> bool:
        root = expr
        while isinstance(root, (ir.Attr, ir.Item)):
            root = root.value
        if isinstance(root, ir.Call):
            return not self._gives_an_object(root, function)
        if not isinstance(root, ir.Name):
            return True
        origin = self.program.origin(expr, function)
        if origin is not None:
            return self.program.is_local(origin)
        owner = self.program.owner(root.id, function)
        return owner is not None and any(
            local == root.id for local, _ in self.program.functions[owner].imports
        )

    def _gives_an_object(self, call: ir.Call, function: str) -> bool:
        """Whether what a call returns is surely no module: ``parser.parse_args()``, ``type(self)``."""
        if self.program.origin(call.func, function) in (
            "builtins.type",
            "builtins.super",
        ):
            return True
        refs = self.program.resolve(call, function)
        if not refs and isinstance(call.func, ir.Attr):
            # A method of what a library made.
            refs = self.program.resolve(call.func.value, function)
            refs = refs if all(r.kind == "made" for r in refs) else frozenset()
        return bool(refs) and all(
            ref.kind == "instance" or (ref.kind == "made" and ref.name != _IMPORT)
            for ref in refs
        )

    # -- choices ------------------------------------------------------------------------------

    def _outcome(self, test: ir.Expr, function: str) -> bool | None:
        """What a test comes to, where it is always the same."""

        def told(one: ir.Expr) -> bool | None:
            return False if is_main_guard(one) and not self._is_started else None

        return outcome(test, lambda one: self._values(one, function) or (), told)

    def _values(
        self, expr: ir.Expr, function: str, depth: int = 0
    ) -> list[object] | None:
        """The constants that an expression may be; None where there may be others."""
        if isinstance(expr, ir.Const):
            return [expr.value]
        program = self.program
        if depth > _MOST_VALUES:
            return None
        if isinstance(expr, ir.Attr):
            return self._values_of_own(expr, function, depth)
        owner = program.owner(expr.id, function) if isinstance(expr, ir.Name) else None
        if not isinstance(expr, ir.Name) or owner is None:
            return None
        scope = program.functions[owner]
        if ir.is_top(owner) and self._is_set_outside(expr.id):
            return None
        given: list[tuple[str, ir.Expr | None]] = [
            (d.function, d.value if d.index is None else None)
            for d in program.definitions(owner, expr.id)
        ]
        for param in scope.params:
            if param.name == expr.id:
                sites = program.call_sites.get(owner, [])
                if owner in program.escaping or param.kind in ("*", "**"):
                    return None
                if not sites:
                    if not self._is_method(scope):
                        return None
                    # Who calls it is not seen: nobody gives it anything, or that is found below.
                    given.append((owner, param.default))
                sites = [site for site in sites if self._may_run(site.caller)]
                if any(arg.star for site in sites for arg in site.call.args):
                    return None
                running = [s for s in sites if ir.file_of(s.caller) in self._files]
                self._differs |= len(running) < len(sites)
                given += [
                    (s.caller, program.argument_at(s, expr.id) or param.default)
                    for s in running
                ]
        found = self._values_of_all(given, depth)
        if ir.is_top(owner) and found and None in found:
            return (
                None  # A setting (`clip = None`), for which people put something else.
            )
        if found and program.is_param(owner, expr.id) and self._is_method(scope):
            whole = program.whole or program  # Of which one look is enough.
            unseen = whole.noted(UnseenCalls).giving(owner, expr.id)
            giving = {one for one in unseen if ir.file_of(one) in self._files}
            self._differs |= giving < unseen
            if any(map(self._may_run, giving)):
                return None
        return found

    @staticmethod
    def _is_method(scope: ir.Function) -> bool:
        """Whether what calls a function may not be seen to; a constructor is called by its class."""
        return scope.class_name is not None and scope.name != "__init__"

    def _values_of_all(
        self, given: list[tuple[str, ir.Expr | None]], depth: int
    ) -> list[object] | None:
        found: list[object] = []
        for where, value in given:
            values = value and self._values(value, where, depth + 1)
            if not values:
                return None
            found += values
        return found or None

    def _values_of_own(
        self, expr: ir.Attr, function: str, depth: int
    ) -> list[object] | None:
        """Those of an attribute of a class, which its own methods alone set."""
        program = self.program
        own = program.class_of_self(expr.value, function)
        if own is None or any(map(self._may_run, self._setters)):
            return None
        family = program.family(own)
        for where, target in self._sets.get(expr.attr, ()):
            setter = program.self_class(where)
            if not self._may_run(where):
                continue
            if setter is None or setter[1] not in family:
                return None
            if target.value != ir.Name(setter[0]):
                return None
        if any(
            expr.attr in (getattr(target, "id", ""), *stmt.names)
            for one in family
            for stmt in program.classes[one].body
            for target in (*stmt.targets, None)
        ):
            return None
        made = program.attribute_definitions(own, expr.attr)
        given = [(d.function, d.value if d.index is None else None) for d in made]
        return self._values_of_all(given, depth)

    @cached_property
    def _sets(self) -> dict[str, list[tuple[str, ir.Attr]]]:
        """Where attributes are set, by their names."""
        found: dict[str, list[tuple[str, ir.Attr]]] = {}
        for function, stmt in self.program.all_statements():
            for target in stmt.targets:
                for inner in ir.walk(target):
                    if isinstance(inner, ir.Attr):
                        found.setdefault(inner.attr, []).append((function, inner))
        return found

    @cached_property
    def _setters(self) -> frozenset[str]:
        """The functions that set attributes whose names are not in sight."""
        program = self.program
        found = {
            function
            for function, _, call in program.calls_named("setattr")
            if not isinstance(call.argument(1, "name"), ir.Const)
        }
        for name in ("__dict__", "__setattr__"):
            found |= {function for function, _ in program.mentioning(name)}
        return frozenset(found)

    def _is_set_outside(self, name: str) -> bool:
        """Whether a variable of a module may be given a value as its attribute."""
        return not self._set_outside.isdisjoint((name, None))

    @cached_property
    def _set_outside(self) -> frozenset[str | None]:
        """The names of all attributes that are given values; None: of a module, any."""
        program = self.program
        found: set[str | None] = {
            target.attr
            for _, stmt in program.all_statements()
            for target, _, _ in unpacked(stmt)
            if isinstance(target, ir.Attr)
        }
        for function, _, call in program.calls_named("setattr"):
            holder, name = call.argument(0, "obj"), call.argument(1, "name")
            if isinstance(name, ir.Const):
                found.add(str(name.value))
            elif holder is None or self._is_imported(holder, function):
                found.add(None)
        return frozenset(found)


def _chooses(stmt: ir.Stmt) -> bool:
    """Whether a statement is an ``if``, other than the one that asks for the script itself: of that,
    each process has its own answer."""
    return (
        stmt.kind == "if" and stmt.value is not None and not is_main_guard(stmt.value)
    )


def _meet(known: dict[str, Arms], name: str, arms: Arms) -> bool:
    """Keep what all ways to something have in common; whether that is news."""
    common = known[name] & arms if name in known else arms
    is_new = name not in known or common != known[name]
    known[name] = common
    return is_new


def _package_of(name: ir.Expr | None, own: str | None) -> str | None:
    """The package, or the module, that ``importlib.import_module`` imports from; None where it may be
    any. ``own``: to what a relative name relates."""
    match name:
        case ir.Const(value=str(text)):
            package = text
        case ir.Operation(
            op="joinedstr" | "+", operands=(ir.Const(value=str(text)), *_)
        ):
            package = text.rpartition(".")[0]
        case ir.Operation(op="%", operands=(ir.Const(value=str(text)), *_)):
            text = text.partition("%")[0]
            package = text.rpartition(".")[0]
        case ir.Call(func=ir.Attr(value=ir.Const(value=str(text)), attr="format")):
            text = text.partition("{")[0]
            package = text.rpartition(".")[0]
        case _:
            return None
    if text.startswith(".") and not text.startswith(".."):
        return own and f"{own}{package}"
    return None if not package or package.startswith(".") else package


def _made_by(decorator: ir.Expr) -> ir.Expr:
    """What is called for a decorator, itself or to make one: ``register`` of ``@register("net")``."""
    return decorator.func if isinstance(decorator, ir.Call) else decorator
