"""Other frameworks on the same task, in an environment of their own: `make bench-peers`."""
