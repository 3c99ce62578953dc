"""The ways to keep a count, each as small as people write it, and what is known of each beforehand.

`PATHS` has them all. A path writes a like (`Writer`), and where it counts from the stream it has an `Aggregator` too.
The product's own code is used for `stream` and `transaction`.
"""

import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord
from botocore.exceptions import ClientError

from tallyctl.comparison.memory import Key
from tallyctl.comparison.published import (
    HOLD_S,
    OPTIMISTIC_WINDOW_S,
    PARENTS_PER_SECOND,
    PUT_S,
    TRANSACTION_S,
)
from tallyctl.comparison.stream import Aggregator, is_change
from tallystream.batches import Batches
from tallystream.dynamodb import DynamoDbTable
from tallystream.faults import Kind, kind_of, kind_of_reason
from tallystream.keys import META, like_key, post_key
from tallystream.likes import CONFLICT_RETRIES, FIRST_WAIT_S, Backoff, BusyError, StreamPath, TransactionPath
from tallystream.rules import DEFAULT_COUNTERS, Rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TALLY = "likeTally"
BODY_BYTES = 200
"""How long a post's text is. A post of more than 1 KB makes each write of its count dearer."""

_RULES = Rules.parse(DEFAULT_COUNTERS)
_ONE_INVOCATION_MS = 60_000


class Writer(Protocol):
    """What the API function does for one request."""

    def like(self, post_id: str, user_id: str, now: int) -> bool:
        """Store a like; return whether it is new."""

    def unlike(self, post_id: str, user_id: str) -> bool:
        """Remove a like; return whether it was there."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a path runs: the table, the time, and the chance."""

    client: "DynamoDBClient"
    table_name: str
    sleep: Callable[[float], None]
    epoch: Callable[[], float]
    rng: random.Random

    def new_token(self) -> str:
        """Return a new `ClientRequestToken`."""
        return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))


@dataclass(frozen=True, slots=True)
class Path:
    """One way to keep a count."""

    title: str
    writer: Callable[[Setting], Writer]
    aggregator: Callable[[Setting], Aggregator] | None = None
    windowed: bool = False
    """The mapping has a tumbling window: it names the shard, and cannot filter."""
    seconds: Callable[[int, int], float] = lambda _changes, _parents: 0.0
    """How long the aggregator runs for so many changes of so many parents."""
    contention_s: float | None = None
    """How close two of its writes to one item may come before one of them has to be repeated; None: any."""
    writes_per_like: int = 1
    """How many write requests a like is, without those of the aggregator."""
    writes_each_record: bool = False
    """The aggregator sends a write for each record, not one for all records of a parent."""
    counts_when_read: bool = False
    """There is no tally: whoever wants the count counts the likes."""


class Unguarded:
    """Two writes without any condition: store the like, add one."""

    def __init__(self, setting: Setting) -> None:
        self._client, self._table = setting.client, setting.table_name

    def like(self, post_id: str, user_id: str, now: int) -> bool:
        """Store the like, then add one."""
        self._client.put_item(TableName=self._table, Item=_like(post_id, user_id, now))
        _add(self._client, self._table, post_key(post_id)["PK"], 1)
        return True

    def unlike(self, post_id: str, user_id: str) -> bool:
        """Delete the like, then take one away."""
        self._client.delete_item(TableName=self._table, Key=_typed(like_key(post_id, user_id)))
        _add(self._client, self._table, post_key(post_id)["PK"], -1)
        return True


