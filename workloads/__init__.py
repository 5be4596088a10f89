"""Workloads for the server: agents, recorded traces, and what they measure over HTTP."""
