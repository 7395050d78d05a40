"""What is known of a size, where it came from, and where it is kept."""
