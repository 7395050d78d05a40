"""What a program does: which object, in what order, with which value, of which size."""
