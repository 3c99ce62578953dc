"""The comparison of the ways to keep a count."""
