"""What is done for a program at every operator, in C: compiled on first use, kept, loaded once."""
