"""Building the user's model, where they ask for it, to learn the sizes of its layers for certain.

The one part of lint that runs the user's code: its constructors, in their interpreter, on the meta device.
"""
