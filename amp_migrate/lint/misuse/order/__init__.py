"""The ways through a program under AMP, and in what order its scalers are used on them."""
