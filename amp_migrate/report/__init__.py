"""Results in the words and forms that people and other programs read."""
