"""A line of text to token ids and back."""
