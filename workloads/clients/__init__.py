"""Clients that others wrote, run against our server."""
