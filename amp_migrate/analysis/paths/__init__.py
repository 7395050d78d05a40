"""In what order: training loops, the ways through them, and the state of gradients on each."""
