"""What lint found, for people and for machines."""
