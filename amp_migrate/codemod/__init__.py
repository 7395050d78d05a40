"""Writing: edits to new text, with LibCST."""
