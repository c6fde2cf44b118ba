"""Tiers of memory: connectors that keep blocks in the host's, and whose content a page has."""
