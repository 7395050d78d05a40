"""What runs inside the user's interpreter: the standard library and torch, nothing else.

The package is packed into one file, a zip archive, in which it is called `_amp_smoke`; so its imports
are relative. It runs under Python 3.8 and torch 2.0, and later: the oldest that a user may have. What
it sees goes into a log of JSON lines, written at once, so that it is there whatever happens.
"""
