"""Designs that are right somewhere, or everywhere: kept beside the catalogue of faults."""
