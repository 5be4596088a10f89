"""Anthropic's API: messages, and how many tokens they are."""
