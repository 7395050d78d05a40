"""apex.amp to torch.amp: what is left without apex is plain fp32 code, and that is migrated.

A program goes wholly or not at all. The condition under which it was under apex becomes the switch
of its scaler.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from amp_migrate.analysis.paths.loops import Blocked, Refusal, TrainingLoop
from amp_migrate.core.closure import reached
from amp_migrate.core.options import Options
from amp_migrate.core.results import Outcome, Result, SourceError
from amp_migrate.edit.names.uses import Position, Uses
from amp_migrate.edit.rewritten import WrongError, laid_out
from amp_migrate.migrate.program import Migration
from amp_migrate.modernize.apex.forms import Initialize, Removed, UnknownFormError
from amp_migrate.modernize.apex.names import ApexNames
from amp_migrate.modernize.apex.removal import without_apex
from amp_migrate.modernize.apex.switch import Switch, agree
from amp_migrate.program import ir
from amp_migrate.program.imports import scan_imports
from amp_migrate.program.layout import Ambiguous, Located
from amp_migrate.program.programs import ProgramSources
from amp_migrate.sources.document import open_document

CODE = "AMP053"
_OTHER_DEVICE = re.compile(r"\b(?:npu|torch_npu|torch_xla|xpu)\b")
_STAR = re.compile(r"^[ \t]*from\s.*\bimport\s+\*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Stays:
    """Why a program stays under apex."""

    code: str
    message: str
    file: str
    at: Position


def apart(sources: ProgramSources, uses: Mapping[str, Uses]) -> list[dict[str, Uses]]:
    """The files that use apex, those together of which one leads to the other by its imports."""
    reached = {file: _reached(file, sources) for file in uses}
    groups: list[dict[str, Uses]] = []
    for file, found in uses.items():
        joined = {file: found}
        separate = []
        for group in groups:
            if any(other in reached[file] or file in reached[other] for other in group):
                joined |= group
            else:
                separate.append(group)
        groups = [*separate, joined]
    return groups


def _reached(file: str, sources: ProgramSources) -> set[str]:
    """The files that a file imports, directly or through others."""

    def imported(current: str) -> Iterator[str]:
        for target in scan_imports(sources.texts.get(current, "")).targets:
            found = sources.layout and sources.layout.locate(current, target)
            several = found.files if isinstance(found, Ambiguous) else ()
            yield from (found.file,) if isinstance(found, Located) else several

    return {*reached((file,), imported)}


class Apex:
    """The use of apex.amp in some files of a program."""

    def __init__(
        self,
        sources: ProgramSources,
        uses: Mapping[str, Uses],
        options: Options,
        given: Collection[str],
        shown: Mapping[str, str],
    ) -> None:
        """``uses``: the facts of the files that mention apex."""
        self.sources = sources
        self.options = replace(options, dtype="float16")
        self.given = frozenset(given)
        self.shown = shown
        self.names = {
            file: found
            for file, facts in uses.items()
            if (found := ApexNames(facts)).mentions
            or found.imports
            or found.unclear
            or found.unknown
        }
        self.removed: dict[str, Removed] = {}

    @property
    def is_used(self) -> bool:
        """Whether the program does more than import apex.amp."""
        return any(found.mentions or found.unknown for found in self.names.values())

    def places(self) -> dict[str, Position]:
        """Where each file begins to use it."""
        return {
            file: min([*found.mentions, *found.imports, *found.unknown])
            for file, found in self.names.items()
            if found.mentions or found.imports or found.unknown
        }

    def run(self) -> dict[str, str] | Stays:
        """The new texts of the files that change, or why none does."""
        missing = sorted(self.names.keys() - self.given)
        if missing:
            file = missing[0]
            message = "apex.amp is used in files that are not among the given ones"
            return Stays("AMP017", message, file, self.places().get(file, (1, 0)))
        for file, names in self.names.items():
            if _OTHER_DEVICE.search(self.sources.texts[file]):
                at = self.places().get(file, (1, 0))
                return Stays(
                    CODE, "it is written for another device than CUDA", file, at
                )
            for at, message in names.unknown.items():
                return Stays(CODE, message, file, at)
            try:
                self.removed[file] = without_apex(self.sources.texts[file], names)
            except UnknownFormError as unknown:
                return Stays(CODE, str(unknown), file, unknown.at)
        importer = self._importer()
        if importer is not None:
            file = min(self.names)
            message = f"amp is imported from here by {self.shown[importer]}"
            return Stays(CODE, message, file, self.places().get(file, (1, 0)))
        disagreement = agree(self.removed)
        if disagreement is not None:
            message, file, where = disagreement
            return Stays(CODE, message, file, where or self.places().get(file, (1, 0)))
        try:
            plain = self._plain()
            if all(one.level.off for one in self._initializes):
                return plain.texts_of(self.names)
            return self._migrated(plain.sources)
        except _StaysError as stays:
            return stays.why
        except WrongError as wrong:
            return Stays("AMP090", wrong.what, wrong.file, (1, 0))

    def _importer(self) -> str | None:
        """A file that takes apex from one of those that import it."""
        layout = self.sources.layout
        for other, text in self.sources.texts.items():
            if layout is None or not re.search(r"\b(?:amp|apex)\b", text):
                continue
            for target in scan_imports(text).targets:
                found = layout.locate(other, target)
                if isinstance(found, Located) and found.file in self.names:
                    whole = not found.rest and _STAR.search(text)
                    if whole or found.rest[:1] in (("amp",), ("apex",)):
                        return other
        return None

    @cached_property
    def _initializes(self) -> list[Initialize]:
        return [one for r in self.removed.values() for one in r.initializes]

    def _plain(self) -> _Plain:
        """The program without apex, checked."""
        from amp_migrate.edit.formatting import mode_of
        from amp_migrate.modernize.apex.verify import difference

        texts = dict(self.sources.texts)
        documents = dict(self.sources.documents)
        for file, removed in self.removed.items():
            before, document = texts[file], documents.get(file)
            mode = mode_of(file, self.sources)
            texts[file] = laid_out(file, before, removed.text, document, mode)
            wrong = difference(before, texts[file])
            if wrong is not None:
                raise WrongError(file, wrong)
            if document is not None:
                # Lines and cells are from now on those of the file as it would be in between.
                data = document.encode(texts[file])
                documents[file] = open_document(document.path, data)
        return _Plain(replace(self.sources, texts=texts, documents=documents))

    def _migrated(self, sources: ProgramSources) -> dict[str, str]:
        scaled = {
            ir.global_name(file, one.function)
            for file, removed in self.removed.items()
            for one in removed.backwards
        }
        switches = {
            ir.global_name(file, one.function): Switch(
                one, sources.texts[file], self.sources.texts
            )
            for file, removed in self.removed.items()
            for one in removed.initializes
        }

        def told(function: str, birth: ir.Stmt) -> str | None:
            found = switches.get(function)
            if found is None:
                if any(switch.conditions for switch in switches.values()):
                    message = "what switches apex.amp on is not seen where the optimizer is made"
                    raise Blocked(Refusal(CODE, message, birth.line))
                return None
            code = found.expression(birth.line)
            if code == "":
                message = "what switches apex.amp on is set after the optimizer is made"
                raise Blocked(Refusal(CODE, message, birth.line))
            return code

        def wanted(loop: TrainingLoop) -> bool:
            driven = loop.refusal is not None and loop.refusal.code == "AMP003"
            return loop.function in scaled and not driven

        migration = Migration(
            sources, self.options, self.given, self.shown, told=told, wanted=wanted
        )
        results = migration.run()
        outputs = {file: sources.texts[file] for file in self.names}
        migrated: set[str] = set()
        for file, result in results.items():
            if isinstance(result, SourceError):
                raise _StaysError(Stays(CODE, str(result), file, (1, 0)))
            for loop in result.loops:
                key = ir.global_name(file, loop.function)
                if key not in scaled:
                    continue
                if loop.outcome is not Outcome.MIGRATED:
                    raise _StaysError(
                        self._of_loop(file, result, loop.place.line, loop)
                    )
                migrated.add(key)
            outputs[file] = result.output
        for key in sorted(scaled - migrated):
            message = "no training loop is seen without apex.amp"
            raise _StaysError(Stays(CODE, message, ir.file_of(key), (1, 0)))
        return outputs

    def _of_loop(self, file: str, result: Result, line: int, loop: object) -> Stays:
        from amp_migrate.sources.lines import line_before

        found = getattr(loop, "diagnostic", None)
        why = "it is marked off" if found is None else found.message
        blame = line
        if found is not None and found.blocker is not None:
            if found.blocker.path == found.place.path:
                blame = found.blocker.line
        before = self.sources.texts[file].split("\n")
        at = line_before(before, result.source.split("\n"), blame)
        code = "AMP053" if found is None else found.code
        if code == CODE:
            return Stays(CODE, why, file, (at, 0))
        return Stays(CODE, f"without apex.amp, {_lower(why)} ({code})", file, (at, 0))


class _StaysError(Exception):
    def __init__(self, why: Stays) -> None:
        super().__init__(why.message)
        self.why = why


@dataclass(frozen=True, slots=True)
class _Plain:
    sources: ProgramSources

    def texts_of(self, files: Collection[str]) -> dict[str, str]:
        return {file: self.sources.texts[file] for file in files}


def _lower(message: str) -> str:
    return (
        message if re.match(r"[A-Z]{2}", message) else message[:1].lower() + message[1:]
    )
