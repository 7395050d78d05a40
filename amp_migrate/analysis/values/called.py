"""What a function may call by what it holds, or by a name that is put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from amp_migrate.analysis.objects.points_to import Object, PointsTo
from amp_migrate.analysis.tables.vocabulary import CALLED_AT_ONCE, ROWS
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of
from amp_migrate.program.given import Given
from amp_migrate.program.link import CallSite, Program
from amp_migrate.program.names import UNCLEAR

_AROUND_FUNCTIONS = frozenset(
    ("functools.partial", "builtins.staticmethod", "builtins.classmethod")
)


def at_once(program: Program, call: ir.Call, function: str) -> ir.Call | None:
    """``f(x, y)`` of ``partial(f, x)(y)``; of ``vmap(f)(x)``, what is computed alike for each row."""
    match call.func:
        case ir.Call(func=around, args=(run, *given)) if (
            program.origin(around, function) in CALLED_AT_ONCE and not run.star
        ):
            if program.origin(around, function) in ROWS:
                given = []
            return replace(call, func=run.value, args=(*given, *call.args))
    return None


def handed(program: Program, call: ir.Call, function: str) -> ir.Call | None:
    """``f(x)`` of ``pool.submit(f, x)``, ``Thread(target=f, args=(x,))``, ``map(f, xs)``: what one to whom a
    function is handed calls with what it is given beside it."""
    match ir.last_of(call.func), call.args:
        case "submit", [run, *given]:
            pass
        case "run_in_executor", [_, run, *given]:
            pass
        case "map" | "imap" | "starmap" | "tree_map", [run, *over]:
            star = "*" if ir.last_of(call.func) == "starmap" else ""
            given = [
                ir.Arg(ir.Item(one.value, ir.Const(...)), None, star) for one in over
            ]
        case "apply_async" | "apply", [run, ir.Arg(value=args), *_]:
            given = _spread(args)
        case "Thread" | "Process", named:
            parts = {arg.name: arg for arg in named}
            if not parts.keys() >= {"target", "args"}:
                return None
            run, given = parts["target"], _spread(parts["args"].value)
        case _:
            return None
    if not given or program.callees(call, function):
        return None
    return replace(call, func=run.value, args=tuple(given))


def _spread(args: ir.Expr) -> list[ir.Arg]:
    if isinstance(args, ir.Display):
        return [ir.Arg(one) for one in args.items]
    return [ir.Arg(args, None, "*")]


class Called:
    """The functions of a program that its functions may call."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._known: dict[str, tuple[str, ...]] = {}
        self._names = frozenset(f.name for f in program.functions.values())
        self._sites: dict[int, tuple[ir.Call, list[CallSite]]] = {}
        """With the call, since its identity comes again once it is gone."""
        self._visible: dict[str, list[str]] = {}
        self._of_methods: dict[str, dict[str, list[CallSite]]] = {}
        """By the name of a method, by the function that is called."""

    def of(self, function: str) -> tuple[str, ...]:
        """Those that a function calls, in order, and those that decorators put around it."""
        if function not in self._known:
            body = self.program.functions[function].body
            found = [q for s in ir.statements(body) for q in self.by(function, s)]
            found += self.program.put_around.get(function, ())
            self._known[function] = tuple(dict.fromkeys(found))
        return self._known[function]

    def by(self, function: str, stmt: ir.Stmt) -> Iterator[str]:
        """Those that a statement calls, or mentions: what is given to `checkpoint(run, x)`, kept in a list or
        returned is called by somebody, and a property where it is read."""
        program = self.program
        for call in calls_of(stmt):
            yield from program.callees(call, function)
            for expr, where, _ in self.held(call.func, function, stmt):
                for ref in program.resolve(expr, where):
                    if ref.kind == "function":
                        yield ref.name
            yield from self._advanced(call, function, stmt)
            yield from self._by_name(call.func, function)
            yield from (site.callee for site in self.sites_of(call, function, stmt))
            for arg in call.args:
                for ref in program.resolve(arg.value, function):
                    if ref.kind == "function":
                        yield ref.name
        for inner in parts_of(stmt):
            match inner:
                case ir.Name(id=name) | ir.Attr(attr=name) if name in self._names:
                    for ref in program.resolve(inner, function):
                        if ref.kind == "function":
                            yield ref.name

    def _advanced(self, call: ir.Call, function: str, stmt: ir.Stmt) -> Iterator[str]:
        """The generators that a call lets go on: ``next(losses)``, ``losses.send(h)``."""
        match call:
            case ir.Call(func=ir.Attr(value=held, attr="send" | "throw" | "__next__")):
                pass
            case ir.Call(func=ir.Name(id="next"), args=(ir.Arg(value=held), *_)):
                pass
            case _:
                return
        for one in self.program.noted(PointsTo).of(held, function, stmt):
            if isinstance(one.expr, ir.Call) and not one.fields:
                yield from self.program.callees(one.expr, one.function)

    def held(
        self, func: ir.Expr, function: str, stmt: ir.Stmt
    ) -> Iterator[tuple[ir.Expr, str, ir.Stmt | None]]:
        """What a variable, a field or an element holds that is called: where that is written."""
        program = self.program
        if isinstance(func, ir.Attr):
            classes = program.instance_classes(func.value, function)
            for made in program.noted(Given).to(classes, func.attr, []):
                if made.value is not None:
                    yield made.value, made.function, made.stmt
        if not isinstance(func, (ir.Name, ir.Attr, ir.Item, ir.Call)) or (
            isinstance(func, ir.Attr) and func.attr not in self._fields
        ):
            return
        refs = program.resolve(func, function)
        if program.origin(func, function) is not None or any(
            ref.kind != "made" or ref.name not in _AROUND_FUNCTIONS for ref in refs
        ):
            return
        for one in program.noted(PointsTo).of(func, function, stmt):
            expr = one.expr
            while isinstance(expr, ir.Call) and expr.args:
                if program.origin(expr.func, one.function) not in _AROUND_FUNCTIONS:
                    break
                expr = expr.args[0].value
            yield expr, one.function, one.stmt

    # -- calls that no name leads to -----------------------------------------------------------

    def sites_of(self, call: ir.Call, function: str, stmt: ir.Stmt) -> list[CallSite]:
        """What a call runs that is not resolved by what it is written as: a function, or a method of an
        object, out of a list, a dict or a parameter."""
        if id(call) not in self._sites:
            found = list(self._find_sites(call, function, stmt))
            self._sites[id(call)] = call, found
        return self._sites[id(call)][1]

    def sites_into(self, function: str) -> list[CallSite]:
        """The calls of that kind that may run a function."""
        found, name = self._of_values, self.program.functions[function].name
        if name == "__call__":
            return found.get(function, [])
        if name not in self._of_methods:
            calls = self.program.calls_named(name)
            self._of_methods[name] = self._by_callee(calls)
        methods = self._of_methods[name]
        return [*found.get(function, ()), *methods.get(function, ())]

    @cached_property
    def _of_values(self) -> dict[str, list[CallSite]]:
        return self._by_callee(
            one
            for one in self.program.all_calls()
            if isinstance(one[2].func, (ir.Name, ir.Item, ir.Call))
            or handed(self.program, one[2], one[0])
        )

    def _by_callee(
        self, calls: Iterable[tuple[str, ir.Stmt, ir.Call]]
    ) -> dict[str, list[CallSite]]:
        found: dict[str, list[CallSite]] = {}
        for caller, stmt, call in calls:
            for site in self.sites_of(call, caller, stmt):
                found.setdefault(site.callee, []).append(site)
        return found

    def _find_sites(
        self, call: ir.Call, function: str, stmt: ir.Stmt
    ) -> Iterator[CallSite]:
        program, func = self.program, call.func
        inner = at_once(program, call, function) or handed(program, call, function)
        for ref in program.resolve(inner.func, function) if inner else ():
            if ref.kind == "function":
                yield self._site(function, stmt, inner or call, ref.name)
        for run in self._named_as(program.origin(func, function) or ""):
            if run in program.functions:
                yield self._site(function, stmt, call, run)
        if isinstance(func, ir.Attr) and func.attr not in self._names:
            return
        if not call.args or not isinstance(func, (ir.Name, ir.Item, ir.Attr)):
            return
        if program.origin(func, function) or program.callees(call, function):
            return
        held = func.value if isinstance(func, ir.Attr) else func
        for run in self._picked(held, func, call, function):
            yield self._site(function, stmt, call, run)
        for one in program.noted(PointsTo).of(held, function, stmt):
            known = self._run_by(one, func)
            if known is not None:
                yield self._site(function, stmt, call, known)
            elif one.kind == "external" and not isinstance(func, ir.Attr):
                for run in self._named_as(one.name):
                    if run in program.functions:
                        yield self._site(function, stmt, call, run)
            elif isinstance(one.expr, ir.Call):
                for run in self._methods_of_one_of(one, func):
                    yield self._site(function, stmt, call, run)
                if not isinstance(func, ir.Attr):
                    yield from self._by_partial(
                        one.expr, one.function, function, stmt, call
                    )

    def _methods_of_one_of(self, one: Object, func: ir.Expr) -> Iterator[str]:
        """``LOSSES[name]()``, called as it is or by a method: what any of these classes has for that."""
        name = func.attr if isinstance(func, ir.Attr) else "__call__"
        match one.fields:
            case (("attribute", str(attr)),) if not isinstance(func, ir.Attr):
                name = attr
            case (_, *_):
                return
        if isinstance(one.expr, ir.Call) and not one.name:
            points_to = self.program.noted(PointsTo)
            for made in points_to.of(one.expr.func, one.function, one.stmt):
                for class_name in (made.name, *self._named_as(made.name)):
                    if class_name in self.program.classes:
                        method = self.program.method(class_name, name)
                        yield from () if method is None else (method,)

    def _picked(
        self, held: ir.Expr, func: ir.Expr, call: ir.Call, function: str
    ) -> Iterator[str]:
        """What a variable runs that is given ``getattr(losses, name)``, ``globals()[name]``: any function
        there that takes what the call gives; or an object of any class, ``getattr(losses, name)()``.
        """
        for made in self.program.definitions_of(held, function):
            value, at = made.value, made.function
            if value is None or made.index is not None:
                continue
            name = func.attr if isinstance(func, ir.Attr) else "__call__"
            if isinstance(value, ir.Attr) and not isinstance(func, ir.Attr):
                name, value = value.attr, value.value
            for one in self._looked_up(value, at):
                if one in self.program.functions and self.takes(one, call):
                    yield one
            if isinstance(value, ir.Call):
                for one in self._looked_up(value.func, at):
                    method = None
                    if one in self.program.classes:
                        method = self.program.method(one, name)
                    if method is not None:
                        yield method

    def takes(self, function: str, call: ir.Call, is_method: bool = False) -> bool:
        """Whether a function, or a method of an object, can be called so."""
        params = self.program.functions[function].params[is_method:]
        given = {arg.name for arg in call.args if arg.name}
        plain = sum(not (arg.name or arg.star) for arg in call.args)
        unfolds = any(arg.star for arg in call.args)
        named = [param for param in params if not param.kind.startswith("*")]
        wanted = [
            param
            for param in named[plain:]
            if param.default is None and param.name not in given and not unfolds
        ]
        return not wanted and (plain <= len(named) or len(named) < len(params))

    def _looked_up(self, expr: ir.Expr, function: str) -> list[str]:
        """The functions and classes of which a name that is not in sight picks one."""
        home: ir.Expr | None = None
        match expr:
            case ir.Call(func=ir.Name(id="getattr"), args=(of, name, *_)):
                home = None if isinstance(name.value, ir.Const) else of.value
            case ir.Item(value=ir.Attr(value=of, attr="__dict__"), key=key):
                home = None if isinstance(key, ir.Const) else of
            case ir.Item(value=ir.Call(func=ir.Name(id="vars"), args=(of,)), key=key):
                home = None if isinstance(key, ir.Const) else of.value
            case ir.Item(value=ir.Call(func=ir.Name(id="globals"), args=()), key=key):
                if not isinstance(key, ir.Const):
                    return self._in_sight_of(ir.file_of(function))
            case ir.Call(func=ir.Name(id="eval"), args=(text,)):
                if not isinstance(text.value, ir.Const):
                    return self._in_sight_of(ir.file_of(function))
        file = home and self.program.module_file(home, function)
        return self._in_sight_of(file) if file else []

    def _in_sight_of(self, file: str) -> list[str]:
        """The functions and classes of a file, those included that it imports by name or by ``*``."""
        if file not in self._visible:
            top = self.program.modules[file].top.qualname
            self._visible[file] = [
                ref.name
                for name in self._at_top
                for ref in self.program.resolve(ir.Name(name), top)
                if ref.kind in ("function", "class")
            ]
        return self._visible[file]

    def _named_as(self, origin: str) -> list[str]:
        """The functions and classes that the last word of a dotted name means where imports in several
        branches bind its first: any of them."""
        if not origin.startswith(UNCLEAR):
            return []
        return self._at_top.get(origin.rpartition(".")[2], [])

    @cached_property
    def _at_top(self) -> dict[str, list[str]]:
        """The functions and classes of the files, by their own names."""
        found: dict[str, list[str]] = {}
        for name, one in self.program.functions.items():
            if one.class_name is None and one.parent == ir.top_of(name):
                found.setdefault(one.name, []).append(name)
        for name, own in self.program.classes.items():
            found.setdefault(own.name, []).append(name)
        return found

    def _by_partial(
        self, made: ir.Call, where: str, function: str, stmt: ir.Stmt, call: ir.Call
    ) -> Iterator[CallSite]:
        """``run = functools.partial(measure, 2)``, and then ``run(h)``."""
        program = self.program
        if program.origin(made.func, where) != "functools.partial" or not made.args:
            return
        filled = made.args[1:]
        if where not in (function, ir.top_of(function)):
            filled = tuple(replace(arg, value=ir.Const(...)) for arg in filled)
        given = replace(call, args=(*filled, *call.args))
        for ref in program.resolve(made.args[0].value, where):
            if ref.kind == "function":
                yield self._site(function, stmt, given, ref.name)

    def _site(self, function: str, stmt: ir.Stmt, call: ir.Call, run: str) -> CallSite:
        bound = self.program.functions[run].self_name is not None
        return CallSite(function, stmt, call, run, bound)

    def _run_by(self, one: Object, func: ir.Expr) -> str | None:
        if any(kind == "attribute" for kind, _ in one.fields):
            return None  # Of items, those of lists in a dict may be left over.
        if one.kind == "function" and not isinstance(func, ir.Attr):
            return one.name
        if one.kind in ("value", "instance") and one.name in self.program.classes:
            name = func.attr if isinstance(func, ir.Attr) else "__call__"
            return self.program.method(one.name, name)
        return None

    @cached_property
    def _fields(self) -> frozenset[str]:
        """The names of attributes that the program gives values, methods aside."""
        program = self.program
        own = (
            target.id
            for one in program.classes.values()
            for stmt in one.body
            for target in stmt.targets
            if isinstance(target, ir.Name)
        )
        return frozenset(program.attribute_targets).union(own)

    def _by_name(self, func: ir.Expr, function: str) -> Iterator[str]:
        """What ``getattr(self, "loss_" + kind)`` may be."""
        program = self.program
        if not isinstance(func, ir.Call) or len(func.args) < 2:
            return
        name = func.args[1].value
        if program.origin(func.func, function) != "builtins.getattr":
            return
        begin = str(name.value) if isinstance(name, ir.Const) else ""
        if isinstance(name, ir.Operation) and isinstance(name.operands[0], ir.Const):
            begin = str(name.operands[0].value).partition("%")[0]
        for one in program.instance_classes(func.args[0].value, function):
            for other in program.family(one):
                for method, qualname in program.classes[other].methods:
                    if method.startswith(begin) and not method.startswith("__"):
                        yield qualname
