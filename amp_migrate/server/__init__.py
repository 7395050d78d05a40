"""The language server: what an editor asks while somebody types. Needs pygls, an extra."""
