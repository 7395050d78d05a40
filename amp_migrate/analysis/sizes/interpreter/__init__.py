"""What statements and expressions do to what is known of sizes."""
