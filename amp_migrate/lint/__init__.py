"""What is wrong or slow in code that trains: sizes, misuse of AMP, and what keeps Tensor Cores idle."""
