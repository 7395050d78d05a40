"""What a script writes goes to a scratch folder, and the script sees it where it wrote it."""
