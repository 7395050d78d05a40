"""Writes the pages about the rules: ``python -m amp_migrate.report.rules_pages FOLDER``."""

from __future__ import annotations

import sys
from pathlib import Path

from amp_migrate.catalogue import rules
from amp_migrate.report.rules import index, page


def pages() -> dict[str, str]:
    """All pages, by the names of their files."""
    everything = rules()
    return {"README.md": index(everything)} | {
        f"{rule.code}.md": page(rule) for rule in everything
    }


def main(folder: str) -> None:
    """Write all pages into a folder, and take out those of rules that are gone."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for file in target.glob("*.md"):
        if file.name not in wanted:
            file.unlink()
    for name, text in wanted.items():
        (target / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
