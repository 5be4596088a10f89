"""Agents that are replayed over HTTP, and what was measured of them."""
