"""Our units against the consumed capacity that an emulator returns, request by request, on every path."""
# ruff: noqa: ANN401 - a request is whatever boto3's client takes

import contextlib
import itertools
import random
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import ClientError

from tallyctl.comparison.metering import Meter, MeteredDynamoDb
from tallyctl.comparison.paths import PATHS, Setting, count_likes, post_item
from tallyctl.comparison.simulated import Clock
from tallyctl.comparison.stream import Shard
from tallyctl.comparison.workloads import operations
from tallyctl.errors import TallyctlError
from tallystream.keys import META, POST_PREFIX

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from tallyctl.stack import Place

OPERATIONS = 24
"""How many likes each path plays; each is sent twice, and every third is taken back, twice as well."""

_BODIES = (200, 900, 1500, 5000)
"""Bytes of the posts' texts: below, at and above a write unit, and above a read unit."""

_RATE = 10.0


@dataclass(frozen=True, slots=True)
class Difference:
    """One kind of request that the emulator charges otherwise than we do, or answers otherwise."""

    path: str
    operation: str
    ours: str
    """Our units or the error code, as text."""
    emulator: str
    requests: int
    """How often."""


@dataclass(frozen=True, slots=True)
class Crosscheck:
    """What came of the comparison with the emulator."""

    requests: int
    same: int
    uncharged: int
    """Refused requests: DynamoDB says no capacity with an error, so that only the error was compared."""
    differences: list[Difference]
    milliseconds: dict[str, float]
    """Median time of each operation here, unseeded: good for ratios in this run and for nothing else."""

    def figures(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return {
            "requests": self.requests,
            "same": self.same,
            "uncharged": self.uncharged,
            "differences": [
                {name: getattr(difference, name) for name in Difference.__slots__} for difference in self.differences
            ],
            "measured": {"milliseconds_p50": {name: round(value, 3) for name, value in self.milliseconds.items()}},
        }


@dataclass(slots=True)
class _Notes:
    """What was seen so far: how each request was charged, and how long it took."""

    seen: dict[tuple[str, str, str, str], int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


class _Both:
    """A client that sends each request to the emulator and to the table in memory, and notes what each charged.

    The answer is the emulator's, so that a difference between the two shows in what follows as well.
    """

    def __init__(self, client: "DynamoDBClient", table: MeteredDynamoDb, path: str, notes: _Notes) -> None:
        self._client = client
        self._table = table
        self._path = path
        self._notes = notes

    def put_item(self, **request: Any) -> dict[str, Any]:
        return self._send("PutItem", "put_item", request)

    def update_item(self, **request: Any) -> dict[str, Any]:
        return self._send("UpdateItem", "update_item", request)

    def delete_item(self, **request: Any) -> dict[str, Any]:
        return self._send("DeleteItem", "delete_item", request)

    def get_item(self, **request: Any) -> dict[str, Any]:
        return self._send("GetItem", "get_item", request)

    def query(self, **request: Any) -> dict[str, Any]:
        return self._send("Query", "query", request)

    def transact_write_items(self, **request: Any) -> dict[str, Any]:
        return self._send("TransactWriteItems", "transact_write_items", request)

    def _send(self, operation: str, method: str, request: dict[str, Any]) -> dict[str, Any]:
        self._table.meter = Meter()
        try:
            getattr(self._table, method)(**request)
            ours = f"{self._table.meter.all_write_units + self._table.meter.all_read_units:g}"
        except ClientError as error:
            ours = error.response["Error"]["Code"]
        began = time.perf_counter()
        try:
            answer: dict[str, Any] = getattr(self._client, method)(**request, ReturnConsumedCapacity="TOTAL")
        except ClientError as error:
            self._note(operation, ours, error.response["Error"]["Code"])
            raise
        self._notes.seconds[operation].append(time.perf_counter() - began)
        consumed = answer.get("ConsumedCapacity", [])
        tables = consumed if isinstance(consumed, list) else [consumed]
        self._note(operation, ours, f"{sum(table['CapacityUnits'] for table in tables):g}")
        return answer

    def _note(self, operation: str, ours: str, theirs: str) -> None:
        self._notes.seen[self._path, operation, ours, theirs] += 1


def crosscheck(place: "Place", seed: int) -> Crosscheck:
    """Play a few dozen operations of every path against an emulator, and list where its units are not ours.

    A table is made for it and removed afterwards.

    Raises:
        TallyctlError: the place is the real AWS, where this would cost money and prove nothing about the rules.
    """
    if place.endpoint_url is None:
        raise TallyctlError("the cross-check needs an emulator: give --endpoint-url http://HOST:PORT")
    client = place.session.client("dynamodb")
    notes = _Notes()
    for name in PATHS:
        with _table(client) as table_name:
            _play(name, client, table_name, notes, seed)
    same = sum(count for (_, _, ours, theirs), count in notes.seen.items() if ours == theirs)
    return Crosscheck(
        requests=sum(notes.seen.values()),
        same=same,
        uncharged=sum(count for (_, _, ours, _), count in notes.seen.items() if not ours[0].isdigit()),
        differences=[
            Difference(path_name, operation, ours, theirs, count)
            for (path_name, operation, ours, theirs), count in sorted(notes.seen.items())
            if ours != theirs
        ],
        milliseconds={name: 1000 * median(seconds) for name, seconds in sorted(notes.seconds.items())},
    )


@contextlib.contextmanager
def _table(client: "DynamoDBClient") -> Iterator[str]:
    """Have a table of its own for as long as the block runs."""
    name = f"tallyctl-compare-{uuid.uuid4().hex[:12]}"
    client.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("PK", "SK")],
        KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
    )
    try:
        client.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1})
        yield name
    finally:
        client.delete_table(TableName=name)


def _play(name: str, client: "DynamoDBClient", table_name: str, notes: _Notes, seed: int) -> None:
    """Play likes, unlikes and repetitions on posts of several sizes, count what the stream holds, and read."""
    # Tokens of its own: DynamoDB remembers those of other tables as well.
    clock, rng, path = Clock(), random.Random(table_name), PATHS[name]
    shard = Shard(0, clock, filtered=not path.windowed)
    table = MeteredDynamoDb(shard.on_change if path.aggregator else None)
    played = operations("vote", OPERATIONS, _RATE, seed)
    posts = sorted({operation.post for operation in played})
    for post, body_bytes in zip(posts, itertools.cycle(_BODIES), strict=False):
        key, item = post_item(post, body_bytes)
        table.items[key] = item
        client.put_item(TableName=table_name, Item=item)
    both = cast("DynamoDBClient", _Both(client, table, name, notes))
    setting = Setting(both, table_name, clock.sleep, clock.epoch, rng)
    writer = path.writer(setting)
    for number, operation in enumerate(played):
        clock.now = operation.at
        # Twice, so that there are requests whose condition fails.
        for _ in range(2):
            writer.like(operation.post, operation.user, int(clock.epoch()))
        if number % 3 == 0:
            for _ in range(2):
                writer.unlike(operation.post, operation.user)
    if path.aggregator:
        aggregator = path.aggregator(setting)
        # Twice, as Lambda may deliver it.
        event = shard.event([record for _, _, record in shard.take(len(shard.pending))])
        for _ in range(2):
            aggregator(event)
    for post in posts:
        count_likes(both, table_name, post)
        both.get_item(TableName=table_name, Key={"PK": {"S": POST_PREFIX + post}, "SK": {"S": META}})
