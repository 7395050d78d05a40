"""What `rules/` says: codes and their words, layers, GPUs."""
