"""Launches of interpreted kernels that are made again with the same bytes: what they wrote."""
