"""The table's stream and its event source mapping, in simulated time: shards, batches by window and size."""

import bisect
import random
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tallyctl.comparison.memory import Key
from tallyctl.comparison.published import INVOKE_S, POLL_S
from tallyctl.comparison.simulated import Clock
from tallystream.keys import LIKE_PREFIX

LONGEST_BATCH_WINDOW_S = 300
LARGEST_BATCH = 10_000
"""https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-params.html. A batch is also full at 6 MB: 10,000 records
with keys alone are some 4.5 MB, unless ids are long."""

SHARDS = 4
"""A new on-demand table takes 4,000 write units a second, which is four partitions, and each has a shard of its own.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html#on-demand-capacity-mode-initial"""

TUMBLING_WINDOW_S = 60
"""How often Lambda ends a window with one more invocation, as the template has it."""

Record: TypeAlias = dict[str, Any]
Aggregator: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""A function that takes an event of the stream and answers as Lambda wants it."""


@dataclass(slots=True)
class Shard:
    """What one partition of the table wrote to the stream and the mapping has not delivered yet, in order.

    `filtered`: the mapping passes on the INSERT and REMOVE of likes alone. A mapping with a tumbling window cannot
    filter, so that the counter's own writes come back as MODIFY.
    """

    number: int
    clock: Clock
    filtered: bool
    pending: list[tuple[str, float, Record]] = field(default_factory=list)
    """Sequence number, seconds since the start, record."""
    _written: int = 0

    def on_change(self, name: str, key: Key) -> None:
        """Write a record; what the table in memory calls."""
        if self.filtered and (name == "MODIFY" or not key[1].startswith(LIKE_PREFIX)):
            return
        self._written += 1
        epoch = self.clock.epoch()
        number = f"{round(epoch * 1e6):016d}{self._written:09d}"
        record = {
            "eventID": number,
            "eventName": name,
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": "us-east-1",
            "eventSourceARN": "arn:aws:dynamodb:us-east-1:111122223333:table/T/stream/2026-11-30T12:00:00.000",
            "dynamodb": {
                "ApproximateCreationDateTime": epoch,
                "Keys": {"PK": {"S": key[0]}, "SK": {"S": key[1]}},
                "SequenceNumber": number,
                "SizeBytes": sum(len(part.encode()) for part in key) + 4,
                "StreamViewType": "KEYS_ONLY",
            },
        }
        bisect.insort(self.pending, (number, self.clock.now, record), key=lambda entry: entry[0])

    def take(self, count: int) -> list[tuple[str, float, Record]]:
        """Return the first `count` records, which are delivered now."""
        taken, self.pending = self.pending[:count], self.pending[count:]
        return taken

    def event(self, records: list[Record]) -> dict[str, Any]:
        """Return the event for a batch; only a mapping with a tumbling window, which cannot filter, names the shard."""
        if self.filtered:
            return {"Records": records}
        shard_id = f"shardId-00000001796040000000-{self.number:08d}"
        return {"Records": records, "window": {}, "state": {}, "shardId": shard_id}


def shard_of(partition_key: str) -> int:
    """Return the number of the shard that holds a partition key."""
    return zlib.crc32(partition_key.encode()) % SHARDS


@dataclass(frozen=True, slots=True)
class Invocation:
    """One batch that was delivered: the shard, how many likes and unlikes of how many parents, and how long it took."""

    shard: int
    ended: float
    """When it ended, in seconds since the start."""
    changes: int
    parents: int
    seconds: float
    staleness_s: list[float]
    """Per change: from the write of the like until the invocation has ended."""


def deliver_all(
    shard: Shard,
    aggregator: Aggregator,
    seconds: Callable[[int, int], float],
    window_s: float,
    rng: random.Random,
) -> list[Invocation]:
    """Deliver all that is in a shard, one invocation at a time, and what those write to it as well.

    A batch is complete when its first record is `window_s` old or it has 10,000 records, and the former invocation has
    ended. An invocation that takes longer than its records take to come makes the next one larger, and later. Where
    the mapping has a tumbling window, each one ends with an invocation of its own.

    Args:
        shard: after, it is empty.
        aggregator: the function; it must answer that nothing failed.
        seconds: how long it runs for so many changes of so many parents.
        window_s: MaximumBatchingWindowInSeconds.
        rng: when Lambda happens to look at the shard.

    Raises:
        RuntimeError: a batch failed, though no fault was planted.
    """
    invocations: list[Invocation] = []
    windows: set[int] = set()
    free = 0.0
    while shard.pending:
        ready = max(shard.pending[0][1] + window_s, free)
        size = bisect.bisect_right(shard.pending, ready, key=lambda entry: entry[1])
        if size >= LARGEST_BATCH:
            size, ready = LARGEST_BATCH, max(shard.pending[LARGEST_BATCH - 1][1], free)
        batch = shard.take(size)
        changes = [(at, record) for _, at, record in batch if is_change(record)]
        parents = len({record["dynamodb"]["Keys"]["PK"]["S"] for _, record in changes})
        took = seconds(len(changes), parents)
        free = ready + rng.uniform(0, POLL_S) + INVOKE_S + took
        shard.clock.now = free
        answer = aggregator(shard.event([record for _, _, record in batch]))
        if answer["batchItemFailures"]:
            raise RuntimeError(f"a batch of {len(batch)} records failed without a fault: {answer}")
        invocations.append(
            Invocation(shard.number, free, len(changes), parents, took, [free - at for at, _ in changes])
        )
        windows.add(int(free // TUMBLING_WINDOW_S))
    if not shard.filtered:
        invocations += [Invocation(shard.number, free, 0, 0, 0.0, [])] * len(windows)
    return invocations


def is_change(record: Record) -> bool:
    """Return whether a record is of a like that came or went."""
    sort_key: str = record["dynamodb"]["Keys"]["SK"]["S"]
    return record["eventName"] != "MODIFY" and sort_key.startswith(LIKE_PREFIX)
