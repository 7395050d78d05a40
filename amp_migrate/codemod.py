"""The migration as a LibCST codemod command.

``python -m libcst.tool codemod -x amp_migrate.codemod.MigrateCommand FILE``
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.codemod import CodemodCommand, CodemodContext, SkipFile

from amp_migrate.api import migrate_source
from amp_migrate.core.options import DTYPES, Options
from amp_migrate.core.results import SourceError


class MigrateCommand(CodemodCommand):
    """Migrates the training loops of a file; loops left alone are told as warnings."""

    DESCRIPTION = "Rewrite PyTorch fp32 training loops for automatic mixed precision."

    @staticmethod
    def add_args(arg_parser: argparse.ArgumentParser) -> None:
        """The options of the codemod tool's command line."""
        arg_parser.add_argument("--dtype", choices=DTYPES, default=DTYPES[0])
        arg_parser.add_argument(
            "--eval", dest="evaluation", action="store_true", default=False
        )

    def __init__(self, context: CodemodContext, **kwargs: Any) -> None:
        super().__init__(context)
        self.options = Options(
            dtype=kwargs.get("dtype", DTYPES[0]),
            evaluation=bool(kwargs.get("evaluation", False)),
        )

    def transform_module_impl(self, tree: cst.Module) -> cst.Module:
        """The migrated tree; raises `SkipFile` where the text cannot be read."""
        path = self.context.filename or "<string>"
        root = self.context.metadata_manager
        try:
            result = migrate_source(
                tree.code,
                path=path,
                options=self.options,
                root=Path(root.root_path) if root is not None else None,
            )
        except SourceError as error:
            raise SkipFile(str(error)) from error
        for found in result.diagnostics:
            place = found.place
            self.warn(f"{place.path}:{place.line}: {found.code} {found.message}")
        return cst.parse_module(result.output) if result.changed else tree
