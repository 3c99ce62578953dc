"""The drift watch, deployed with a schedule and invoked by hand: it finds what was planted, and may not write."""

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import closing

import boto3
import pytest

from tallyctl import local
from tallyctl.signing import Api
from tallyctl.stack import resource
from tallystream.keys import post_key

pytestmark = pytest.mark.e2e
SCHEDULE = "rate(1 day)"
COUNTED_WITHIN_S = 60
ANY_STREAM = {
    "Effect": "Allow",
    "Action": ["dynamodb:DescribeStream", "dynamodb:GetShardIterator", "dynamodb:GetRecords"],
    "Resource": "*",
}


@pytest.fixture(scope="module")
def watched(port) -> Iterator[local.Local]:
    """A stack with a drift watch."""
    found = local.up(port, "e2e-drift-watch", {"CountingPath": "stream", "AuditSchedule": SCHEDULE})
    # The role may read the one stream. MiniStack does not see which stream a request names, and so refuses it to
    # whoever may not read all of them (`dynamodb_resource_arns` in its core/iam_actions.py looks at TableName alone).
    found.place.session.client("iam").put_role_policy(
        RoleName=resource(found.place, found.stack, "DriftWatchRole"),
        PolicyName="read-any-stream",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [ANY_STREAM]}),
    )
    return found


@pytest.fixture(scope="module")
def table(watched):
    """A client of the stack's table."""
    return watched.place.session.client("dynamodb")


def items(watched, table):
    """All that is in the table, by key."""
    pages = table.get_paginator("scan").paginate(TableName=watched.stack.table_name, ConsistentRead=True)
    return {(item["PK"]["S"], item["SK"]["S"]): item for page in pages for item in page["Items"]}


def counted(watched, table, post_id, tally):
    """Wait until a post has its tally."""
    deadline = time.monotonic() + COUNTED_WITHIN_S
    key = tuple(post_key(post_id).values())
    while items(watched, table)[key]["likeTally"] != {"N": str(tally)}:
        assert time.monotonic() < deadline, f"{post_id} was not counted within {COUNTED_WITHIN_S} s"
        time.sleep(0.2)


def test_the_watch_finds_a_planted_drift_and_writes_nothing(watched, table):
    """Three posts with likes, of which one has a tally that somebody has changed: that one is named, by how much."""
    posts = [f"post-{uuid.uuid4().hex[:8]}" for _ in range(3)]
    with closing(Api(watched.place, watched.stack, connections=1)) as api:
        for post_id in posts:
            api.call("POST", "posts", body={"postId": post_id, "authorId": "a1", "body": "text"})
            for user in ("u1", "u2", "u3"):
                assert api.call("PUT", "posts", post_id, "likes", user).status_code == 201
    for post_id in posts:
        counted(watched, table, post_id, 3)
    key = {name: {"S": value} for name, value in post_key(posts[1]).items()}
    table.update_item(
        TableName=watched.stack.table_name,
        Key=key,
        UpdateExpression="ADD likeTally :d",
        ExpressionAttributeValues={":d": {"N": "-2"}},
    )
    before = items(watched, table)

    functions = watched.place.session.client("lambda")
    name = resource(watched.place, watched.stack, "DriftWatchFunction")
    answer = functions.invoke(FunctionName=name, Payload=b"{}")
    figures = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, figures

    expected = {"parents": 3, "children": 9, "audited": 3, "drifting": 1, "drift": 2, "unjudged": 0, "orphans": 0}
    assert {field: figures[field] for field in expected} == expected
    assert items(watched, table) == before
    group = functions.get_function_configuration(FunctionName=name)["LoggingConfig"]["LogGroup"]
    logs = watched.place.session.client("logs").filter_log_events(logGroupName=group, filterPattern='"tally drifts"')
    (finding,) = [json.loads(event["message"]) for event in logs["events"] if '"tally drifts"' in event["message"]]
    assert finding["parent"] == list(post_key(posts[1]).values())
    assert (finding["tally"], finding["truth"], finding["drift"]) == (1, 3, -2)


def test_the_schedule_is_deployed_and_has_the_watch_as_its_target(watched):
    """What the parameter says, word for word."""
    events = watched.place.session.client("events")
    rule = events.describe_rule(Name=resource(watched.place, watched.stack, "DriftWatchSchedule"))
    assert (rule["ScheduleExpression"], rule["State"]) == (SCHEDULE, "ENABLED")
    (target,) = events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
    assert target["Arn"].endswith(f":{resource(watched.place, watched.stack, 'DriftWatchFunction')}")


def test_the_rights_of_the_watch_do_not_let_it_write(watched):
    """They are enough for its work, as the first test shows; the same role is refused an update."""
    role = resource(watched.place, watched.stack, "DriftWatchRole")
    security = watched.place.session.client("sts")
    taken = security.assume_role(RoleArn=f"arn:aws:iam::000000000000:role/{role}", RoleSessionName="test")[
        "Credentials"
    ]
    session = boto3.Session(taken["AccessKeyId"], taken["SecretAccessKey"], taken["SessionToken"], "us-east-1")
    watch = session.client("dynamodb", endpoint_url=watched.place.endpoint_url)
    key = {name: {"S": value} for name, value in post_key("p1").items()}
    with pytest.raises(watch.exceptions.ClientError, match="AccessDenied"):
        watch.update_item(TableName=watched.stack.table_name, Key=key)
    assert "Item" not in watch.get_item(TableName=watched.stack.table_name, Key=key)


def test_the_dashboard_shows_the_watch(watched):
    """Its conditional parts make one JSON text with the others."""
    shown = watched.place.session.client("cloudwatch").get_dashboard(DashboardName=watched.stack.name)
    widgets = json.loads(shown["DashboardBody"])["widgets"]
    assert widgets[-1]["properties"]["title"] == "Drift watch"
    alarms = " ".join(widgets[0]["properties"]["alarms"])
    for name in ("TallyDriftAlarm", "DriftWatchBlindAlarm", "DriftWatchErrorsAlarm"):
        assert name in alarms
