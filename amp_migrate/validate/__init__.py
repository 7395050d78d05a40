"""Proving a rewrite by running it: short smoke trainings of the original and the rewritten script.

`harness` runs in the user's interpreter, the rest here. Data flows one way: a script and its rewrite
give orders, each order a record, the records a verdict.
"""
