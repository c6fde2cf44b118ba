"""Operators that copy, of engines and of users: a few lines of Python say what each moves."""
