"""The built bundle in the Lambda runtime emulator, with an embedded AWS that has a table and a queue, and no stack."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from mypy_boto3_dynamodb import DynamoDBClient
from mypy_boto3_sqs import SQSClient

from tallyctl import bundle, emulator
from tallyctl.rie import Function, Runtime, runtime
from tallyctl.stack import connect
from tallystream.keys import like_key, post_key
from tallystream.rules import DEFAULT_COUNTERS

TABLE = "Social"


@dataclass(frozen=True)
class Aws:
    """What the functions find."""

    environment: dict[str, str]
    dynamodb: DynamoDBClient
    sqs: SQSClient

    def create(self, post_id: str) -> None:
        """Put a post in the table."""
        key = {name: {"S": value} for name, value in post_key(post_id).items()}
        self.dynamodb.put_item(TableName=TABLE, Item={**key, "body": {"S": "text"}})

    def liked(self, post_id: str, user_id: str) -> bool:
        """Return whether a like is in the table."""
        key = {name: {"S": value} for name, value in like_key(post_id, user_id).items()}
        return "Item" in self.dynamodb.get_item(TableName=TABLE, Key=key, ConsistentRead=True)

    def tally(self, post_id: str) -> int:
        """Return a post's tally; 0 if nothing was counted yet."""
        key = {name: {"S": value} for name, value in post_key(post_id).items()}
        item = self.dynamodb.get_item(TableName=TABLE, Key=key, ConsistentRead=True)["Item"]
        return int(item.get("likeTally", {"N": "0"})["N"])


@pytest.fixture(scope="session")
def built() -> None:
    """Build the bundle, if it changed."""
    bundle.ensure()


@pytest.fixture(scope="session")
def aws() -> Iterator[Aws]:
    """Start an embedded AWS with a table and a queue, on a port of its own."""
    port = emulator.free_port()
    with emulator.running(port):
        place = connect(f"http://{emulator.LOOPBACK}:{port}", "us-east-1")
        dynamodb, sqs = place.session.client("dynamodb"), place.session.client("sqs")
        dynamodb.create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
            AttributeDefinitions=[
                {"AttributeName": "PK", "AttributeType": "S"},
                {"AttributeName": "SK", "AttributeType": "S"},
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        environment = {
            "TABLE_NAME": TABLE,
            "COUNTERS": DEFAULT_COUNTERS,
            "COUNTING_PATH": "stream",
            "FAILED_BATCHES_URL": sqs.create_queue(QueueName="failed")["QueueUrl"],
            "RECORD_AGE_SECONDS": "21600",
            "WINDOW_SECONDS": "60",
            "POWERTOOLS_METRICS_NAMESPACE": "Tallystream",
            "AWS_ENDPOINT_URL": f"http://{emulator.LOOPBACK}:{port}",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
        yield Aws(environment, dynamodb, sqs)


@pytest.fixture(scope="session")
def aggregator(built: None, aws: Aws) -> Iterator[Runtime]:  # noqa: ARG001 - the bundle has to be there
    """Run the aggregator as it was built."""
    with runtime(Function(bundle.folder("AggregatorFunction"), "aggregator.handler", aws.environment)) as running:
        yield running


@pytest.fixture(scope="session")
def likes_api(built: None, aws: Aws) -> Iterator[Runtime]:  # noqa: ARG001 - the bundle has to be there
    """Run the HTTP API as it was built."""
    with runtime(
        Function(bundle.folder("LikesApiFunction"), "likes_api.handler", aws.environment, timeout_s=10)
    ) as running:
        yield running
