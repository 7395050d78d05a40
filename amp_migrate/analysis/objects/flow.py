"""Where a value comes from: back from a use to the expressions that may have made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from amp_migrate.analysis.objects.contents import Contents, Put
from amp_migrate.analysis.objects.points_to import PointsTo, State
from amp_migrate.program import ir
from amp_migrate.program.given import Given
from amp_migrate.program.link import Program

PARSES = ("parse_args", "parse_known_args")
"""Methods that give what the command line says."""


@dataclass(frozen=True, slots=True)
class Made:
    """An expression, where it stands, and which element of it is meant (None: the whole)."""

    expr: ir.Expr
    function: str
    stmt: ir.Stmt
    index: int | None = None

    def inner(self, expr: ir.Expr, index: int | None = None) -> Made:
        """Another expression of the same statement."""
        return Made(expr, self.function, self.stmt, index)


class Flow:
    """Answers for one program."""

    def __init__(
        self, program: Program, can_run: Callable[[str], bool] = lambda function: True
    ) -> None:
        """``can_run``: whether a function can run where values are asked for: what others give to a parameter
        is none of them."""
        self.program = program
        self.can_run = can_run
        self.contents = program.noted(Contents)
        self.points_to = program.noted(PointsTo)

    def made(self, at: Made) -> list[Made] | None:
        """What may have made a variable, attribute, parameter or element; None where unknown.

        Of any other expression, nothing is asked: it makes its value itself.
        """
        program = self.program
        expr = at.expr
        if isinstance(expr, ir.Name):
            return self._of_variable(expr.id, at)
        if isinstance(expr, ir.Attr):
            classes = program.instance_classes(expr.value, at.function)
            found = [
                d for c in classes for d in program.attribute_definitions(c, expr.attr)
            ]
            found += program.noted(Given).to(classes, expr.attr, found)
            there = program.elsewhere(expr, at.function)
            if there is not None:
                # A variable of another file, which any file may set.
                found += program.definitions_of(*there) + [
                    d
                    for holder, d in program.attribute_targets.get(expr.attr, ())
                    if program.elsewhere(ir.Attr(holder, expr.attr), d.function)
                    == there
                ]
            if not found or any(
                d.value is None and d.stmt.kind != "augassign" for d in found
            ):
                return None
            return [
                Made(value, d.function, d.stmt, d.index)
                for d in found
                if (value := d.value or d.stmt.value) is not None
            ]
        return None

    def is_option(self, at: Made) -> bool:
        """Whether an attribute is what the command line gives: a number, a text, a list of these."""
        if not isinstance(at.expr, ir.Attr):
            return False
        found = self.points_to.of(at.expr, at.function, at.stmt)
        return bool(found) and all(
            isinstance(one.expr, ir.Call)
            and bool(one.fields)
            and ir.method_of(one.expr) in PARSES
            for one in found
        )

    def _of_variable(self, name: str, at: Made) -> list[Made] | None:
        program = self.program
        owner = program.owner(name, at.function)
        if owner is None:
            return None
        state = State(at.expr, at.function, at.stmt)
        found, from_start = self.points_to.visible(owner, name, state)
        if owner == at.function:
            _, from_start = self.reaching(name, at)
        found = found + program.noted(Given).to_variables.get((owner, name), [])
        result: list[Made] = []
        for d in found:
            value = d.stmt.value if d.stmt.kind == "augassign" else d.value
            if value is None:
                return None
            result.append(Made(value, d.function, d.stmt, d.index))
        if from_start and program.is_param(owner, name):
            passed = self._given(owner, name)
            return None if passed is None else result + passed
        return result or None

    def _given(self, function: str, name: str) -> list[Made] | None:
        """What the callers give to a parameter; None where not all are known."""
        program = self.program
        sites = program.call_sites.get(function, [])
        sites = [site for site in sites if self.can_run(site.caller)]
        if not sites or function in program.escaping:
            return None
        param, result = program.param(function, name), []
        for site in sites:
            value = program.argument_at(site, name)
            if value is None and not any(arg.star for arg in site.call.args):
                # A constant is the same wherever it stands.
                default = None if param is None else param.default
                value = default if isinstance(default, ir.Const) else None
            if value is None:
                return None
            result.append(Made(value, site.caller, site.stmt))
        return result

    def reaching(self, name: str, at: Made) -> tuple[list[ir.Stmt], bool]:
        """The statements whose value a variable may have, and whether it may be that of the start."""
        stmts, from_start = self.program.control(at.function).reaching(
            name, at.stmt.path
        )
        if from_start and any(self._surely_runs(one, name, at) for one in stmts):
            from_start = False
        return stmts, from_start

    def _surely_runs(self, stmt: ir.Stmt, name: str, at: Made) -> bool:
        """Whether a statement binds a variable before another one runs, under an option that is always
        taken: ``if is_logit: q = softmax(q)``, where all calls say so."""
        around = stmt.path[:-1]
        block = around[:-1]
        if not around or stmt.kind != "assign" or ir.Name(name) not in stmt.targets:
            return False
        here = at.stmt.path[len(block) :][:1]
        if at.stmt.path[: len(block)] != block or not here:
            return False
        field, index = around[-1]
        if here[0][0] != field or here[0][1] <= index or stmt.path[-1][0] != "body":
            return False
        outer = self.program.control(at.function).statements.get(around)
        return (
            outer is not None
            and outer.kind == "if"
            and isinstance(outer.value, ir.Name)
            and self._is_always_true(outer.value, at.function)
        )

    def _is_always_true(self, test: ir.Expr, function: str) -> bool:
        """Whether a test is of constants that are true, whoever calls its function."""
        found = self.points_to.constants(test, function)
        return bool(found) and all(
            isinstance(one.expr, ir.Const) and bool(one.expr.value) for one in found
        )

    def arms(self, at: Made) -> list[Made]:
        """Which of its two arms ``a if test else b`` may give, as its function is called here."""
        assert isinstance(at.expr, ir.Operation)
        test, body, orelse = at.expr.operands
        told = self._told(at.inner(test))
        if told is None:
            return [at.inner(body, at.index), at.inner(orelse, at.index)]
        return [at.inner(body if told else orelse, at.index)]

    def _told(self, test: Made) -> bool | None:
        """What a test comes to of a variable that has only constants, all of which tell the same."""
        match test.expr:
            case ir.Operation(op="not", operands=(inner,)):
                told = self._told(test.inner(inner))
                return None if told is None else not told
            case ir.Name():
                made = self.made(test) or ()
                told_by = {
                    bool(one.expr.value) if isinstance(one.expr, ir.Const) else None
                    for one in made
                }
                return told_by.pop() if len(told_by) == 1 else None
        return None

    def put_into(self, at: Made) -> list[Made]:
        """What is put into the collection that a variable or attribute holds."""
        return [*map(_value_of, self._puts(at))]

    def _puts(self, at: Made) -> list[Put]:
        found = self.contents.put_into(at.expr, at.function)
        if isinstance(at.expr, (ir.Name, ir.Attr)):
            by_others = self.points_to.put_into(at.expr, at.function, at.stmt)
            found = [*found, *(put for put in by_others if put not in found)]
        if not found or not isinstance(at.expr, ir.Name):
            return found
        name, owner = at.expr.id, self.program.owner(at.expr.id, at.function)
        held, from_start = self.reaching(name, at)
        if from_start or owner != at.function:
            return found
        # Not what was put into a list that the variable no longer holds: `feats = torch.cat(feats)`.
        return [
            put
            for put in found
            if put.function != owner
            or any(stmt in held for stmt in self.reaching(name, _value_of(put))[0])
        ]

    def is_filled(self, at: Made) -> bool:
        """Whether a variable or attribute holds a collection whose elements are not where they were."""
        return bool(self.contents.put_into(at.expr, at.function)) or any(
            made.stmt.kind == "augassign" for made in self.made(at) or ()
        )

    def elements(self, at: Made) -> list[Made] | None:
        """What the elements of such a collection may be; None where some are not in sight."""
        found: list[Made] = []
        for put in self._puts(at):
            one = _value_of(put)
            inner = _written_out(one) if put.spread else [one]
            if inner is None:
                return None
            found += inner
        for made in self.made(at.inner(at.expr)) or [at.inner(at.expr)]:
            inner = _written_out(made)
            if inner is None:
                return None
            found += inner
        return found

    def returned(self, function: str, index: int | None) -> list[Made] | None:
        """What a function of the program returns, or that element of it: nothing where it has no such."""
        facts = self.program.functions[function]
        if facts.is_generator or facts.is_async or function in self.program.put_around:
            return None
        returns = [s for s in ir.statements(facts.body) if s.kind == "return"]
        if not all(stmt.value is not None for stmt in returns) or not returns:
            return None
        return [
            Made(stmt.value, function, stmt, index)
            for stmt in returns
            if stmt.value is not None and not _lacks(stmt.value, index)
        ]


def _value_of(put: Put) -> Made:
    return Made(put.value, put.function, put.stmt)


def _lacks(expr: ir.Expr, index: int | None) -> bool:
    """Whether a tuple that is written out has no such element: what takes that raises, or gets another."""
    return (
        index is not None
        and isinstance(expr, ir.Display)
        and expr.kind != "dict"
        and len(expr.items) <= index
        and not any(ir.is_starred(i) for i in expr.items)
    )


def _written_out(made: Made) -> list[Made] | None:
    """The elements of a list or tuple that is written out, or made of one expression."""
    match made:
        case Made(
            expr=ir.Display(kind="list" | "tuple" | "set", items=items), index=None
        ):
            return [made.inner(item) for item in items]
        case Made(expr=ir.Comprehension(elements=(element,)), index=None):
            return [made.inner(element)]
    return None
