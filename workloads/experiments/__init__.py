"""Small experiments that show what a prefix cache does, each one command with a picture."""
