"""Where scalers are made, how they get to where they are used, and what they do there."""
