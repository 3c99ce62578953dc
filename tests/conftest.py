"""What concerns the whole suite: which tests share a worker, and what the simulation found."""

import os

# First of all: boto3's default session sends its requests to moto only if moto was imported when it was made, which
# the simulation does when it loads the handler.
import moto.core  # noqa: F401
import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Each of these folders has one emulator for all its tests, so that several workers would each start their own.
TOGETHER = {"e2e", "runtime"}
APART = {
    "test_audit.py": "e2e of audits",
    "test_redrive.py": "e2e of audits",
    "test_drift_watch.py": "e2e of audits",
    "test_compare.py": "e2e of the comparison",
    "test_readme.py": "e2e of the README",
}
"""Of the e2e tests, those that share no stack with the others. Another worker may take them, with another emulator."""


class Together(LoadScopeScheduling):
    """Keeps the tests that share an emulator on one worker; all others go to whichever worker is free.

    `--dist loadgroup` is made for this, but groups nothing with pytest 9.2, and says nothing:
    https://github.com/pytest-dev/pytest-xdist/issues/1386.
    """

    def _split_scope(self, nodeid: str) -> str:
        _, folder, *below = nodeid.partition("::")[0].split("/")
        return APART.get(below[-1], folder) if folder in TOGETHER else nodeid


@pytest.hookimpl(optionalhook=True)  # without the plugin there is no such hook, and one worker
def pytest_xdist_auto_num_workers() -> int:
    """Have one worker more than cores, since one of them mostly waits for an emulator."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Together:
    """Distribute the tests over the workers."""
    return Together(config, log)


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
