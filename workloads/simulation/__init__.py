"""The scheduler and the cache that serve, with simulated steps."""
