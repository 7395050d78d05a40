"""Which matrix products and convolutions run, with their sizes and the lines they come from."""
