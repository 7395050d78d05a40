"""Files to one linked program: the facts of each, names, classes, and who calls whom."""
