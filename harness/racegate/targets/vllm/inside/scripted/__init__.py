"""What the scripted model and its drafters say in a scenario, token by token."""
