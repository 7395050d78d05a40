"""Edits that are addressed to a name by its position."""
