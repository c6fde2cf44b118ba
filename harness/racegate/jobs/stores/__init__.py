"""Stores: what campaigns have found and how far they are, in one place for many of them."""
