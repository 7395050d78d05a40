"""The protocol monitor: watches each backward, clip, step and update of a script that uses AMP."""
