"""The engine's heart: prefix cache, KV memory, model and attention. Imports nothing above itself."""
