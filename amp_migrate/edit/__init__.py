"""One vocabulary of edits, who applies them, and the check before anything is written."""
