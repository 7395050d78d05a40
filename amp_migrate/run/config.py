"""The settings of a run: ``[tool.amp-migrate]`` in pyproject.toml, and the command line over it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from amp_migrate.core.options import DTYPES, Options
from amp_migrate.run import config_lint
from amp_migrate.run.config_lint import LINT_KEYS, Showing
from amp_migrate.run.keys import Key, a_bool, quoted, texts
from amp_migrate.sources.discovery import Filters, lexical, upwards
from amp_migrate.sources.files import exists
from amp_migrate.sources.requirements import OLDEST, needs_lightning_1, stated_torch

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = "amp-migrate"
DEFAULT_TORCH_VERSION = (2, 4)


class ConfigError(Exception):
    """A setting that cannot be meant: one line, for the user."""


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line says; None where it is silent."""

    dtype: str | None = None
    torch_version: tuple[int, int] | None = None
    evaluation: bool | None = None
    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] | None = None
    force_exclude: tuple[str, ...] | None = None
    lint: Mapping[str, Any] = field(default_factory=dict)
    """By the keys of ``[tool.amp-migrate.lint]``, and ``fix`` and ``unsafe-fixes``."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a run needs to know beside its paths."""

    root: Path
    """The project root: what may be read, and what patterns are relative to."""
    options: Options = field(default_factory=Options)
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    force_exclude: tuple[str, ...] = ()
    showing: Showing = field(default_factory=Showing)
    """What is told of what lint finds."""
    config_file: Path | None = None
    """Where the configuration came from, if there was any."""
    torch_version_from: str = "default"
    """Who decided the torch version, in words."""

    @property
    def filters(self) -> Filters:
        """The patterns, as the search for files takes them."""
        return Filters(str(self.root), self.include, self.exclude, self.force_exclude)


@dataclass(frozen=True, slots=True)
class Project:
    """Paths that belong together, and what is configured for them."""

    paths: tuple[str, ...]
    settings: Settings


def projects(
    paths: Sequence[str],
    overrides: Overrides = Overrides(),
    config_file: str | None = None,
) -> list[Project]:
    """The projects that ``paths`` are in, each with its own settings, in the order of their first paths.

    A path belongs to the project that is found above it, and what is below another of the paths to that
    one's; paths that are in no project belong together. Raises `ConfigError`.
    """
    starts = {path: _start(path) for path in paths or (os.curdir,)}
    folders = {start for path, start in starts.items() if Path(path).is_dir()}
    known: dict[Path, Path | None] = {}
    found: dict[Path | None, list[str]] = {}
    for path, start in starts.items():
        outer = [one for one in start.parents if one in folders]
        start = outer[-1] if outer else start
        if start not in known:
            known[start] = _locate(start)[0]
        found.setdefault(known[start], []).append(path)
    return [
        Project(tuple(own), load(own, overrides, config_file)) for own in found.values()
    ]


def is_project(folder: str) -> bool:
    """Whether a folder is the root of a project, which something in it says."""
    start = _start(folder)
    return _locate(start)[0] == start


