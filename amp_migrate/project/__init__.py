"""Linking: from the facts of files to scopes, calls and where values come from. No syntax trees."""

from amp_migrate.project.link import CallSite, Program, Ref

__all__ = ["CallSite", "Program", "Ref"]
