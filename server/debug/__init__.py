"""Looking into a running engine: its tree, its requests and why a prompt is served as it is."""
