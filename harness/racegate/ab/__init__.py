"""A/B: thousands of generations with natural timing, engines with and without a fault."""
