"""What a gate says of many results: beside what is known, and in all."""
