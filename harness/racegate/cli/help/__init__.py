"""What a user is shown of a command before it runs: an example in its help, and names that a shell
offers.
"""
