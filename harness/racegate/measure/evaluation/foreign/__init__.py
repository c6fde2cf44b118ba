"""Mutants of engines that are not ours, judged by their gates beside the release."""
