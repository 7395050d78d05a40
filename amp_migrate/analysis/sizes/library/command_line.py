"""Options of a command line: what argparse and click give where the user says nothing."""

from __future__ import annotations

from dataclasses import replace

from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.machine import Machine
from amp_migrate.analysis.sizes.domain.traces import link
from amp_migrate.analysis.sizes.domain.values import (
    External,
    Frame,
    Func,
    Instance,
    Known,
    Sequence,
    Tup,
    Unknown,
    Value,
    is_number,
    weakened,
)
from amp_migrate.analysis.sizes.interpreter.calls import Calls
from amp_migrate.analysis.sizes.interpreter.models import model
from amp_migrate.core.findings import Confidence
from amp_migrate.program import ir

_OPTIONS = "options"


@model(
    "argparse.ArgumentParser",
    "configargparse.ArgumentParser",
    "configargparse.ArgParser",
)
def _parser(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    made = Instance(None, "parser")
    parents = given.keywords.get("parents")
    options = Instance(None, "namespace")
    for parent in (m.elements(parents) or () if parents is not None else ()):
        if isinstance(parent, Instance) and isinstance(
            parent.state.get(_OPTIONS), Instance
        ):
            options.state.update(parent.state[_OPTIONS].state)  # type: ignore[attr-defined]
        else:
            m.spoil([options], "parents")
    if "argument_default" in given.keywords or given.rest:
        m.spoil([options], "argument_default")
    made.state[_OPTIONS] = options
    return made


def _options(value: Value | None) -> Instance | None:
    held = value.state.get(_OPTIONS) if isinstance(value, Instance) else None
    return held if isinstance(held, Instance) else None


@model("parser.add_argument")
def _argument(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    options = _options(f.of)
    if options is None:
        return Unknown("option")
    names = [one.value for one in given.positional if isinstance(one, Known)]
    if given.rest or len(names) < len(given.positional) or not names:
        if "dest" not in given.keywords:
            m.spoil([options], "option")
            return Known(None)
    dest = given.keywords.get("dest")
    texts = [str(name) for name in names]
    long = [name for name in texts if name.startswith("--")]
    if isinstance(dest, Known) and isinstance(dest.value, str):
        key = dest.value
    elif dest is not None:
        m.spoil([options], "option")
        return Known(None)
    else:
        key = (long or texts)[0].lstrip("-").replace("-", "_")
    positional = bool(texts) and not texts[0].startswith("-")
    value = _option_value(m, given, positional, site, frame)
    if is_number(value):
        shown = ir.Const(value.value)
        value = replace(
            value,
            trace=link((long or texts or [key])[0], shown, site.line, None, "option"),
        )
    m.write(options, key, weakened(value, Confidence.DEFAULT))
    return Known(None)


def _option_value(
    m: Calls, given: Given, positional: bool, site: ir.Call, frame: Frame
) -> Value:
    action = given.keywords.get("action")
    default = given.keywords.get("default")
    required = given.keywords.get("required")
    if isinstance(required, Known) and required.value:
        return Unknown("option")
    if isinstance(action, Known) and default is None:
        if action.value in ("store_true", "store_false"):
            return Known(action.value == "store_false")
        if action.value == "count":
            return Known(None)
    if default is None:
        return Unknown("option") if positional else Known(None)
    kind = given.keywords.get("type")
    if (
        isinstance(default, Known)
        and isinstance(default.value, str)
        and kind is not None
    ):
        # argparse converts a default that is a text, as if it had been typed.
        return m.call(kind, Given([default]), site, frame)
    return default


@model(
    "parser.add_argument_group",
    "parser.add_mutually_exclusive_group",
    "parser.add_subparsers",
)
def _group(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    if f.origin.endswith("subparsers"):
        made = Instance(None, "subparsers")
        options = _options(f.of)
        if options is not None:
            made.state[_OPTIONS] = options
            dest = given.keywords.get("dest")
            if isinstance(dest, Known) and isinstance(dest.value, str):
                m.write(options, dest.value, Unknown("option"))
        return made
    return f.of or Unknown("option")


@model("subparsers.add_parser")
def _subparser(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    made = Instance(None, "parser")
    options = _options(f.of)
    if options is None:
        return Unknown("option")
    # Options of several commands may share a name; each sets what is asked for when it is chosen.
    made.state[_OPTIONS] = options
    return made


@model("parser.set_defaults")
def _set_defaults(
    m: Calls, f: External, given: Given, site: ir.Call, frame: Frame
) -> Value:
    options = _options(f.of)
    if options is not None:
        if given.rest or given.positional:
            m.spoil([options], "set_defaults")
        for name, value in given.keywords.items():
            m.write(options, name, weakened(value, Confidence.DEFAULT))
    return Known(None)


@model("parser.parse_args", "parser.parse_known_args")
def _parse(m: Calls, f: External, given: Given, site: ir.Call, frame: Frame) -> Value:
    options = _options(f.of)
    if options is None:
        return Unknown("option")
    made = Instance(None, "namespace")
    made.state.update(options.state)
    if "namespace" in given.keywords or len(given.positional) > 1:
        m.spoil([made], "namespace")
    argv = given.get(0, "args")
    held = None if argv is None else m.elements(argv)
    if (
        argv is not None
        and held != ()
        and not (isinstance(argv, Known) and argv.value is None)
    ):
        if held is not None:
            # Arguments that the program gives itself override the defaults.
            for name in {
                str(one.value).split("=")[0].lstrip("-").replace("-", "_")
                for one in held
                if isinstance(one, Known)
            }:
                made.state[name] = Unknown("option")
        elif not (
            isinstance(argv, Unknown) and argv.reason.startswith(("sys", "call of sys"))
        ):
            pass
    if f.origin.endswith("known_args"):
        return Tup((made, Sequence("list", Unknown("option"))))
    return made


# -- click ----------------------------------------------------------------------------------------


def click_option(
    machine: Machine, made: Value, decorator: ir.Expr, frame: Frame
) -> None:
    """Note the default of ``@click.option(...)`` above a function."""
    if not isinstance(made, Func) or not isinstance(decorator, ir.Call):
        return
    origin = machine.program.origin(decorator.func, frame.function)
    if origin not in ("click.option", "click.argument"):
        return
    known = machine.recorder.options.setdefault(made.function.qualname, {})
    names = [
        arg.value.value
        for arg in decorator.args
        if arg.name is None
        and isinstance(arg.value, ir.Const)
        and isinstance(arg.value.value, str)
    ]
    plain = [name for name in names if name.isidentifier()]
    long = [name.split("/")[0] for name in names if name.startswith("--")]
    key = (plain or long or names or [""])[0].lstrip("-").replace("-", "_").lower()
    value: Value = Unknown("option")
    if origin == "click.option":
        for arg in decorator.args:
            if arg.name == "default":
                value = machine.evaluate(arg.value, frame)
            elif arg.name == "is_flag" and isinstance(value, Unknown):
                value = Known(False)
    if is_number(value):
        shown = ir.Const(value.value)
        trace = link((long or [key])[0], shown, decorator.line, None, "option")
        value = replace(value, trace=trace)
    known[key] = weakened(value, Confidence.DEFAULT)
