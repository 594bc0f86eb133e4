"""Runs for people to look at."""
