"""The built drift watch audits a table in AWS's own Lambda runtime, and leaves it as it was."""

import json

import pytest

from tallyctl import bundle
from tallyctl.rie import Function, runtime

pytestmark = [pytest.mark.runtime, pytest.mark.usefixtures("built")]
TABLE = "Watched"


@pytest.fixture
def table(aws):
    """A table with a stream; its posts right and wrong have two likes each, and only the tally of right says so."""
    aws.dynamodb.create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
        AttributeDefinitions=[
            {"AttributeName": "PK", "AttributeType": "S"},
            {"AttributeName": "SK", "AttributeType": "S"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    for post, tally in (("right", "2"), ("wrong", "5")):
        key = {"PK": {"S": f"POST#{post}"}}
        items = [{**key, "SK": {"S": f"LIKE#USER#u{user}"}} for user in (1, 2)]
        for item in [*items, {**key, "SK": {"S": "META"}, "likeTally": {"N": tally}}]:
            aws.dynamodb.put_item(TableName=TABLE, Item=item)
    # Only now, so that the stream knows nothing of the likes: as a day later.
    enabled = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
    aws.dynamodb.update_table(TableName=TABLE, StreamSpecification=enabled)
    yield
    aws.dynamodb.delete_table(TableName=TABLE)


@pytest.mark.usefixtures("table")
def test_the_built_watch_finds_drift_and_writes_nothing(aws):
    """Answer and log name what drifts; the table is as before."""
    before = aws.dynamodb.scan(TableName=TABLE, ConsistentRead=True)["Items"]
    environment = {**aws.environment, "TABLE_NAME": TABLE}
    function = Function(bundle.folder("DriftWatchFunction"), "drift_watch.handler", environment, timeout_s=900)
    with runtime(function) as running:
        answer = running.invoke({})
        lines = [json.loads(line) for line in running.log().splitlines() if line.startswith("{")]
    assert not answer.failed, answer.payload
    expected = {"parents": 2, "children": 4, "audited": 2, "drifting": 1, "drift": 3, "unjudged": 0, "orphans": 0}
    assert {name: answer.payload[name] for name in expected} == expected
    (finding,) = [line for line in lines if line.get("message") == "tally drifts"]
    assert (finding["parent"], finding["drift"]) == (["POST#wrong", "META"], 3)
    assert aws.dynamodb.scan(TableName=TABLE, ConsistentRead=True)["Items"] == before
