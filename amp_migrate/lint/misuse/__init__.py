"""Misuse of AMP in code that already uses it: the protocol of the scaler, and where autocast stands."""
