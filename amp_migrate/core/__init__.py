"""What every room speaks of: places, findings, options, results; and the bounds of a run."""
