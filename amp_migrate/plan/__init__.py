"""Deciding: from a linked program to edits, and to reasons for what is left alone."""

from amp_migrate.plan.program import Planned, plan_program

__all__ = ["Planned", "plan_program"]