class Optimistic:
    """Store the like, then read the post and write it back with its version counted up, until nobody came between.

    Where somebody always does, the like is taken back and the caller told to come again, as the transactional path
    tells it.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._likes = _stream_path(setting)

    def like(self, post_id: str, user_id: str, now: int) -> bool:
        """Store the like unless it is there, and count it if it is new."""
        new = self._likes.like(post_id, user_id, now)
        if new and not self._count(post_id, 1):
            self._likes.unlike(post_id, user_id)
            raise BusyError(Kind.CONFLICT)
        return new

    def unlike(self, post_id: str, user_id: str) -> bool:
        """Delete the like if it is there, and uncount it if it was."""
        was_there = self._likes.unlike(post_id, user_id)
        if was_there and not self._count(post_id, -1):
            self._likes.like(post_id, user_id, int(self._setting.epoch()))
            raise BusyError(Kind.CONFLICT)
        return was_there

    def _count(self, post_id: str, delta: int) -> bool:
        client, table, key = self._setting.client, self._setting.table_name, _typed(post_key(post_id))
        for attempt in range(CONFLICT_RETRIES + 1):
            post = client.get_item(TableName=table, Key=key, ConsistentRead=True)["Item"]
            tally, version = int(post[TALLY]["N"]), int(post["version"]["N"])
            try:
                client.update_item(
                    TableName=table,
                    Key=key,
                    UpdateExpression="SET likeTally = :tally, version = :next",
                    ConditionExpression="version = :seen",
                    ExpressionAttributeValues={
                        ":tally": {"N": str(tally + delta)},
                        ":seen": {"N": str(version)},
                        ":next": {"N": str(version + 1)},
                    },
                )
            except ClientError as error:
                if kind_of(error) is not Kind.CONDITION:
                    raise
                self._setting.sleep(FIRST_WAIT_S * 2**attempt * self._setting.rng.random())
            else:
                return True
        return False


def _stream_path(setting: Setting) -> StreamPath:
    return StreamPath(setting.client, setting.table_name, Backoff(setting.sleep, setting.rng.random))


def _transaction_path(setting: Setting) -> TransactionPath:
    backoff = Backoff(setting.sleep, setting.rng.random)
    return TransactionPath(setting.client, setting.table_name, backoff, _RULES, setting.new_token)


def _stream_aggregator(setting: Setting) -> Aggregator:
    """Return the product's own: `tallystream.batches`, one parent after the other."""

    class Refuse:
        def send(self, message: object) -> None:
            raise RuntimeError(f"nothing here is uncountable: {message}")

    batches = Batches(
        table=DynamoDbTable(setting.client, setting.table_name),
        failures=Refuse(),
        rules=_RULES,
        concurrently=map,
        now=setting.epoch,
        sleep=setting.sleep,
        jitter=setting.rng.random,
    )
    return lambda event: batches.apply(event, lambda: _ONE_INVOCATION_MS).answer


def _blind_aggregator(setting: Setting) -> Aggregator:
    """Return what most published examples do: group the batch by parent, and `ADD` each sum."""

    def handler(event: dict[str, Any]) -> dict[str, Any]:
        deltas: Counter[str] = Counter()
        for record in filter(is_change, event["Records"]):
            deltas[record["dynamodb"]["Keys"]["PK"]["S"]] += 1 if record["eventName"] == "INSERT" else -1
        for partition, delta in deltas.items():
            _add(setting.client, setting.table_name, partition, delta)
        return {"batchItemFailures": []}

    return handler


def _powertools_aggregator(setting: Setting) -> Aggregator:
    """Return Powertools' `BatchProcessor` with one `ADD` a record."""
    processor = BatchProcessor(event_type=EventType.DynamoDBStreams)

    def count(record: DynamoDBRecord) -> None:
        keys = record.raw_event["dynamodb"]["Keys"]
        _add(
            setting.client, setting.table_name, keys["PK"]["S"], 1 if record.raw_event["eventName"] == "INSERT" else -1
        )

    return lambda event: cast("dict[str, Any]", process_partial_response(event, count, processor))


def _marker_aggregator(setting: Setting) -> Aggregator:
    """Return one transaction a record: the count, and an item that says that this record is in it."""

    def handler(event: dict[str, Any]) -> dict[str, Any]:
        for record in filter(is_change, event["Records"]):
            partition, number = record["dynamodb"]["Keys"]["PK"]["S"], record["dynamodb"]["SequenceNumber"]
            marker = {"PK": {"S": partition}, "SK": {"S": f"COUNTED#{number}"}}
            put = {
                "TableName": setting.table_name,
                "Item": marker,
                "ConditionExpression": "attribute_not_exists(PK)",
            }
            update = _addition(setting.table_name, partition, 1 if record["eventName"] == "INSERT" else -1)
            try:
                setting.client.transact_write_items(
                    TransactItems=cast("Any", [{"Put": put}, {"Update": update}]),
                    ClientRequestToken=setting.new_token(),
                )
            except ClientError as error:
                reasons = cast("dict[str, Any]", error.response).get("CancellationReasons", [{}])
                if kind_of_reason(reasons[0].get("Code", "")) is not Kind.CONDITION:
                    raise
        return {"batchItemFailures": []}

    return handler


