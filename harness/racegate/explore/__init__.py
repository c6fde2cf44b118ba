"""Search: which completions of a scenario's operations to try, and in what order."""