def load(
    paths: Sequence[str],
    overrides: Overrides = Overrides(),
    config_file: str | None = None,
) -> Settings:
    """The settings for a run over ``paths``. Raises `ConfigError`."""
    overrides = overrides or Overrides()
    start = common_parent(paths)
    above, found = _locate(start)
    root = above or start
    if config_file is None:
        file, table = found, _own_table(_read(found)) if found else {}
    else:
        file = Path(config_file)
        own = _own_table(_read(file))
        if own is None:
            raise ConfigError(f"{file}: has no [tool.{TABLE}] table")
        table = own
    values = _validate(table or {}, file)

    torch_version = overrides.torch_version or values.get("torch-version")
    decided_by = "command line" if overrides.torch_version else str(file)
    pyproject = root / "pyproject.toml"
    stated = _read(pyproject) if exists(pyproject) else {}
    too_old = below = ""
    if torch_version is None:
        torch_version, decided_by = DEFAULT_TORCH_VERSION, "default"
        required = stated_torch(root, stated)
        if required is not None:
            torch_version, too_old = required.oldest, required.too_old
            below = required.below
            decided_by = "the project's requirements"

    lint = values.get("lint", {})
    folder = file.parent if file is not None else root
    return Settings(
        root=root,
        options=Options(
            dtype=_first(overrides.dtype, values.get("dtype"), Options().dtype),
            torch_version=torch_version,
            torch_too_old=too_old,
            torch_below=below,
            evaluation=_first(
                overrides.evaluation, values.get("eval"), Options().evaluation
            ),
            lightning_1=needs_lightning_1(root, stated),
            lint=config_lint.options(lint, overrides.lint, folder),
        ),
        include=_first(overrides.include, values.get("include"), ()),
        exclude=_first(overrides.exclude, values.get("exclude"), ()),
        force_exclude=_first(overrides.force_exclude, values.get("force-exclude"), ()),
        showing=config_lint.showing(lint, overrides.lint, folder),
        config_file=file if table is not None else None,
        torch_version_from=decided_by,
    )


def overrides(table: object, source: str) -> Overrides:
    """What a table of the form of ``[tool.amp-migrate]`` says, but for what belongs to the project.

    ``source``: what messages call it. Raises `ConfigError`.
    """
    values = _validate(table, Path(source))
    lint = values.get("lint", {})
    for key in lint.keys() & {"per-file-ignores", "extend-rules"}:
        raise ConfigError(f"{source}: {key} is read from pyproject.toml alone")
    return Overrides(
        dtype=values.get("dtype"),
        torch_version=values.get("torch-version"),
        evaluation=values.get("eval"),
        include=values.get("include"),
        exclude=values.get("exclude"),
        force_exclude=values.get("force-exclude"),
        lint=lint,
    )


def _first(*candidates: Any) -> Any:
    return next(one for one in candidates if one is not None)


def common_parent(paths: Sequence[str]) -> Path:
    """The deepest directory that all ``paths`` are in; the current one where there is none."""
    directories = [_start(path) for path in paths or (os.curdir,)]
    try:
        return Path(os.path.commonpath(directories))
    except ValueError:  # several drives
        return Path.cwd()


def _start(path: str) -> Path:
    """The directory from which the project of a path is looked for."""
    absolute = Path(lexical(path))
    return absolute if absolute.is_dir() else absolute.parent


def _locate(start: Path) -> tuple[Path | None, Path | None]:
    """The project root for ``start``, and its pyproject.toml if that configures this program.

    None where nothing says that there is a project.
    """
    fallback = None
    for directory in upwards(str(start)):
        pyproject = directory / "pyproject.toml"
        if pyproject.is_file() and _own_table(_read(pyproject)) is not None:
            return directory, pyproject
        if any(exists(directory / marker) for marker in (".git", ".hg")):
            return directory, None
        if fallback is None and any(
            (directory / name).is_file()
            for name in ("pyproject.toml", "setup.py", "setup.cfg")
        ):
            fallback = directory
    return fallback, None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not valid TOML: not utf-8") from None
    except tomllib.TOMLDecodeError as error:
        where = re.search(r" \(at line (\d+), column \d+\)$", str(error))
        if where is None:
            raise ConfigError(f"{path}: not valid TOML: {error}") from None
        message = str(error)[: where.start()]
        raise ConfigError(f"{path}:{where[1]}: not valid TOML: {message}") from None


def _own_table(pyproject: Mapping[str, Any]) -> object | None:
    tools = pyproject.get("tool")
    return tools.get(TABLE) if isinstance(tools, dict) else None


def parse_torch_version(text: str) -> tuple[int, int]:
    """``"2.3"`` as (2, 3). Raises ValueError with a message for the user."""
    found = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)*", text.strip())
    if found is None:
        raise ValueError(f"a torch version is written X.Y, not {text!r}")
    version = (int(found[1]), int(found[2]))
    if version < OLDEST:
        raise ValueError(
            f"torch {text} has no autocast; the oldest that has is {'.'.join(map(str, OLDEST))}"
        )
    return version