def count_likes(client: "DynamoDBClient", table_name: str, post_id: str) -> int:
    """Return how many likes a post has, by counting them: a `Query` with `COUNT`, all pages."""
    key = like_key(post_id, "")
    start: dict[str, Any] = {}
    count = 0
    while True:
        page = client.query(
            TableName=table_name,
            Select="COUNT",
            KeyConditionExpression="PK = :pk AND begins_with(SK, :prefix)",
            ExpressionAttributeValues={":pk": {"S": key["PK"]}, ":prefix": {"S": key["SK"]}},
            **start,
        )
        count += page["Count"]
        if "LastEvaluatedKey" not in page:
            return count
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}


def post_item(post_id: str, body_bytes: int = BODY_BYTES) -> tuple[Key, dict[str, dict[str, Any]]]:
    """Return the key and the item of a new post; the optimistic path needs its version."""
    key = post_key(post_id)
    item = {
        **_typed(key),
        TALLY: {"N": "0"},
        "version": {"N": "0"},
        "body": {"S": "x" * body_bytes},
        "authorId": {"S": "00000000-0000-4000-8000-000000000000"},
        "createdAt": {"N": "1796040000"},
    }
    return (key["PK"], key["SK"]), item


def _addition(table_name: str, partition: str, delta: int) -> dict[str, Any]:
    return {
        "TableName": table_name,
        "Key": {"PK": {"S": partition}, "SK": {"S": META}},
        "UpdateExpression": "ADD likeTally :delta",
        "ExpressionAttributeValues": {":delta": {"N": str(delta)}},
    }


def _add(client: "DynamoDBClient", table_name: str, partition: str, delta: int) -> None:
    client.update_item(**_addition(table_name, partition, delta))


def _like(post_id: str, user_id: str, now: int) -> dict[str, Any]:
    return {**_typed(like_key(post_id, user_id)), "likedAt": {"N": str(now)}}


def _typed(key: dict[str, str]) -> dict[str, Any]:
    return {name: {"S": value} for name, value in key.items()}


def _all_at_once(_changes: int, parents: int) -> float:
    """Return how long 32 threads take for so many updates: at least as long as one takes."""
    return max(PUT_S, parents / PARENTS_PER_SECOND) if parents else 0.0


PATHS = {
    "stream": Path(
        "one conditional write; the stream is counted per parent and batch, with a mark (this product)",
        _stream_path,
        _stream_aggregator,
        windowed=True,
        seconds=_all_at_once,
    ),
    "transaction": Path(
        "the like and the count in one transaction (this product's other path)",
        _transaction_path,
        contention_s=HOLD_S,
    ),
    "unguarded": Path("two writes one after the other, without conditions", Unguarded, writes_per_like=2),
    "optimistic": Path(
        "the post's version is read, and written back if it is still the same",
        Optimistic,
        contention_s=OPTIMISTIC_WINDOW_S,
        writes_per_like=2,
    ),
    "blind": Path(
        "one conditional write; the stream is counted per parent and batch, without a mark",
        _stream_path,
        _blind_aggregator,
        seconds=_all_at_once,
    ),
    "powertools": Path(
        "one conditional write; Powertools' BatchProcessor adds one a record",
        _stream_path,
        _powertools_aggregator,
        seconds=lambda changes, _: changes * PUT_S,
        writes_each_record=True,
    ),
    "marker": Path(
        "one conditional write; a transaction a record adds one and stores that it did",
        _stream_path,
        _marker_aggregator,
        seconds=lambda changes, _: changes * TRANSACTION_S,
        writes_each_record=True,
    ),
    "count": Path("one conditional write; whoever reads counts the likes", _stream_path, counts_when_read=True),
}
