"""The C twin of the order of events, and what compiles C."""
