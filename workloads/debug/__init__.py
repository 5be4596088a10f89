"""What looking into a running server costs it."""
