"""The levels: which runs each is made of, and what they say together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from amp_migrate.catalogue.rules import lint_code, lint_rule
from amp_migrate.validate import mixed
from amp_migrate.validate.compare import injection, new_warnings
from amp_migrate.validate.order import OFF, Order, Switches, Task
from amp_migrate.validate.record import Line, Record, place, shown
from amp_migrate.validate.verdict import (
    Figure,
    Finding,
    Level,
    LevelVerdict,
    Outcome,
)

Run = Callable[[Order], Record]
Compare = Callable[[Record, Record], str]
"""How two runs differ, in one line; empty where they do not."""

MOVING = ((2.0**8, 2), (2.0**4, 1), (2.0**20, 3))
"""First scales and growth intervals: scales that move during the run, so that a forgotten ``update``
or another scaler's ``step`` is seen, which at a constant scale are not."""
LOW = (1.0, 3)
"""Where fp32 gradients neither under- nor overflow for being scaled."""
LOW_SCALE = 2.0**10
"""At which losses are compared: no step is skipped, and so no batch is shifted."""
DEFAULT_SCALE = 2.0**16
SEEDS = (0, 1, 2)

ORIGINAL = Order("the original")
AGAIN = Order("the original, once more")
LONGER = Order("the original, for longer", longer=2)

RUNS = 2 + 1 + len(MOVING) + 2 + 3 * len(SEEDS) - 1 + 1 + 2
"""Runs of all levels, of the original twice, of the monitor and for the shapes, where nothing has to be
looked at twice."""


def scaled(scale: float, interval: int) -> Order:
    """The scaler alone, in fp32, with a scale that moves."""
    return Order(
        f"scaled from {scale:g}, doubling every {interval}",
        rewritten=True,
        switches=Switches(True, False, scale, interval),
    )


def off(run: Run, reference: Record, different: Compare) -> LevelVerdict:
    """L0: without scaling and autocast, the rewrite is the original, to the bit."""
    candidate = run(Order("switched off", rewritten=True, switches=OFF))
    if candidate.killed:
        return _ended(Level.OFF, candidate)
    found = different(reference, candidate)
    notes = tuple(
        f"a new warning: {text}" for text in new_warnings(reference, candidate)
    )
    if found:
        return LevelVerdict(Level.OFF, Outcome.DISPROVED, found, details=notes)
    same = f"{_counted(reference)}: bit-identical"
    return LevelVerdict(Level.OFF, Outcome.PROVEN, same, details=notes)


def loss_scaling(run: Run, reference: Record, different: Compare) -> LevelVerdict:
    """L1: scaling by powers of two is exact in fp32, so that the bits are still the same."""
    bad = next((step for step in reference.all("step") if not step["finite"]), None)
    if bad is not None:
        step = place(bad) if "path" in bad else "a step"
        return LevelVerdict(
            Level.SCALED,
            Outcome.NOT_FINITE,
            f"gradients that are not finite reach {step} in the original: a scaler skips that step",
        )
    outcome = Outcome.PROVEN
    details = []
    steady = reference
    for scale, interval in MOVING:
        order = scaled(scale, interval)
        candidate = run(order)
        if candidate.killed:
            return _ended(Level.SCALED, candidate)
        found = different(reference, candidate)
        if not found:
            steady = candidate
            continue
        low = different(reference, run(scaled(*LOW)))
        if low:
            return LevelVerdict(
                Level.SCALED, Outcome.DISPROVED, f"{order.name}: {found}"
            )
        outcome = Outcome.UNDERFLOW
        details.append(
            f"{order.name}: {found}; from {LOW[0]:g} the runs are bit-identical: fp32 under- or overflow"
        )
    looked_at = f"{_counted(reference)}, {len(MOVING)} moving scales"
    if outcome is Outcome.PROVEN:
        if not any(line["scaled"] for line in steady.all("loss")):
            return LevelVerdict(
                Level.SCALED, Outcome.NOT_JUDGED, "no loss is scaled here"
            )
        wanted = injection(steady)
        if wanted is None:
            return LevelVerdict(
                Level.SCALED, Outcome.NOT_JUDGED, "no scaler makes a step here"
            )
        control = run(
            Order("the original without a step", injection=replace(wanted, skip=True))
        )
        if control.failure:
            details.append(
                f"no inf is injected: {control.order.name}: {control.failure}"
            )
        elif not _is_once_each(control.all("skip")):
            details.append("no inf is injected: the original drops it by itself")
        else:
            candidate = run(
                replace(scaled(*MOVING[0]), name="an inf", injection=wanted)
            )
            if candidate.killed:
                return _ended(Level.SCALED, candidate)
            found = different(control, candidate)
            if found:
                return LevelVerdict(
                    Level.SCALED, Outcome.DISPROVED, f"an injected inf: {found}"
                )
            looked_at += ", 1 injected inf"
    summary = f"{looked_at}: bit-identical"
    if outcome is Outcome.UNDERFLOW:
        summary = (
            "bit-identical at low scales; at high ones fp32 itself under- or overflows"
        )
    return LevelVerdict(Level.SCALED, outcome, summary, details=tuple(details))


def _is_once_each(skips: Sequence[Line]) -> bool:
    """Whether some steps were left out, each of another optimizer: those whose gradients one norm bounds."""
    return 0 < len(skips) == len({line["optimizer"] for line in skips})


def _ended(level: Level, record: Record) -> LevelVerdict:
    """A run that its limits ended: it may be slow, or large, and right."""
    return LevelVerdict(
        level, Outcome.NOT_JUDGED, f"{record.order.name}: {record.killed}"
    )


