"""Writes what is told of the rules: ``python -m amp_migrate.report.rules_pages docs/rules README.md``."""

from __future__ import annotations

import sys
from pathlib import Path

from amp_migrate.catalogue.rules import lint_rules, rules
from amp_migrate.report.rules import index, page, table

BEGIN = "<!-- lint rules, written by amp_migrate.report.rules_pages -->\n"
END = "<!-- end of lint rules -->\n"


def pages() -> dict[str, str]:
    """All pages, by the names of their files."""
    everything = rules()
    return {"README.md": index(everything)} | {
        f"{rule.code}.md": page(rule) for rule in everything
    }


def with_table(text: str) -> str:
    """A page with the table of lint rules between its two marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "".join([before, BEGIN, "\n", table(lint_rules()), "\n", END, after])


def main(folder: str, readme: str) -> None:
    """Write all pages into a folder, take out those of rules that are gone, and renew the README's table."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for file in target.glob("*.md"):
        if file.name not in wanted:
            file.unlink()
    for name, text in wanted.items():
        (target / name).write_text(text, encoding="utf-8")
    file = Path(readme)
    file.write_text(with_table(file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
