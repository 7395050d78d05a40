"""Sizes of layers that are not aligned in memory, graded by what that costs."""
