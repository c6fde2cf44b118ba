"""What is printed of targets that are not ours: adapters, releases and programs."""
