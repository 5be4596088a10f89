"""What the HTTP side of a server costs by itself, measured over HTTP."""
