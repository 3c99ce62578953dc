"""The stream's Lambda as Lambda loads it: the environment in, real boto3 clients, one answer, one log line, metrics."""

import functools
import importlib
import json
import logging
import sys

import boto3
import pytest
from moto import mock_aws

from builders import SHARD, batch, like, record, unlike, windowed
from fakes import LOST, check_answer
from tallystream.batches import RESERVE_MS, NotAStreamEvent
from tallystream.settings import SettingsError

REGION = "eu-west-1"
TABLE = "Social"
QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/failed"
RECORDS = ("received", "counted", "ignored", "malformed", "duplicates", "orphaned", "failed", "uncountable")
FIGURES = (*RECORDS, "parents", "writes", "negative")


class Context:
    """What the handler asks Lambda's context for."""

    def __init__(self, ms=60_000):
        self._ms = ms

    def get_remaining_time_in_millis(self):
        """Return what is left."""
        return self._ms


@pytest.fixture
def environment(monkeypatch):
    """Set the environment as the template does, and nothing of the developer's own."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB", "AWS_PROFILE", "COUNTERS", "COUNTING_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("TABLE_NAME", TABLE)
    monkeypatch.setenv("FAILED_BATCHES_URL", QUEUE)
    return monkeypatch


@pytest.fixture
def load(environment):
    """Give a function that loads the module afresh, as a new execution environment does."""
    loaded = []

    def load():
        # Powertools keeps a logger's handler, and with it the standard output of an earlier test.
        logging.Logger.manager.loggerDict.pop("aggregator", None)
        environment.delitem(sys.modules, "aggregator", raising=False)
        loaded.append(importlib.import_module("aggregator"))
        return loaded[-1]

    yield load
    for module in loaded:
        module._pool.shutdown()
    sys.modules.pop("aggregator", None)


@pytest.fixture
def client():
    """Give a client of moto, in which the table with the posts p1 and p2 is, and the queue."""
    with mock_aws():
        client = boto3.client("dynamodb", region_name=REGION)
        keys = ("PK", "HASH"), ("SK", "RANGE")
        client.create_table(
            TableName=TABLE,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in keys],
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
        )
        for post in ("p1", "p2"):
            client.put_item(TableName=TABLE, Item={**key(post), "likeTally": {"N": "0"}})
        boto3.client("sqs", region_name=REGION).create_queue(QueueName="failed")
        yield client


@pytest.fixture
def handler(client, load):
    """Give the handler of a fresh module in front of `client`'s table; its answers are held to Lambda's rules.

    Loaded at its first call: the logger keeps standard output as it is then, and pytest has another one for fixtures.
    """
    assert client
    module = functools.cache(load)

    def handler(event, context=None):
        answer = module().handler(event, context or Context())
        check_answer(event, answer)
        return answer

    return handler


def key(post):
    """Return a post's key."""
    return {"PK": {"S": f"POST#{post}"}, "SK": {"S": "META"}}


def tally(client, post):
    """Return a post's tally; None without a post."""
    item = client.get_item(TableName=TABLE, Key=key(post), ConsistentRead=True).get("Item")
    return int(item["likeTally"]["N"]) if item else None


def messages():
    """Return the bodies of the messages on the queue."""
    found = boto3.client("sqs", region_name=REGION).receive_message(QueueUrl=QUEUE, MaxNumberOfMessages=10)
    return [json.loads(message["Body"]) for message in found.get("Messages", [])]


