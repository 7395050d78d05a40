"""Files on disk and the text in them: finding, reading, ignoring and writing back."""
