"""Targets that are not ours, as jobs have them: opened, asked, and searched by a campaign."""
