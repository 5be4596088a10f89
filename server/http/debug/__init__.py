"""The debug page and the API behind it."""
