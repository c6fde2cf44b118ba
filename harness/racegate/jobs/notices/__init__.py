"""What a campaign tells others while it runs. It knows campaigns; none of them knows it."""
