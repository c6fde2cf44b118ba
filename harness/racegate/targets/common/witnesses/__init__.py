"""Witnesses of releases: what they hold, their replay, and their harm in other scenarios."""
