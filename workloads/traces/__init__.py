"""Recorded workloads and how they are read."""
