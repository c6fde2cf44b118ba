"""Oracles: each judges one run from its trace and observations, and knows nothing of the others."""
