"""Proof that a stop is real: a provider that records what happens to it, and what is asserted on that."""
