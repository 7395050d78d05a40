"""What every job does with one program: it is given files, tells of places, and rewrites texts."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from amp_migrate.catalogue.rules import refusal
from amp_migrate.core.options import Options
from amp_migrate.core.results import Diagnostic, Place, Result, SourceError
from amp_migrate.edit.rewritten import WrongError, laid_out
from amp_migrate.program.display_names import Telling
from amp_migrate.program.ir import ModuleFacts
from amp_migrate.program.programs import ProgramSources
from amp_migrate.program.reader import read_module

if TYPE_CHECKING:
    from black import Mode


class ProgramWork(ABC):
    """A job on the files of one program that are ``given``; the others are only read."""

    def __init__(
        self,
        sources: ProgramSources,
        options: Options,
        given: Collection[str],
        shown: Mapping[str, str],
    ) -> None:
        """``shown``: what messages call a file, where that is not its path."""
        self.sources = sources
        self.options = options
        self.given = [file for file in sources.texts if file in given]
        self.shown = shown
        self.telling = Telling(sources, shown)
        self.errors: dict[str, SourceError] = {}
        """Files that cannot be read."""
        self.read: Callable[[str, str], ModuleFacts] = read_module
        """What makes facts of a text and its file; raises `SourceError`."""

    @classmethod
    def work(
        cls,
        sources: ProgramSources,
        options: Options,
        *,
        given: Collection[str],
        shown: Mapping[str, str],
    ) -> dict[str, Result | SourceError]:
        """Do the job: see `amp_migrate.run.jobs.Work`."""
        return cls(sources, options, given, shown).run()

    @abstractmethod
    def run(self) -> dict[str, Result | SourceError]:
        """The job itself."""

    def rewritten(self, file: str, rewrite: Callable[[str, Mode], str]) -> str:
        """The new text of a file, in the layout of the old; raises `WrongError`."""
        # Imported only where something is written: most files of a run are only read.
        from libcst import ParserSyntaxError

        from amp_migrate.edit.formatting import mode_of
        from amp_migrate.edit.mismatch import MismatchError

        text, mode = self.sources.texts[file], mode_of(file, self.sources)
        try:
            # LibCST loses some of the blank lines at the end of a file, also between comments.
            end = _last_line(text)
            output = rewrite(text[:end], mode) + text[end:]
        except MismatchError as error:
            raise WrongError(file, str(error)) from error
        except ParserSyntaxError as error:
            # Python can: tabs behind spaces.
            message = "LibCST cannot read how its lines are indented"
            raise WrongError(file, message) from error
        return laid_out(file, text, output, self.sources.documents.get(file), mode)

    def diagnostic(
        self,
        code: str,
        place: Place,
        message: str,
        blame: Place | None,
        by_hand: tuple[str, ...] = (),
    ) -> Diagnostic:
        """Why something stays; ``blame``: what stands in its way, perhaps the place itself."""
        if blame is not None and (blame.path, blame.line) == (place.path, place.line):
            blame = None
        line = (blame or place).text
        by_hand = by_hand or refusal(code).by_hand_for(
            message, line if _is_statement(line) else ""
        )
        return Diagnostic(code, place, message, blame, by_hand)


def _last_line(text: str) -> int:
    """Where the last line ends that is neither blank nor surely only a comment."""
    lines = text.splitlines(keepends=True)
    while lines and not lines[-1].partition("#")[0].strip():
        if "'" in lines[-1] or '"' in lines[-1]:
            # Perhaps the end of a text.
            break
        lines.pop()
        if lines and lines[-1].rstrip("\r\n").endswith("\\"):
            # The statement goes on in the line that is blank.
            return len(text)
    return sum(map(len, lines))


def _is_statement(line: str) -> bool:
    """Whether a line of code can stand by itself."""
    try:
        ast.parse(line)
    except (SyntaxError, ValueError):
        return False
    return True
