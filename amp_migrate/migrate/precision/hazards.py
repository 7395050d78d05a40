"""What raises or lies in half precision, or breaks under a scaled gradient: reasons to leave alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from amp_migrate.analysis.objects.flow import Made
from amp_migrate.analysis.objects.forward import Forward
from amp_migrate.analysis.objects.live import Live
from amp_migrate.analysis.paths.hooked_forwards import attached
from amp_migrate.analysis.paths.loops import Blocked, Refusal, refused
from amp_migrate.analysis.tables import dtype_table, vocabulary
from amp_migrate.analysis.tables.dtype_questions import suits_fp32, tested
from amp_migrate.analysis.values.called import Called
from amp_migrate.catalogue.operations import operations, rows, since
from amp_migrate.core.closure import reached
from amp_migrate.core.options import Options
from amp_migrate.edit.edits import Edit
from amp_migrate.migrate.precision.arrays import Arrays
from amp_migrate.migrate.precision.casts import Casts, is_matrix_norm
from amp_migrate.migrate.precision.constants import Constants
from amp_migrate.migrate.precision.entering import Span
from amp_migrate.migrate.precision.formulas import Formulas
from amp_migrate.migrate.precision.imported import Imported
from amp_migrate.migrate.precision.leaving import Leaving
from amp_migrate.migrate.precision.probabilities import Probabilities
from amp_migrate.migrate.precision.products import NO_ISLAND, of_products
from amp_migrate.migrate.precision.remedies import Remedies
from amp_migrate.migrate.precision.setup import Setup, last_word
from amp_migrate.migrate.precision.sigmoids import Sigmoids
from amp_migrate.migrate.precision.spans import Spans
from amp_migrate.migrate.precision.stores import Stores
from amp_migrate.migrate.precision.unseen import Unseen
from amp_migrate.migrate.regions.regions import Regions, Run
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, parts_of
from amp_migrate.program.control_flow import is_main_guard
from amp_migrate.program.link import Program

_LIBRARY_METHODS = ("loss", "reg_loss", "discriminator_loss")
"""Methods of what a library makes that are among these."""
_RAISING_METHODS = operations("no-half")
_WITHOUT_ARGUMENTS = frozenset("det inverse logdet matrix_exp slogdet".split())
_REPLICATES = ("DataParallel", "data_parallel", "parallel_apply")
_PLAIN_BASES = frozenset(
    f"torch.nn.{name}"
    for name in "Module Sequential ModuleList ModuleDict modules.Module".split()
)
_ASKS = "is_autocast_enabled"
_ASSERTS = ("torch.testing.assert_close", "torch.testing.assert_allclose")
_FACTORS = "what factorizes its covariance, now and later, fails in half precision"
_NO_NUMPY = ".numpy() of a bfloat16 tensor raises"


class Hazards:
    """Looks for hazards where a program's forward can reach them."""

    def __init__(
        self,
        program: Program,
        forward: Forward,
        options: Options,
        files: frozenset[str],
        live: Live | None,
        known: Collection[Span] = (),
        may_start: Callable[[str], bool] = lambda file: True,
    ) -> None:
        """``files``: those that can take part where the loops run, but for what they import. ``live``:
        what can run with the loops; None where callers out of sight run them. ``known``: the islands
        that other loops have. ``may_start``: whether a file, run as a script, may come to the loops.
        """
        self.program = program
        self.forward = forward
        self.options = options
        self.files = program.importing(files)
        self.live = live
        self.setup = program.noted(Setup)
        self._called = program.noted(Called)
        self.functions = self.called_from(
            [q for q in program.functions if ir.file_of(q) in files]
        )
        self.edits: list[tuple[str, Edit]] = []
        """What `find` wants to be done: a function, and an edit of one of its statements."""
        self.more: list[Run] = []
        """The regions that it wants besides."""
        self.spans: dict[Span, None] = {}
        """Islands of whole statements."""
        self.given_up: Refusal | None = None
        """What to say where they cannot be."""
        self._known = known
        self._may_start = may_start
        self._unseen = Unseen(program, forward, self.files, self.functions, live)

    def find(
        self,
        functions: frozenset[str],
        runs: Iterable[Run],
        regions: Regions | None = None,
    ) -> None:
        """Raise `Blocked` at the first hazard for loops in ``functions`` whose regions are ``runs``.

        ``regions`` looks at what leaves them, and adds others.
        """
        runs = list(runs)
        for facts in (self.program.functions[one] for one in sorted(functions)):
            if facts.is_async:
                raise refused("AMP034", f"{facts.name}() is async", facts.line)
        self._judge_handed_out()
        if self.options.dtype != "float16":
            self._judge_bfloat16()
        if self.options.torch_version < (1, 8):
            self._judge_old_torch()
        reached = list(self.reached(runs))
        imported = self.program.noted(Imported)
        for function, stmt in reached:
            call = imported.run_by(function, stmt)
            if call is not None:
                message = "what runs here is imported by a name that is not in sight"
                raise refused("AMP033", message, call.line)
        under = frozenset((function, stmt.path) for function, stmt in reached)
        inside = frozenset(
            (run.function, stmt.path)
            for run in runs
            for stmt in _statements_of(self.program.functions[run.function], run)
        )
        remedies = self.remedies = Remedies(
            self.program,
            under,
            self.options.dtype,
            self.options.torch_version,
            self.can_run,
        )
        sigmoids = Sigmoids(remedies, self.forward)
        Probabilities(remedies, sigmoids).plan(self.functions, inside)
        self._constants = Constants(remedies, sigmoids)
        self._casts = Casts(remedies)
        self._stores = Stores(remedies, self._casts)
        overflows = self.options.dtype != "bfloat16"
        self._formulas = Formulas(remedies, sigmoids, overflows)
        spans = Spans(
            remedies,
            sigmoids,
            self.forward,
            self._constants,
            self._formulas,
            under.union(self._isolated()),
            self._known,
        )
        if self.given_up is not None and not all(map(spans.plan, self.spans)):
            raise Blocked(self.given_up)
        blocked: Refusal | None = None
        for function, stmt in reached:
            if any(span.holds(function, stmt.path) for span in spans.planned):
                continue
            refusal = self._remedied(function, stmt)
            if refusal is None or not self._executes(function, stmt):
                continue
            if refusal.message in (NO_ISLAND, _FACTORS):
                raise Blocked(refusal)
            suits = self._suits(function, stmt)
            found = suits and (
                spans.around(function, stmt)
                or spans.around(function, stmt, follows=True)
            )
            if not (found or (refusal.code and spans.around_calls(function))):
                if not refusal.code:
                    continue
                if suits:
                    raise Blocked(refusal)
                # It may be of what another one makes fp32.
                blocked = blocked or refusal
                continue
            self.given_up = self.given_up or refusal
        if spans.planned.keys() != self.spans.keys():
            # What they bind is fp32, and what they call runs without autocast.
            self.spans = dict.fromkeys(spans.planned)
            self.find(functions, runs, regions)
            return
        if blocked is not None:
            raise Blocked(blocked)
        Arrays(remedies, self.forward, inside, under).judge(self.functions)
        if regions is not None:
            # What it is given, and leaves, is asked only of what is seen to be called.
            called = {f for f, _ in self.reached(runs, unseen=False)}
            called -= {f for f, _ in inside}
            leaving = Leaving(
                remedies,
                self.forward,
                self._casts,
                self._formulas,
                regions,
                runs,
                called,
                self.files,
                self.can_run,
                self._executes,
            )
            leaving.judge()
            if leaving.more:
                self.more += leaving.more
                self.find(functions, [*runs, *leaving.more], regions)
                return
        self.edits = list(remedies.edits)

    # -- reach --------------------------------------------------------------------------------

    def sites(self, runs: Collection[Run]) -> set[tuple[str, ir.Path]]:
        """Where these stand."""
        return {(at, stmt.path) for at, stmt in self.reached(list(runs))}

    def reached(
        self, runs: list[Run], unseen: bool = True
    ) -> Iterator[tuple[str, ir.Stmt]]:
        """Statements that run under autocast: regions, what they call, and the modules that may be
        among that. ``unseen``: and what may be run by calls of which nothing says whom they call.
        """
        program = self.program
        pending: list[str] = []
        names = {"forward", "__call__"}
        for run in runs:
            for stmt in _statements_of(program.functions[run.function], run):
                if not self._is_isolated(run.function, stmt):
                    yield run.function, stmt
                    for owner, definition in self._lambdas(run.function, stmt):
                        yield owner, definition
                        pending += self._called.by(owner, definition)
                pending += self._called.by(run.function, stmt)
                names.update(self._asked(run.function, stmt))
                if not unseen:
                    continue
                more, lambdas = self._unseen.run_by(run.function, stmt)
                pending += more
                for owner, definition in lambdas:
                    yield owner, definition
                    pending += self._called.by(owner, definition)
        for function, stmt, hooked in attached(program, self.files):
            if self.can_run(function):
                pending += hooked
                if any(map(_has_lambda, stmt.exprs)):
                    yield function, stmt
        methods = self._methods()
        seen: dict[str, None] = {}
        while True:
            pending += [qualname for name, qualname in methods if name in names]
            new = [q for q in self.called_from(pending) if q not in seen]
            if not new:
                return
            pending_there: list[str] = []
            for function in new:
                seen[function] = None
                if vocabulary.is_of_another(program.import_roots(function)):
                    continue  # It is run on no tensors of torch.
                for stmt in program.statements(function):
                    more, lambdas = (
                        self._unseen.run_by(function, stmt) if unseen else ([], [])
                    )
                    if not self._is_isolated(function, stmt):
                        yield function, stmt
                        yield from self._lambdas(function, stmt)
                        yield from lambdas
                    pending_there += more
                    names.update(self._asked(function, stmt))
            pending = pending_there

    def _is_isolated(self, function: str, stmt: ir.Stmt) -> bool:
        return self._is_without_autocast(function, stmt) or any(
            span.holds(function, stmt.path) for span in self.spans
        )

    def _is_without_autocast(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether a statement stands under ``if not torch.is_autocast_enabled():``."""
        if _ASKS not in self.program.modules[ir.file_of(function)].identifiers:
            return False
        return any(
            outer.kind == "if"
            and stmt.path[len(outer.path)][0] == "body"
            and isinstance(outer.value, ir.Operation)
            and outer.value.op == "not"
            and isinstance(outer.value.operands[0], ir.Call)
            and ir.method_of(outer.value.operands[0]) == _ASKS
            for outer in self.program.control(function).around(stmt.path)
        )

    def _isolated(self) -> Iterator[tuple[str, ir.Path]]:
        for span in self.spans:
            for stmt in span.inside(self.program):
                yield span.function, stmt.path

    def _suits(self, function: str, stmt: ir.Stmt) -> bool:
        """Whether to compute a statement in fp32 may help: it asks for no dtype."""
        return self._of_dtype_test(function, stmt) is None

    def _methods(self) -> list[tuple[str, str]]:
        """The methods of the modules that a region may run without a call in sight.

        Under the name of ``forward``: those that something else than the program calls.
        """
        program = self.program
        found: list[tuple[str, str]] = []
        for class_name in program.classes:
            if ir.file_of(class_name) not in self.files:
                continue
            if not self.forward.is_module_class(class_name):
                continue
            if self.live is not None and class_name not in self.live.classes:
                continue
            found += (("forward", one) for one in self._put_into(class_name))
            if self.live is not None and self.live.is_apart(class_name):
                continue
            plain = program.external_bases(class_name) <= _PLAIN_BASES
            for name, qualname in program.classes[class_name].methods:
                by_itself = name.startswith("__") if plain else True
                shown = "forward" if by_itself and name != "__init__" else name
                found.append((shown, qualname))
        return found

    def _put_into(self, class_name: str) -> Iterator[str]:
        """The functions that a class has for methods though they stand elsewhere: ``forward = run``, and what
        its decorators have."""
        facts = self.program.classes[class_name]
        for stmt in facts.body:
            if stmt.kind == "assign":
                yield from self._called.by(facts.parent, stmt)
        yield from self.program.put_around.get(class_name, ())

    def _asked(self, function: str, stmt: ir.Stmt) -> Iterator[str]:
        """The names of methods that a statement may call on what is not known."""
        for inner in parts_of(stmt):
            if isinstance(inner, ir.Attr):
                if not self.program.resolve(inner, function):
                    yield inner.attr
            elif isinstance(inner, ir.Const) and isinstance(inner.value, str):
                yield inner.value
            elif isinstance(inner, ir.Call) and len(inner.args) > 1:
                name = inner.args[1].value
                origin = self.program.origin(inner.func, function)
                if origin == "builtins.getattr" and not isinstance(name, ir.Const):
                    yield from (name for name, _ in self._methods())

    def _lambdas(self, function: str, stmt: ir.Stmt) -> Iterator[tuple[str, ir.Stmt]]:
        """The statements that make the lambdas which a statement calls."""
        for call in calls_of(stmt):
            for expr, where, made in self._called.held(call.func, function, stmt):
                if not isinstance(expr, ir.Deferred):
                    continue
                if made is not None:
                    yield where, made
                    continue
                # A parameter's default stands where its function is defined.
                for other in self.program.statements(where):
                    if any(inner is expr for inner in parts_of(other)):
                        yield where, other
            if isinstance(call.func, ir.Name):
                for definition in self.program.defined(call.func.id, function):
                    if isinstance(definition.value, ir.Deferred):
                        yield definition.function, definition.stmt

    def called_from(self, functions: list[str]) -> dict[str, None]:
        """Functions with all that they may call, in the order in which they are met."""
        return reached(
            filter(self.can_run, functions),
            lambda one: filter(self.can_run, self._called.of(one)),
        )

    def _executes(self, function: str, stmt: ir.Stmt) -> bool:
        if self.live is not None:
            return self.live.executes(function, stmt.path)
        return not any(
            outer.kind == "if"
            and outer.value is not None
            and is_main_guard(outer.value)
            and stmt.path[len(outer.path)][0] == "body"
            and not self._may_start(ir.file_of(function))
            for outer in self.program.control(function).around(stmt.path)
        )

    def can_run(self, function: str) -> bool:
        """Whether a function can run where the loops do."""
        return self.live is None or self.live.runs(function)

    # -- setup --------------------------------------------------------------------------------

    def judge_setup(
        self,
        trained: frozenset[str],
        is_off: Callable[[str, ir.Stmt], bool] = lambda function, stmt: False,
    ) -> None:
        """Raise `Blocked` at the first hazard that counts wherever it stands in the files, and in what
        they call, where some functions are ``trained``: loops go backward there. ``is_off``: whether AMP
        is off where a statement runs."""
        live, every = self.live, self.functions
        running = every if live is None else [f for f in every if live.runs(f)]
        hazard = self.setup.first(every, running, self.options.scaled, trained, is_off)
        if hazard is not None:
            raise Blocked(hazard)

    def _judge_old_torch(self) -> None:
        """What the first versions with autocast did not carry it to."""
        version = self.options.torch_version
        words = {w for file in self.files for w in self.program.modules[file].strings}
        chosen = next((kind for kind in ("LSTM", "GRU", "RNN") if kind in words), "")
        for function, _, call in self.program.all_calls():
            if function not in self.functions:
                continue
            name = last_word(call.func, self.program, function)
            if name == "getattr" and len(call.args) > 1:
                key, of = call.args[1].value, call.args[0].value
                if self.program.origin(of, function) == "torch.nn":
                    name = str(key.value) if isinstance(key, ir.Const) else chosen
            newer = since().get(name, version)
            if any(a.name == "sparse" and a.value == ir.Const(True) for a in call.args):
                name, newer = "a scaler with sparse gradients", (1, 7)
            if newer > version and name not in rows():
                message = (
                    f"before torch {_shown(newer)}, {name} does not work under autocast"
                )
                raise refused("AMP009", message, call.line)

    def _judge_handed_out(self) -> None:
        """``kind = MultivariateNormal`` in a class that derives from one out of sight, which may make one."""
        program = self.program
        for function, stmt in program.mentioning(*dtype_table.DISTRIBUTIONS):
            origin = stmt.value and program.origin(stmt.value, function)
            if not (
                stmt.kind in ("assign", "annassign")
                and ir.file_of(function) in self.files
                and dtype_table.RAISES.fullmatch(origin or "")
            ):
                continue
            for name, facts in program.classes.items():
                holds = any(stmt is one for one in ir.statements(facts.body)) or (
                    name == program.functions[function].class_name
                    and self.can_run(function)
                )
                if holds and program.external_bases(name) - _PLAIN_BASES:
                    kind = (origin or "").rsplit(".", 1)[-1]
                    message = f"{kind} fails in half precision, and a class out of sight may make one"
                    raise refused("AMP020", message, stmt.line)

    def _judge_bfloat16(self) -> None:
        for function, _, call in self.program.all_calls():
            func = call.func
            if function not in self.functions:
                continue
            if last_word(func, self.program, function) in _REPLICATES:
                message = (
                    "DataParallel runs its replicas in float16 whatever the dtype says"
                )
                raise refused("AMP020", message, call.line)
        for _, stmt, hooked in attached(self.program, self.files):
            body = [
                inner
                for name in self.called_from(hooked)
                for inner in self.program.statements(name)
            ]
            for inner in (stmt, *body):
                for call in calls_of(inner):
                    if _is_numpy(call):
                        raise refused("AMP020", _NO_NUMPY, call.line)

    # -- forward ------------------------------------------------------------------------------

    def of_statement(self, function: str, stmt: ir.Stmt) -> Refusal | None:
        """The first hazard in a statement that runs under autocast, as it stands; after `find`."""
        known = self.remedies.edits
        self.remedies.edits = dict(known)
        try:
            found = self._remedied(function, stmt)
            if found is None and len(self.remedies.edits) > len(known):
                message = "an operation needs fp32 operands"
                found = Refusal("AMP020", message, stmt.line)
            return found
        finally:
            self.remedies.edits = known

    def _remedied(self, function: str, stmt: ir.Stmt) -> Refusal | None:
        """The first hazard in a statement for which there is no remedy; those for others are planned."""
        program = self.program
        # What a parameter is by default may be a lambda.
        if stmt.kind in ("functiondef", "classdef") and not any(
            map(_has_lambda, stmt.exprs)
        ):
            return None
        for call in calls_of(stmt):
            if self._casts.raise_operands(function, stmt, call):
                continue
            if not self.forward.is_in_module(function):
                self._casts.raise_mean(function, stmt, call)
            refusal = self._of_call(program, function, stmt, call)
            if refusal is not None:
                return refusal
        refusal = self._stores.refusal(function, stmt)
        refusal = refusal or self._of_dtype_test(function, stmt)
        refusal = refusal or self._constants.refusal(function, stmt)
        refusal = refusal or self._formulas.refusal(function, stmt)
        if refusal is not None:
            return refusal
        return of_products(self.remedies, self.forward, function, stmt)

    def _of_call(
        self, program: Program, function: str, stmt: ir.Stmt, call: ir.Call
    ) -> Refusal | None:
        origin = program.origin(call.func, function)
        refs = program.resolve(call.func, function)
        names = {origin or ""}
        names |= {ref.name for ref in refs if ref.kind in ("made", "external")}
        for expr, where, _ in self._called.held(call.func, function, stmt):
            names.add(program.origin(expr, where) or "")
        for ref in refs:
            if ref.kind in ("class", "instance"):
                names |= program.external_bases(ref.name)
        if isinstance(call.func, ir.Attr) and call.func.attr in _LIBRARY_METHODS:
            names |= {
                f"{ref.name}.{call.func.attr}"
                for ref in program.resolve(call.func.value, function)
                if ref.kind == "made"
            }
        older = self._casts.left_half(function, call)
        if older:
            message = f"before torch {_shown(since()[older])}, autocast leaves {older}() in half precision"
            return Refusal("AMP009", message, call.line)
        for name in names:
            if dtype_table.FACTORS.fullmatch(name):
                return Refusal("AMP020", _FACTORS, call.line)
            if dtype_table.RAISES.fullmatch(name) or is_matrix_norm(name, call):
                first = call.argument(0, "input")
                if name.startswith("torch.fft.") and first is not None:
                    # It takes nothing else but numbers, and computes no product.
                    if self.remedies.halves.is_never_half(Made(first, function, stmt)):
                        continue
                short = name.rsplit(".", 1)[-1]
                return Refusal(
                    "AMP020",
                    f"{short} fails or loses its meaning in half precision",
                    call.line,
                )
        if (origin or "").startswith("torch.") and _is_written_to(call):
            if not all(
                self.remedies.halves.is_never_half(Made(arg.value, function, stmt))
                for arg in call.args
            ):
                message = "what is written to out= may be half, and its target is not"
                return Refusal("AMP020", message, call.line)
        if any(arg.name == "per_sample_weights" for arg in call.args):
            message = "the weights of an embedding bag may be half, and the bag is not"
            return Refusal("AMP020", message, call.line)
        put = self._casts.source_of(function, stmt, call)
        if put is not None and not (refs and origin is None):
            source, tensor = put
            name = ir.method_of(call)
            number = name in ("scatter", "scatter_")
            if not self._casts.cast_like(function, stmt, source, tensor, number):
                message = (
                    f"{name}() raises when its source is half and its target is not"
                )
                return Refusal("AMP020", message, call.line)
        unlike = self._casts.blend(function, stmt, call)
        if unlike is not None:
            message = f"{unlike}() raises where only some of its operands are half"
            if unlike in since():
                message = f"before torch {_shown(since()[unlike])}, {message}"
                return Refusal("AMP009", message, call.line)
            return Refusal("AMP020", message, call.line)
        if origin is not None or not isinstance(call.func, ir.Attr):
            return None
        method = call.func.attr
        if method in _WITHOUT_ARGUMENTS and call.args:
            return None  # That is no tensor's.
        if method in _RAISING_METHODS and not refs:
            return Refusal(
                "AMP020", f".{method}() is not implemented in half precision", call.line
            )
        return None

    def _of_dtype_test(self, function: str, stmt: ir.Stmt) -> Refusal | None:
        """``assert h.dtype == torch.float32``, where autocast makes it half, or ``torch.allclose(h, k)``."""
        for call in calls_of(stmt):
            asserts = self.program.origin(call.func, function) in _ASSERTS or (
                stmt.kind == "assert" and ir.method_of(call) == "allclose"
            )
            if asserts and not all(
                self.remedies.halves.is_never_half(Made(arg.value, function, stmt))
                for arg in call.args[:2]
                if arg.name is None
            ):
                message = "an assert compares more digits than half precision has"
                return Refusal("AMP020", message, stmt.line)
        for tensor in tested(self.program, function, stmt, self.options.dtype):
            at = Made(tensor, function, stmt)
            if self.remedies.halves.is_never_half(at):
                continue
            if not (
                suits_fp32(self.program, function, stmt, tensor)
                and self.remedies.raise_(at, True)
            ):
                message = "what is asked for its dtype may be half here"
                return Refusal("AMP020", message, stmt.line)
        return None


def _shown(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _statements_of(function: ir.Function, run: Run) -> list[ir.Stmt]:
    """The statements of a run, blocks included."""
    return [stmt for stmt in ir.statements(function.body) if run.holds(stmt.path)]


def _is_numpy(call: ir.Call) -> bool:
    """Whether a call makes an array of a tensor that may be half."""
    func = call.func
    if not isinstance(func, ir.Attr) or func.attr != "numpy":
        return False
    chain = {e.attr for e in ir.walk(func.value) if isinstance(e, ir.Attr)}
    known = {"float", "double", "argmax", "long", "int", "max", "topk", "sort"}
    return not chain & known


def _is_written_to(call: ir.Call) -> bool:
    """``torch.abs(h, out=buffer)``: autocast leaves that alone, and a result of another dtype raises; what is
    joined is cast, and what is made of numbers is made in that dtype."""
    suits = operations("joined", "made", "counted", "given")
    return any(arg.name == "out" for arg in call.args) and (
        ir.method_of(call) not in suits
    )


def _has_lambda(expr: ir.Expr) -> bool:
    return any(isinstance(inner, ir.Deferred) for inner in ir.walk(expr))
