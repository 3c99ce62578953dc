"""The failure queue is worked off on the embedded AWS: each shape of message, and those that stay."""

import json
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tallystream.keys import like_key, post_key

pytestmark = pytest.mark.e2e

QUEUED_WITHIN_S = 30


def typed(key):
    """Return a key in DynamoDB's notation."""
    return {name: {"S": value} for name, value in key.items()}


@dataclass
class Redriving:
    """The audited stack, its failure queue, and the command."""

    app: object
    tallyctl: object

    def __post_init__(self):
        """Find the queue and the stream."""
        session = self.app.place.session
        self.sqs, self.streams = session.client("sqs"), session.client("dynamodbstreams")
        self.url = self.app.stack.failed_batches_url
        table = self.app.dynamodb.describe_table(TableName=self.app.stack.table_name)["Table"]
        self.stream_arn = table["LatestStreamArn"]

    def run(self, *options):
        """Redrive and return the exit code and the JSON object."""
        place = ["--endpoint-url", self.app.place.endpoint_url, "--stack-name", self.app.stack.name]
        done = self.tallyctl(["redrive", *place, "--json", *options])
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout)

    def send(self, message):
        """Put a message on the queue."""
        self.sqs.send_message(
            QueueUrl=self.url, MessageBody=message if isinstance(message, str) else json.dumps(message)
        )

    def visible(self):
        """Return how many messages can be received now."""
        name = "ApproximateNumberOfMessages"
        answer = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=[name])
        return int(answer["Attributes"][name])

    def post(self):
        """Create a post and return its id."""
        post_id = f"post-{uuid.uuid4().hex[:8]}"
        self.app.create(post_id)
        return post_id

    def like(self, post_id, users):
        """Store likes."""
        for user in users:
            item = {**typed(like_key(post_id, user)), "likedAt": {"N": "1"}}
            self.app.dynamodb.put_item(TableName=self.app.stack.table_name, Item=item)

    def set_tally(self, post_id, value):
        """Overwrite a tally, as no part of the product does."""
        self.app.dynamodb.update_item(
            TableName=self.app.stack.table_name,
            Key=typed(post_key(post_id)),
            UpdateExpression="SET likeTally = :value",
            ExpressionAttributeValues={":value": value},
        )

    def records(self, post_id):
        """Return the shard, and the stream's records of a post's likes."""
        (shard,) = self.streams.describe_stream(StreamArn=self.stream_arn)["StreamDescription"]["Shards"]
        iterator = self.streams.get_shard_iterator(
            StreamArn=self.stream_arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        found = []
        while page := (answer := self.streams.get_records(ShardIterator=iterator))["Records"]:
            iterator = answer["NextShardIterator"]
            found += [record["dynamodb"] for record in page]
        own = [data for data in found if data["Keys"]["PK"]["S"] == post_key(post_id)["PK"]]
        return shard["ShardId"], [data for data in own if data["Keys"]["SK"]["S"] != post_key(post_id)["SK"]]

    @contextmanager
    def mapping_off(self):
        """Have the stream mapping switched off for as long as the block runs; it keeps its place in the stream."""
        client = self.app.place.session.client("lambda")
        (mapping,) = client.list_event_source_mappings(FunctionName=self.app.stack.aggregator)["EventSourceMappings"]
        client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
        try:
            yield
        finally:
            client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)


@pytest.fixture
def redriving(audited_app, tallyctl):
    """Give the stack with an empty failure queue, and leave it so."""
    redriving = Redriving(audited_app, tallyctl)
    yield redriving
    assert redriving.visible() == 0


def given_up(redriving, shard, first, last, size):
    """Return the message of a batch that the mapping has given up, as Lambda sends it."""
    return {
        "requestContext": {"requestId": str(uuid.uuid4()), "condition": "RetryAttemptsExhausted"},
        "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
        "version": "1.0",
        "timestamp": "2026-11-30T12:00:00.000Z",
        "DDBStreamBatchInfo": {
            "shardId": shard,
            "startSequenceNumber": first,
            "endSequenceNumber": last,
            "approximateArrivalOfFirstRecord": "2026-11-30T11:59:00Z",
            "approximateArrivalOfLastRecord": "2026-11-30T11:59:00Z",
            "batchSize": size,
            "streamArn": redriving.stream_arn,
        },
    }


