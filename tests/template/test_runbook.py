"""The runbook says what to do for each alarm, and of no alarm that there is not."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALARM = re.compile(r"^\| `(\w+)` \| (.+) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def runbook() -> str:
    """The text of docs/runbook.md."""
    return (ROOT / "docs" / "runbook.md").read_text()


def test_each_alarm_of_the_template_has_its_line(template, runbook):
    """In the order of the template, so that neither list can grow without the other."""
    alarms = [name for name, r in template["Resources"].items() if r["Type"] == "AWS::CloudWatch::Alarm"]
    assert [name for name, _ in ALARM.findall(runbook)] == alarms


def test_no_heading_that_is_linked_to_is_missing(runbook):
    """A link to a section that was renamed leads nowhere."""
    headings = {heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", runbook, re.MULTILINE)}
    assert set(re.findall(r"\(#([\w-]+)\)", runbook)) <= headings


def test_the_times_are_those_of_the_mapping_and_of_lambda(deployed, runbook):
    """A record is given up at 6 hours, an invocation lasts 15 minutes, and a stream keeps its records for a day."""
    age_s = deployed()["StreamMapping"]["Properties"]["MaximumRecordAgeInSeconds"]
    assert age_s == 6 * 3600
    assert "6 hours and 15 minutes" in runbook
    assert "there are 18 hours" in runbook
