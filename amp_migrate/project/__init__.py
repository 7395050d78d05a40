"""Linking: from the facts of files to scopes, calls and where values come from. No syntax trees."""
