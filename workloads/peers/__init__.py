"""Agents over HTTP against ours and other engines' servers, in turn on one machine."""
