"""The engine's heart: prefix cache, KV memory, attention and model. Imports nothing above."""
