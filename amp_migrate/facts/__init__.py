"""Reading: the text of one file to plain picklable facts, without looking at any other file."""

from amp_migrate.facts.reader import read_module

__all__ = ["read_module"]
