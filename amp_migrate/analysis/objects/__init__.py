"""Which object is it: optimizers, models, devices, and where they go."""