def printed(capsys):
    """Return what went to standard output, each line one JSON object: log entries by what they tell, and metrics."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    logged = [line for line in lines if "_aws" not in line]
    assert {line["service"] for line in logged} <= {"aggregator"}
    batches = [line for line in logged if line["message"] == "batch"]
    notes = [line for line in logged if line["level"] == "WARNING"]
    assert len(batches) + len(notes) == len(logged)
    return batches, notes, [line for line in lines if "_aws" in line]


LIKES = [like(1), like(2, user="u2"), like(3, "p2"), unlike(4), like(5, user="u3")]


@pytest.mark.parametrize("event", [batch(*LIKES), windowed(*LIKES)], ids=["batch", "windowed"])
def test_b01_a_batch_delivered_twice_counts_once(client, handler, event):
    """Through real boto3: counted, and counted no more when it comes again."""
    for _ in range(2):
        assert handler(event)["batchItemFailures"] == []
        assert (tally(client, "p1"), tally(client, "p2")) == (2, 1)


def test_records_that_repeat_within_a_batch_and_across_batches_count_once(client, handler):
    """Overlapping deliveries of one shard end at the number of likes."""
    handler(windowed(*LIKES[:3], LIKES[0]))
    handler(windowed(*LIKES[1:]))
    handler(windowed(*LIKES))
    assert (tally(client, "p1"), tally(client, "p2")) == (2, 1)


def test_a_tally_can_be_read_back_as_a_whole_number_with_its_mark(client, handler):
    """What is stored is what the audit reads: a number and, per shard, a padded position with its time."""
    handler(windowed(*LIKES))
    item = client.get_item(TableName=TABLE, Key=key("p1"))["Item"]
    mark = item["mark#" + SHARD.removeprefix("shardId-")]["M"]
    assert item["likeTally"] == {"N": "2"}
    assert mark["seq"] == {"S": "5".zfill(40)}
    assert mark["at"]["N"].isdecimal()


def test_b07_no_ghost_through_real_boto3(client, handler, capsys):
    """A late record of a deleted post is finished with, and no item appears."""
    client.delete_item(TableName=TABLE, Key=key("p1"))
    assert handler(windowed(unlike(202)))["batchItemFailures"] == []
    assert tally(client, "p1") is None
    _, notes, _ = printed(capsys)
    assert [note["message"] for note in notes] == ["orphaned: the parent does not exist"]


def test_b14_poison_goes_to_the_real_queue(client, handler):
    """A tally that is text does not block the shard: its changes are on the queue, the others are counted."""
    client.put_item(TableName=TABLE, Item={**key("p1"), "likeTally": {"S": "many"}})
    assert handler(windowed(*LIKES))["batchItemFailures"] == []
    (message,) = messages()
    assert (message["parent"], message["deltas"]) == ({"PK": "POST#p1", "SK": "META"}, {"likeTally": 2})
    assert tally(client, "p2") == 1


def test_b29_the_stock_sample_event_is_skipped(client, handler):
    """Records of another table are neither counted nor reported."""
    stock = {**record("INSERT", 1, ("", "")), "dynamodb": {"Keys": {"Id": {"N": "101"}}, "SequenceNumber": "111"}}
    assert handler(batch(stock, like(2)))["batchItemFailures"] == []
    assert tally(client, "p1") == 1


def test_configured_rules_are_followed(client, environment, load):
    """What `COUNTERS` says is what counts."""
    environment.setenv("COUNTERS", '[{"child": "REPLY#", "parent": "META", "attribute": "likeTally"}]')
    load().handler(windowed(like(1), record("INSERT", 2, ("POST#p2", "REPLY#r1"))), Context())
    assert (tally(client, "p1"), tally(client, "p2")) == (0, 1)


def test_the_log_line_and_the_metrics_of_a_batch_say_the_same(handler, capsys):
    """One line for people and one for CloudWatch, each with all the figures, and the figures add up."""
    handler(windowed(*LIKES, like(6, "gone"), {"eventName": "BOGUS"}, LIKES[0]))
    (entry,), notes, (metric,) = printed(capsys)
    figures = {name: entry[name] for name in FIGURES}
    expected = {"received": 8, "counted": 5, "ignored": 1, "malformed": 1, "duplicates": 1, "orphaned": 1}
    assert figures == {"failed": 0, "uncountable": 0, "parents": 3, "writes": 2, "negative": 0, **expected}
    assert entry["shard"] == SHARD
    assert {name: metric[name.capitalize()] for name in FIGURES} == {name: [float(n)] for name, n in figures.items()}
    (directive,) = metric["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == ("Tallystream", [["service"]])
    assert metric["service"] == "aggregator"
    assert {declared["Name"] for declared in directive["Metrics"]} == {name.capitalize() for name in FIGURES}
    assert len(notes) == expected["malformed"] + expected["orphaned"]


def test_metrics_of_one_batch_do_not_leak_into_the_next(handler, capsys):
    """Each batch has its own figures, a batch without records too."""
    handler(windowed(*LIKES))
    handler(windowed(final=True))
    *_, metrics = printed(capsys)
    assert [metric["Received"] for metric in metrics] == [[5.0], [0.0]]


def test_the_handler_works_without_a_context(client, load):
    """Called by hand, no time limit is known."""
    assert load().handler(windowed(like(1)), None) == {"batchItemFailures": [], "state": {}}
    assert tally(client, "p1") == 1


def test_the_time_that_is_left_is_lambda_s(client, load):
    """With none left nothing is begun, and everything is reported."""
    answer = load().handler(windowed(like(1)), Context(RESERVE_MS))
    assert answer == {"batchItemFailures": [{"itemIdentifier": f"{1:021d}"}], "state": {}}
    assert tally(client, "p1") == 0


def test_errors_leave_the_handler(client, handler):
    """A wrong event and a missing table are raised for Lambda to see."""
    with pytest.raises(NotAStreamEvent):
        handler({"detail": {}})
    client.delete_table(TableName=TABLE)
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        handler(windowed(like(1)))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("FAILED_BATCHES_URL", None, "FAILED_BATCHES_URL is missing"),
        ("FAILED_BATCHES_URL", "", "FAILED_BATCHES_URL must be the URL of an SQS queue"),
        ("TABLE_NAME", None, "TABLE_NAME must be the name of a DynamoDB table"),
        ("COUNTERS", '[{"child": "LIKE#"}]', r'COUNTERS: rule 1 {"child": "LIKE#"} needs parent'),
        ("COUNTERS", "likes", "COUNTERS: not JSON"),
        ("COUNTING_PATH", "both", "COUNTING_PATH must be stream or transaction"),
    ],
)
def test_wrong_settings_fail_at_start_up(environment, load, name, value, said):
    """The module cannot be loaded, and the message says which variable to mend."""
    if value is None:
        environment.delenv(name)
    else:
        environment.setenv(name, value)
    with pytest.raises(SettingsError) as refused:
        load()
    assert said in str(refused.value)


@pytest.mark.parametrize("lost", [1, 3], ids=["first answer", "all of the SDK's tries"])
def test_b03_answers_that_are_lost_add_nothing(served, table, environment, load, lost):
    """The function's own client, its own retries and those of the SDK behind them: the tally is exact."""
    environment.setenv("AWS_ENDPOINT_URL_DYNAMODB", served)
    table.plant("p1", [LOST] * lost)
    answer = load().handler(windowed(*LIKES), Context())
    assert answer == {"batchItemFailures": [], "state": {}}
    assert (table.tally("p1"), table.tally("p2")) == (2, 1)
    assert table.writes() == 2 + lost
