"""What the whole suite says at its end: how many schedules were played, and which planted bugs were found."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the simulation recorded, so that the figures in the README have a source."""
    told = [pair for report in terminalreporter.getreports("passed") for pair in report.user_properties]
    schedules = sum(value for name, value in told if name == "schedules")
    found = sorted(value for name, value in told if name == "planted bug found")
    if schedules:
        terminalreporter.section("simulation")
        terminalreporter.write_line(f"{schedules} schedules played, every tally exact")
    for line in found:
        terminalreporter.write_line(f"planted bug found: {line}")
