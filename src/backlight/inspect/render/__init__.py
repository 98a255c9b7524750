"""A record as text."""
