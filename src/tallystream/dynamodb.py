"""The ports to the table, on boto3's low-level client: requests out, answers and errors read."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from tallystream.changes import ParentKey
from tallystream.counters import Answer, Item, Retryable, Uncountable
from tallystream.faults import Kind, kind_of

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDbTable:
    """One table behind `counters.Table`. Safe to use from several threads, as the low-level client is."""

    def __init__(self, client: "DynamoDBClient", table_name: str) -> None:
        self._client = client
        self._table_name = table_name

    def update(self, request: Mapping[str, Any]) -> Answer:
        """Send one `UpdateItem` and read what came of it.

        Raises:
            Retryable: throttled, in conflict with a transaction, or no answer; the client's own retries are used up.
            Uncountable: DynamoDB refused the request for what it would do to this item.
            ClientError: anything else, such as missing rights or a missing table: no retry and no queue mends that.
        """
        try:
            answer = self._client.update_item(TableName=self._table_name, **request)
        except (ClientError, BotoCoreError) as error:
            kind = kind_of(error)
            if kind is Kind.CONDITION and isinstance(error, ClientError):
                return Answer(written=False, item=error.response.get("Item"))  # type: ignore[arg-type]
            if kind in (Kind.THROTTLED, Kind.UNAVAILABLE, Kind.CONFLICT):
                raise Retryable(str(error)) from error
            if kind is Kind.POISON:
                raise Uncountable(str(error)) from error
            raise
        return Answer(written=True, item=answer.get("Attributes"))


class Page(NamedTuple):
    """One page of a scan or of an item collection."""

    began: float
    """Epoch seconds, before it was asked for."""
    items: Sequence[Item]
    after: Mapping[str, Any] | None
    """The key to go on after (`LastEvaluatedKey`); None on the last page."""


class DynamoDbItems:
    """One table behind `auditor.Items`, and its pages. Each read is strongly consistent. Safe to use from threads."""

    def __init__(
        self,
        client: "DynamoDBClient",
        table_name: str,
        now: Callable[[], float],
        attributes: Sequence[str] | None = None,
    ) -> None:
        """Wire it; nothing is read yet.

        Args:
            client: boto3's low-level client.
            table_name: the table.
            now: epoch seconds, by DynamoDB's clock.
            attributes: what pages hold of each item besides its keys; everything if None. What is left out is read all
                the same, and paid for, but does not travel.
        """
        self._client = client
        self._table_name = table_name
        self._now = now
        self._names = {f"#n{number}": name for number, name in enumerate(("PK", "SK", *(attributes or ())))}
        self._whole = attributes is None
        self._lock = threading.Lock()
        self.units = 0.0
        """Read units consumed so far, as DynamoDB reports them."""

    def item(self, key: ParentKey) -> Item | None:
        """Return an item with all its attributes; None if there is none."""
        answer = self._client.get_item(
            TableName=self._table_name,
            Key={"PK": {"S": key[0]}, "SK": {"S": key[1]}},
            ConsistentRead=True,
            ReturnConsumedCapacity="TOTAL",
        )
        self._add_units(answer)
        return answer.get("Item")

    def children(self, partition_key: str, prefix: str) -> Iterator[list[str]]:
        """Yield the sort keys with a prefix in one item collection, page by page, to the last."""
        pages = self._pages(
            self._client.query,
            None,
            KeyConditionExpression="#n0 = :pk AND begins_with(#n1, :prefix)",
            ExpressionAttributeValues={":pk": {"S": partition_key}, ":prefix": {"S": prefix}},
            ExpressionAttributeNames={"#n0": "PK", "#n1": "SK"},
            ProjectionExpression="#n1",
        )
        for page in pages:
            yield [item["SK"]["S"] for item in page.items]

    def collection(self, partition_key: str) -> Iterator[Page]:
        """Yield the pages of one item collection."""
        condition: dict[str, Any] = {
            "KeyConditionExpression": "#n0 = :pk",
            "ExpressionAttributeValues": {":pk": {"S": partition_key}},
        }
        names = {"ExpressionAttributeNames": {"#n0": "PK"}} if self._whole else self._projection()
        return self._pages(self._client.query, None, **condition, **names)

    def scan(self, segment: int, segments: int, start: Mapping[str, Any] | None = None) -> Iterator[Page]:
        """Yield the pages of one segment of the table, after a key if one is given."""
        projection = {} if self._whole else self._projection()
        return self._pages(self._client.scan, start, Segment=segment, TotalSegments=segments, **projection)

    def _projection(self) -> dict[str, Any]:
        return {"ProjectionExpression": ", ".join(self._names), "ExpressionAttributeNames": self._names}

    def _pages(self, read: Callable[..., Any], start: Mapping[str, Any] | None, **request: Any) -> Iterator[Page]:  # noqa: ANN401
        """Yield page after page of a query or a scan."""
        while True:
            began = self._now()
            place = {} if start is None else {"ExclusiveStartKey": start}
            answer = read(
                TableName=self._table_name, ConsistentRead=True, ReturnConsumedCapacity="TOTAL", **request, **place
            )
            self._add_units(answer)
            start = answer.get("LastEvaluatedKey")
            yield Page(began, answer["Items"], start)
            if not start:
                return

    def _add_units(self, answer: Mapping[str, Any]) -> None:
        with self._lock:
            self.units += answer.get("ConsumedCapacity", {}).get("CapacityUnits", 0)
