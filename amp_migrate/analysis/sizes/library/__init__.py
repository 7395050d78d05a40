"""What functions and methods of Python and torch make of sizes."""
