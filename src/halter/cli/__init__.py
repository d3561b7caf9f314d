"""The `halter` command."""
