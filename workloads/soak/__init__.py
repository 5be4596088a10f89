"""Random clients at more than a server can take, for as long as is asked: what it loses and leaks,
and whether it answers as when it is calm."""
