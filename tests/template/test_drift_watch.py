"""The drift watch: nothing of it is there unless a schedule is given."""

import json
import re

import pytest

ON = {"AuditSchedule": "rate(1 hour)"}
WATCH = {
    "DriftWatchLogs",
    "DriftWatchRole",
    "DriftWatchFunction",
    "DriftWatchSchedule",
    "ScheduleMayInvoke",
    "TallyDriftAlarm",
    "DriftWatchBlindAlarm",
    "DriftWatchErrorsAlarm",
}


def test_the_watch_is_off_by_default(template, deployed):
    """Nobody pays for what they have not asked for."""
    assert template["Parameters"]["AuditSchedule"]["Default"] == ""
    assert not WATCH & deployed().keys()


@pytest.mark.parametrize("counting_path", ["stream", "transaction"])
def test_a_schedule_adds_the_watch_and_changes_nothing_else(deployed, counting_path):
    """Every other resource is the same with and without it; only the dashboard shows more."""
    off, on = deployed(CountingPath=counting_path), deployed(CountingPath=counting_path, **ON)
    assert on.keys() - off.keys() == WATCH
    assert {name: on[name] for name in off if name != "Dashboard"} == {
        name: resource for name, resource in off.items() if name != "Dashboard"
    }


def test_without_the_watch_the_dashboard_is_as_it_was(dashboard):
    """The watch's row comes after all others, and its alarms after theirs."""
    off, on = dashboard(), dashboard(**ON)
    assert off[1:] == on[1:-1]
    before, after = (widgets[0]["properties"]["alarms"] for widgets in (off, on))
    assert after[: len(before)] == before
    assert on[-1]["properties"]["title"] == "Drift watch"


def test_nothing_that_is_always_there_refers_to_the_watch(template):
    """CloudFormation refuses a reference to a resource whose condition is false, unless an If guards it."""
    conditional = {name for name, r in template["Resources"].items() if r.get("Condition") == "WatchesDrift"}
    assert conditional == WATCH
    # The dashboard's references are inside of Ifs: the tests above resolve them.
    always = {name: r for name, r in template["Resources"].items() if name not in {*WATCH, "Dashboard"}}
    text = json.dumps([always, template["Outputs"]])
    assert not [name for name in WATCH if name in text]


def test_the_schedule_invokes_the_watch_and_nobody_else_may(deployed):
    """The rule has the one target, and the permission is for this rule alone."""
    resources = deployed(**ON)
    rule = resources["DriftWatchSchedule"]["Properties"]
    assert (rule["ScheduleExpression"], rule["State"]) == ("rate(1 hour)", "ENABLED")
    assert [target["Arn"] for target in rule["Targets"]] == [{"Fn::GetAtt": ["DriftWatchFunction", "Arn"]}]
    assert resources["ScheduleMayInvoke"]["Properties"] == {
        "FunctionName": {"Ref": "DriftWatchFunction"},
        "Action": "lambda:InvokeFunction",
        "Principal": "events.amazonaws.com",
        "SourceArn": {"Fn::GetAtt": ["DriftWatchSchedule", "Arn"]},
    }


@pytest.mark.parametrize("counting_path", ["stream", "transaction"])
def test_the_watch_knows_what_the_mapping_gives_the_aggregator(deployed, counting_path):
    """Until which age, and whether with its shard: else it would wait for a change that nobody will ever count."""
    resources = deployed(CountingPath=counting_path, **ON)
    variables = resources["DriftWatchFunction"]["Properties"]["Environment"]["Variables"]
    age = resources["StreamMapping"]["Properties"]["MaximumRecordAgeInSeconds"]
    assert variables["RECORD_AGE_SECONDS"] == {"Fn::Sub": ["${Age}", {"Age": age}]}
    assert variables["WINDOW_SECONDS"] == {"Fn::Sub": "${WindowSeconds}"}
    assert variables["COUNTING_PATH"] == counting_path
    assert variables["TABLE_NAME"] == {"Ref": "SocialTable"}
    assert variables["POWERTOOLS_SERVICE_NAME"] == {"Fn::Sub": "${AWS::StackName}-drift-watch"}


def test_a_run_that_fails_is_not_repeated(deployed):
    """Lambda tries an asynchronous invocation twice more, and each would read the whole stream."""
    properties = deployed(**ON)["DriftWatchFunction"]["Properties"]
    assert properties["EventInvokeConfig"] == {"MaximumRetryAttempts": 0}
    assert properties["Timeout"] == 900


@pytest.mark.parametrize(
    ("schedule", "taken"),
    [
        ("", True),
        ("rate(1 minute)", True),
        ("rate(1 hour)", True),
        ("rate(1 day)", True),
        ("rate(12 hours)", True),
        ("rate(2 days)", True),
        ("cron(0 3 * * ? *)", True),
        ("cron(0/15 8-17 ? * MON-FRI *)", True),
        ("rate(1 hours)", False),
        ("rate(2 hour)", False),
        ("rate(0 hours)", False),
        ("rate(1hour)", False),
        ("cron(0 3 * *)", False),
        ("0 3 * * ? *", False),
        ("hourly", False),
        ("at(2026-11-30T12:00:00)", False),
    ],
)
def test_a_schedule_that_eventbridge_would_refuse_is_refused_first(template, schedule, taken):
    """One takes a singular unit, and cron has six fields."""
    assert bool(re.fullmatch(template["Parameters"]["AuditSchedule"]["AllowedPattern"], schedule)) is taken
