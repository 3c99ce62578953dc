"""The port to the table: boto3's answers and errors, read for the counting."""

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError
from botocore.stub import Stubber

from builders import NOW, SHARD
from fakes import LOST, FakeDynamoDb, client_error
from tallystream.counters import Answer, Retryable, Share, Uncountable, count
from tallystream.dynamodb import DynamoDbItems, DynamoDbTable, Page

REQUEST = {"Key": {"PK": {"S": "POST#p1"}, "SK": {"S": "META"}}, "UpdateExpression": "ADD likeTally :d"}
ITEM = {"PK": {"S": "POST#p1"}, "likeTally": {"N": "3"}}
KEEP_TRYING = Config(retries={"mode": "standard", "total_max_attempts": 3}, read_timeout=5, connect_timeout=5)


@pytest.fixture
def connect():
    """Give a function that makes a boto3 client for a URL; each is closed in the end."""
    clients = []

    def connect(url="http://127.0.0.1:9", config=KEEP_TRYING):
        clients.append(
            boto3.client(
                "dynamodb",
                region_name="eu-west-1",
                endpoint_url=url,
                aws_access_key_id="test",
                aws_secret_access_key="test",
                config=config,
            )
        )
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


@pytest.fixture
def stubbed(connect):
    """Give the port on a stubbed client, and the stubber."""
    client = connect()
    with Stubber(client) as stubber:
        yield DynamoDbTable(client, "Social"), stubber
        stubber.assert_no_pending_responses()


def test_the_request_goes_to_the_table_and_the_item_comes_back(stubbed):
    """What was asked is sent as it is, with the table's name."""
    port, stubber = stubbed
    stubber.add_response("update_item", {"Attributes": ITEM}, {"TableName": "Social", **REQUEST})
    assert port.update(REQUEST) == Answer(written=True, item=ITEM)


@pytest.mark.parametrize("item", [ITEM, None], ids=["with item", "without"])
def test_a_failed_condition_is_an_answer(stubbed, item):
    """The item that failed it comes along; without one there is none in the table."""
    port, stubber = stubbed
    more = {"Item": item} if item else {}
    stubber.add_client_error("update_item", "ConditionalCheckFailedException", modeled_fields=more)
    assert port.update(REQUEST) == Answer(written=False, item=item)


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        ("ThrottlingException", Retryable),
        ("ProvisionedThroughputExceededException", Retryable),
        ("RequestLimitExceeded", Retryable),
        ("InternalServerError", Retryable),
        ("ServiceUnavailable", Retryable),
        ("TransactionConflictException", Retryable),
        ("ReplicatedWriteConflictException", Retryable),
        ("ValidationException", Uncountable),
        ("ItemCollectionSizeLimitExceededException", Uncountable),
        ("AccessDeniedException", ClientError),
        ("ResourceNotFoundException", ClientError),
    ],
)
def test_b31_each_error_is_worth_a_retry_or_the_queue_or_is_raised(stubbed, code, raised):
    """A conflict with a transaction is worth a retry, as a throttle is; the message says which it was."""
    port, stubber = stubbed
    stubber.add_client_error("update_item", code, "said by the service")
    with pytest.raises(raised, match="said by the service") as caught:
        port.update(REQUEST)
    assert caught.type is raised or raised is ClientError


class Broken:
    """A client that has no connection."""

    def __init__(self, error):
        self._error = error

    def update_item(self, **_):
        """Raise the error."""
        raise self._error


@pytest.mark.parametrize(
    "error",
    [ReadTimeoutError(endpoint_url="u"), EndpointConnectionError(endpoint_url="u"), client_error("502")],
    ids=["no answer", "no connection", "bad gateway"],
)
def test_no_answer_is_worth_a_retry(error):
    """It may have been applied or not: the marks tell, on the next try."""
    if isinstance(error, ClientError):
        error.response["ResponseMetadata"]["HTTPStatusCode"] = 502
    with pytest.raises(Retryable):
        DynamoDbTable(Broken(error), "Social").update(REQUEST)


def a_share():
    """Return three likes of p1 that come as one share."""
    return Share(("POST#p1", "META"), [(f"{n:040d}", "likeTally", 1, n) for n in (1, 2, 3)], NOW)


