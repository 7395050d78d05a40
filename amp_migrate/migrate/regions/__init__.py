"""Where autocast begins and ends."""
