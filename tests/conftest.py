"""What concerns the whole suite: which tests share a worker, and what the simulation found."""

from pathlib import Path

# First of all: boto3's default session sends its requests to moto only if moto was imported when it was made, which
# the simulation does when it loads the handler.
import moto.core  # noqa: F401
import pytest

# Each of these folders has one emulator for all its tests, so that several workers would each start their own.
TOGETHER = {"e2e", "runtime"}
APART = {
    "test_audit": " of audits",
    "test_redrive": " of audits",
    "test_drift_watch": " of audits",
    "test_compare": " of the comparison",
    "test_readme": " of the README",
}
"""Of the e2e tests, those that share no stack with the others. Another worker may take them, with another emulator."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a folder that shares an emulator on one worker (`--dist loadgroup`)."""
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in TOGETHER:
            item.add_marker(pytest.mark.xdist_group(folder + APART.get(item.path.stem, "")))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the simulation recorded, so that the figures in the README have a source."""
    told = [pair for report in terminalreporter.getreports("passed") for pair in report.user_properties]
    schedules = sum(value for name, value in told if name == "schedules")
    audited = sum(value for name, value in told if name == "audited schedules")
    found = sorted(value for name, value in told if name == "planted bug found")
    if schedules:
        terminalreporter.section("simulation")
        terminalreporter.write_line(f"{schedules} schedules played, every tally exact")
    if audited:
        terminalreporter.write_line(f"{audited} schedules with audits played, every report and every repair exact")
    for line in found:
        terminalreporter.write_line(f"planted bug found: {line}")