def _a_dtype(value: object) -> str:
    if value not in DTYPES:
        raise ValueError(f"must be one of {', '.join(DTYPES)}, not {value!r}")
    return str(value)


def _a_torch_version(value: object) -> tuple[int, int]:
    # As a number, 2.10 would be 2.1.
    if not isinstance(value, str):
        raise ValueError('must be a string such as "2.3"')
    return parse_torch_version(value)


_PATTERNS = "a pattern, or a list of patterns"

KEYS: Mapping[str, Key] = {
    "dtype": Key(
        _a_dtype,
        quoted(DTYPES),
        '`"float16"`',
        "What autocast casts to. float16 needs a gradient scaler, bfloat16 has the range of fp32 and needs"
        ' none. `"auto"` leaves the choice to the device that the program runs on.',
        '"auto"',
    ),
    "torch-version": Key(
        _a_torch_version,
        "a string, `X.Y`, from `1.6` on",
        "what the project requires, else `2.4`",
        "The oldest torch that the code has to run on. It decides which names are written: from 1.10 on"
        " `torch.autocast`, from 2.3 on `torch.amp.GradScaler`, from 2.4 on `torch.amp.custom_fwd`, before"
        " that those of `torch.cuda.amp`; from 2.9 on loops with `torch.compile` are migrated. Where the key"
        " is not given, the requirement on torch in the project's own files counts (pyproject.toml, else"
        " requirements, setup.cfg, setup.py, Pipfile, conda environments). Where they only allow versions"
        " before 1.6, which have no autocast, loops are left alone ([AMP009](rules/AMP009.md)). What allows"
        " older versions and 1.10 or newer ones (`torch>=1.7`) is written for 1.10, and a note says so.",
        '"2.3"',
    ),
    "eval": Key(
        a_bool,
        "`true`, `false`",
        "`false`",
        "Whether evaluation under `torch.no_grad()` is put under autocast, too.",
        "true",
    ),
    "include": Key(
        texts,
        _PATTERNS,
        "all `*.py` and `*.ipynb`",
        "Which files of a directory to take. Patterns are those of .gitignore, relative to the project root.",
        '["*.py"]',
    ),
    "exclude": Key(
        texts,
        _PATTERNS,
        "what git ignores, virtual environments, build folders",
        "What to leave out of a directory, in addition to the default. A pattern that begins with `!` takes a"
        " file or folder back in. A file that is named on the command line is taken all the same.",
        '["third_party/"]',
    ),
    "force-exclude": Key(
        texts,
        _PATTERNS,
        "nothing",
        "What to leave out even where it is named on the command line, as pre-commit does.",
        '["generated_*.py"]',
    ),
    "lint": Key(
        lambda table: table,  # it has keys and checks of its own
        "a table",
        "the defaults of its keys",
        "The settings of `amp-migrate lint`, see below.",
        "{}",
    ),
}
"""The keys of ``[tool.amp-migrate]``."""


def _validate(table: object, file: Path | None) -> dict[str, Any]:
    values = _checked(table, KEYS, TABLE, file)
    if "lint" in values:
        values["lint"] = _checked(values["lint"], LINT_KEYS, f"{TABLE}.lint", file)
    return values


def _checked(
    table: object,
    keys: Mapping[str, Key],
    name: str,
    file: Path | None,
) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: [tool.{name}] must be a table")
    values = {}
    for key, value in table.items():
        known = keys.get(key)
        if known is None:
            # Imported here: most configurations are in order.
            import difflib

            close = difflib.get_close_matches(key.replace("_", "-"), keys, n=1)
            hint = (
                f"; did you mean {close[0]!r}?"
                if close
                else f" (known: {', '.join(keys)})"
            )
            raise ConfigError(f"{file}: [tool.{name}] has an unknown key {key!r}{hint}")
        try:
            values[key] = known.check(value)
        except ValueError as error:
            raise ConfigError(f"{file}: [tool.{name}] {key}: {error}") from None
    return values
