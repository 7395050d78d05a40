"""What is known of names of torch and of frameworks."""
