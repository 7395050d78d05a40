"""A run: what is configured, the jobs, and the processes that do them."""
