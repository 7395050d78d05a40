"""What keeps Tensor Cores idle in code that trains on a GPU."""
