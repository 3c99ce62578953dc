"""The failures that a user can do something about."""


class TallyctlError(Exception):
    """An expected failure: its message is one line that says what is wrong and what to do; no traceback is shown."""
