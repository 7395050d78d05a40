"""From a linked program to edits, and to reasons for what is left alone."""
