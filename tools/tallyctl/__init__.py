"""The command line of Tallystream."""
