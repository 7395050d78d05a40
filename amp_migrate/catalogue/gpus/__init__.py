"""What GPUs make of the sizes of matrix products: profiles, alignment, tiles. Nothing here runs on one."""
