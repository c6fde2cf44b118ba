"""The reference engine: the definition, in NumPy, one request after another."""
