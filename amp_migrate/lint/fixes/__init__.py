"""How findings are mended in the source: what a check asks for (`edits`), and who does it.

A check gives a finding a `Fix` whose edits are of `edits.Edit`. `mending` applies those that the user
wants, looks again, and keeps only what made its finding go away.
"""
