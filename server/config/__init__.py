"""How the server is configured: by flags, the environment and a file, in that order of strength."""
