"""The failures that a user can do something about."""


class TallyctlError(Exception):
    """An expected failure: its message is one line that says what is wrong and what to do; no traceback is shown."""


def check_within(option: str, value: float, least: float, most: float) -> None:
    """Raise TallyctlError, with what is allowed, if an option's number is out of its bounds or is no number."""
    if not least <= value <= most:  # the other way round, NaN would pass
        raise TallyctlError(f"--{option} cannot be {value:,}: give a number from {least:,} to {most:,.0f}")
