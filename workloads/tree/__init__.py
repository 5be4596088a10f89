"""What the prefix cache's operations cost."""
