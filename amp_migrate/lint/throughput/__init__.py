"""What keeps Tensor Cores idle in code that trains on a GPU; code that only runs on a CPU has no part in it."""