def test_b20_a_batch_that_was_given_up_is_counted_once(redriving):
    """What was counted before is not counted again, nor is what the mapping delivers after all."""
    first, second = redriving.post(), redriving.post()
    redriving.like(first, ["u1", "u2"])
    assert redriving.app.settled(first, 2) == 2
    with redriving.mapping_off():
        time.sleep(1.5)  # what it has begun with is done
        redriving.like(first, ["u3", "u4", "u5"])
        redriving.like(second, ["u1"])
        shard, records = redriving.records(first)
        _, others = redriving.records(second)
        redriving.send(given_up(redriving, shard, records[0]["SequenceNumber"], others[-1]["SequenceNumber"], 6))
        code, planned = redriving.run("--dry-run")
        assert (code, planned["counted"], planned["done"], redriving.visible()) == (0, 4, 0, 1)
        assert (redriving.app.tally(first), redriving.app.tally(second)) == (2, 0)
        code, done = redriving.run()
        assert (code, done["messages"], done["done"], done["counted"], done["kept"]) == (0, 1, 1, 4, [])
        assert (redriving.app.tally(first), redriving.app.tally(second)) == (5, 1)
    assert (redriving.app.settled(first, 5), redriving.app.settled(second, 1)) == (5, 1)
    assert redriving.run()[1]["messages"] == 0


def test_b20_a_parent_that_could_not_be_counted_is_kept_until_it_can(redriving):
    """The aggregator's own message, since the tally is text; once it is a number, it is counted and repaired."""
    post_id = redriving.post()
    redriving.like(post_id, ["u1", "u2"])
    assert redriving.app.settled(post_id, 2) == 2
    redriving.set_tally(post_id, {"S": "two"})
    redriving.like(post_id, ["u3"])
    deadline = time.monotonic() + QUEUED_WITHIN_S
    while not redriving.visible() and time.monotonic() < deadline:
        time.sleep(0.2)
    code, kept = redriving.run()
    assert (code, kept["done"], redriving.visible()) == (2, 0, 1)
    assert "incorrect" in kept["kept"][0]["reason"] or "operand" in kept["kept"][0]["reason"].lower()
    assert kept["kept"][0]["parents"] == [post_key(post_id)]
    redriving.set_tally(post_id, {"N": "0"})
    code, done = redriving.run()
    assert (code, done["done"], done["counted"], done["repaired"]) == (0, 1, 1, 1)
    assert redriving.app.settled(post_id, 3) == 3


def test_b20_trimmed_records_and_malformed_messages_are_kept_and_named(redriving):
    """No traceback: the reason, the way out, exit code 2; and they can be dropped after an audit."""
    post_id = redriving.post()
    shard, _ = redriving.records(post_id)
    redriving.send(given_up(redriving, shard, "000000000000000000701", "000000000000000000703", 3))
    redriving.send(given_up(redriving, "shardId-1", "000000000000000000701", "000000000000000000703", 3))
    own = {"parent": post_key(post_id), "deltas": {"likeTally": 1}, "shard": "stream", "reason": "tally is text"}
    redriving.send({**own, "first": "0" * 20 + "1", "last": "0" * 20 + "1", "streamArn": redriving.stream_arn})
    code, kept = redriving.run()
    reasons = [entry["reason"] for entry in kept["kept"]]
    assert (code, kept["messages"], kept["done"], len(reasons), redriving.visible()) == (2, 3, 0, 3, 3)
    assert all("trimmed" in reason and "tallyctl audit" in reason for reason in reasons)
    assert [post_id in reason for reason in reasons].count(True) == 1
    code, dropped = redriving.run("--drop-trimmed")
    assert (code, dropped["dropped"], redriving.visible()) == (0, 3, 0)
    redriving.send("{no json")
    code, kept = redriving.run("--drop-trimmed")
    assert (code, kept["kept"][0]["reason"].startswith("malformed"), redriving.visible()) == (2, True, 1)
    redriving.sqs.purge_queue(QueueUrl=redriving.url)


def test_an_empty_queue_is_said_to_be_empty(redriving):
    """That is no failure."""
    place = ["--endpoint-url", redriving.app.place.endpoint_url, "--stack-name", redriving.app.stack.name]
    done = redriving.tallyctl(["redrive", *place])
    assert (done.returncode, done.stdout) == (0, "The failure queue is empty.\n"), done.stderr
