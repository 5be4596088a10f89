"""What can be wrong with a model somebody asks for."""

from __future__ import annotations


class ModelError(Exception):
    """A model cannot be found, fetched or loaded; the message says why and what to do."""
