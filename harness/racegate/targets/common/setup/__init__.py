"""What an installation tells before and while it goes on. It knows no engine."""