def as_mixed(is_scaled: bool) -> Switches:
    """Scaling, where there is a scaler, from a low scale, and autocast."""
    return Switches(True if is_scaled else None, True, LOW_SCALE)


def protocol(
    run: Run, order: Order, bad: Collection[str]
) -> tuple[LevelVerdict, list[Finding]]:
    """What bits cannot show: the monitor watches each backward, clip, step and update.

    ``bad``: the severities of findings that disprove.
    """
    record = run(order)
    latest = {
        (line["rule"], line["path"], line["line"]): line
        for line in record.all("finding")
    }
    findings = [
        Finding(
            rule.name,
            rule.severity,
            shown(line["path"]),
            line["line"],
            rule.message.rstrip("."),
            line["count"],
            rule.code,
        )
        for line in latest.values()
        for rule in (lint_rule(lint_code(line["rule"])),)
    ]
    errors = [one for one in findings if one.severity in bad]
    if errors:
        first = errors[0]
        more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
        summary = f"{first.path}:{first.line}: {first.message}{more}"
        return LevelVerdict(Level.MONITOR, Outcome.DISPROVED, summary), findings
    if record.failure:
        return (
            LevelVerdict(Level.MONITOR, Outcome.NOT_JUDGED, record.failure),
            findings,
        )
    backwards = len(record.all("loss"))
    told = f", {len(findings)} remarks" if findings else ", no violation"
    summary = f"{backwards} backward passes watched{told}"
    return LevelVerdict(Level.MONITOR, Outcome.PROVEN, summary), findings


def mixed_precision(
    run: Run, reference: Record, *, is_scaled: bool
) -> tuple[LevelVerdict, list[Record]]:
    """L2: in mixed precision it is still the same training, as far as statistics can tell.

    The second answer is the records of mixed runs: one a seed, then the one from the default scale.
    """
    switches = as_mixed(is_scaled)
    plain, noisy, ours = [], [], []
    for seed in SEEDS:
        fp32 = replace(ORIGINAL, name=f"fp32, seed {seed}", seed=seed)
        plain.append(run(fp32) if seed else reference)
        noisy.append(
            run(replace(fp32, name=f"{fp32.name}, disturbed", perturbation=mixed.NOISE))
        )
        task = Task.RECORD if seed else Task.PRODUCTS
        ours.append(
            run(Order(f"mixed, seed {seed}", True, task, switches=switches, seed=seed))
        )
    default = replace(switches, init_scale=DEFAULT_SCALE)
    records = [*ours, run(Order("mixed, default scale", True, switches=default))]
    for record in (*plain, *noisy, *records):
        if record.failure:
            summary = f"{record.order.name}: {record.failure}"
            is_wrong = record.order.rewritten and not record.killed
            if is_wrong and run(LONGER).error == record.error:
                # Steps that it skipped have led it farther.
                is_wrong = False
                summary += "; so does the original where it runs for longer"
            outcome = Outcome.DISPROVED if is_wrong else Outcome.NOT_JUDGED
            return LevelVerdict(Level.MIXED, outcome, summary), records
    if not mixed.all_finite(plain).holds:
        reason = "the original has losses that are not finite"
        return LevelVerdict(Level.MIXED, Outcome.NOT_JUDGED, reason), records
    reason = _without_effect(ours)
    if reason:
        return LevelVerdict(Level.MIXED, Outcome.NOT_JUDGED, reason), records
    figures = list(_figures(plain, noisy, ours))
    if is_scaled:
        figures += mixed.skipped(records[-1], DEFAULT_SCALE)
    missed = [figure for figure in figures if not figure.holds]
    if missed:
        first = missed[0]
        summary = f"{first.name}: {first.value}, not {first.bound}"
    else:
        summary = f"{len(SEEDS)} seeds: {len(figures)} figures within their bounds"
    outcome = Outcome.DISPROVED if missed else Outcome.PROVEN
    return LevelVerdict(Level.MIXED, outcome, summary, tuple(figures)), records


def _without_effect(ours: Sequence[Record]) -> str:
    """Why autocast cannot change anything in these runs; empty where it can, or should."""
    regions = [line["on"] for record in ours for line in record.all("region")]
    # A scaler and no region at all is a mistake.
    has_scaler = any(record.all("scaler") for record in ours)
    if not any(regions) and (regions or not has_scaler):
        return "no autocast region is switched on here"
    products = ours[0].last("products")
    if products["elsewhere"] and not products["half"] + products["full"]:
        return "it computes on a device that autocast is not for"
    return ""


def _figures(
    plain: Sequence[Record], noisy: Sequence[Record], ours: Sequence[Record]
) -> Sequence[Figure]:
    products = ours[0].last("products")
    total = products["half"] + products["full"]
    before, twins, after = (
        [one.losses for one in records] for records in (plain, noisy, ours)
    )
    figures = [
        Figure(
            "matrix products of the backward in 16 bits",
            f"{products['half']} of {total}",
            "≥ 1" if total else "",
            products["half"] > 0 or not total,
        ),
        mixed.first_loss(before[0], after[0]),
        mixed.all_finite(ours),
        *mixed.trajectory(before, twins, after, 1.0, "mean loss"),
        *mixed.trajectory(before, twins, after, 0.25, "mean loss of the last quarter"),
    ]
    optimizers = {step["optimizer"] for step in plain[0].all("step")}
    # Where optimizers work against each other, a loss that does not drop says nothing.
    if len(optimizers) == 1:
        kept = mixed.learning(before[0], after[0])
        figures += [] if kept is None else [kept]
    return figures


def _counted(record: Record) -> str:
    return f"{len(record.all('loss'))} losses, {len(record.all('step'))} steps"