def test_b03_boto3_s_own_retry_of_a_lost_answer_adds_nothing(served, table, connect):
    """The server applies, the connection closes without an answer, boto3 resends by itself: the tally is exact."""
    table.plant("p1", [LOST])
    share = a_share()
    count(DynamoDbTable(connect(served), "T"), share, SHARD, NOW)
    assert (table.tally("p1"), table.writes()) == (3, 2)
    assert (len(share.duplicates), share.left) == (3, [])


def test_b03_where_every_answer_is_lost_the_next_delivery_is_exact(served, table, connect):
    """boto3 gives up after three answers that never came; the share is left, and found counted when it comes again."""
    table.plant("p1", [LOST] * 3)
    port = DynamoDbTable(connect(served), "T")
    share = a_share()
    with pytest.raises(Retryable):
        count(port, share, SHARD, NOW)
    assert (table.tally("p1"), table.writes(), len(share.left)) == (3, 3, 3)
    count(port, share, SHARD, NOW)
    assert (table.tally("p1"), len(share.duplicates), share.left) == (3, 3, [])


@pytest.fixture
def client():
    """Give a table in memory with 25 likes of p1 and a comment, in pages of ten, that notes what it is asked."""

    class Client(FakeDynamoDb):
        asked = []  # noqa: RUF012 - one client a test

        def query(self, **request):
            self.asked.append(request)
            return {**super().query(**request), "ConsumedCapacity": {"CapacityUnits": 0.5}}

        def scan(self, **request):
            self.asked.append(request)
            return {**super().scan(**request), "ConsumedCapacity": {"CapacityUnits": 2.0}}

    client = Client()
    client.asked = []
    client.page_size = 10
    client.add_post("p1", body={"S": "a long text"})
    for number in range(25):
        client.put_item(Item={"PK": {"S": "POST#p1"}, "SK": {"S": f"LIKE#USER#u{number:02}"}, "likedAt": {"N": "1"}})
    client.put_item(Item={"PK": {"S": "POST#p1"}, "SK": {"S": "LIKED"}})
    return client


def test_children_are_read_strongly_consistent_to_the_last_page(client):
    """A count of the first page is not a count."""
    items = DynamoDbItems(client, "Social", lambda: NOW)
    pages = list(items.children("POST#p1", "LIKE#USER#"))
    assert [len(page) for page in pages] == [10, 10, 5]
    assert [key for page in pages for key in page] == [f"LIKE#USER#u{number:02}" for number in range(25)]
    assert all(request["ConsistentRead"] is True for request in client.asked)
    assert items.units == 1.5


def test_pages_hold_keys_and_the_attributes_that_are_asked_for(client):
    """Bodies are paid for and left where they are; without a choice everything comes."""
    chosen = DynamoDbItems(client, "Social", lambda: NOW, ["likeTally", "mark#7"])
    (post,) = [item for page in chosen.collection("POST#p1") for item in page.items if item["SK"]["S"] == "META"]
    assert post == {"PK": {"S": "POST#p1"}, "SK": {"S": "META"}, "likeTally": {"N": "0"}}
    everything = DynamoDbItems(client, "Social", lambda: NOW)
    (post,) = [item for page in everything.scan(0, 1) for item in page.items if item["SK"]["S"] == "META"]
    assert post["body"] == {"S": "a long text"}


def test_a_scan_goes_on_after_a_key(client):
    """So an audit that was interrupted reads nothing twice."""
    items = DynamoDbItems(client, "Social", lambda: NOW)
    first, *_ = items.scan(0, 1)
    assert isinstance(first, Page)
    assert first.began == NOW
    rest = [item["SK"]["S"] for page in items.scan(0, 1, first.after) for item in page.items]
    assert len(first.items) + len(rest) == 27
    assert rest[0] == "LIKE#USER#u10"
    assert [request["Segment"] for request in client.asked] == [0] * len(client.asked)


def test_an_item_that_is_missing_is_none(client):
    """As for a post that was deleted."""
    items = DynamoDbItems(client, "Social", lambda: NOW)
    assert items.item(("POST#p1", "META"))["likeTally"] == {"N": "0"}
    assert items.item(("POST#gone", "META")) is None
