"""A table in memory with its stream, for tests of what audits and repairs it: each write shows in the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from builders import NOW, SHARD, record
from fakes import FaultyDynamoDb
from tallystream.audit import Shards, Streamed
from tallystream.auditor import Auditor, overdue_after
from tallystream.changes import padded
from tallystream.dynamodb import DynamoDbItems, DynamoDbTable
from tallystream.rules import DEFAULT_COUNTERS, Rules
from tallystream.streams import Trimmed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.audit import Mark

DAY_S = 24 * 3600


class AuditedTable:
    """One table, its stream of one shard, and the time. Nobody counts: `Auditor` and the tests are all there is."""

    def __init__(self, counters: str = DEFAULT_COUNTERS) -> None:
        self.rules = Rules.parse(counters)
        self.clock = float(NOW)
        self.shard = SHARD
        self.table = FaultyDynamoDb(self._record)
        self.streamed: list[tuple[str, Streamed]] = []
        self.trimmed = 0
        """So many changes, from the oldest on, are gone from the stream."""
        self.read: list[str] = []
        """Partition keys whose changes were asked for."""
        self.caught_up = 0
        self._numbers = 700

    def now(self) -> float:
        """Return the time."""
        return self.clock

    def auditor(self, **changes: Any) -> Auditor:
        """Return an auditor of this table, which reads it one request after the other."""
        names = iter(range(1_000_000))
        parts = {
            "items": DynamoDbItems(self.table, "T", self.now),
            "stream": self,
            "table": DynamoDbTable(self.table, "T"),
            "rules": self.rules,
            "path": "stream",
            "overdue_s": overdue_after(DAY_S),
            "concurrently": map,
            "now": self.now,
            "new_name": lambda: f"repair-{next(names)}",
        }
        return Auditor(**{**parts, **changes})

    # What the app writes.

    def like(self, post: str, *users: str) -> None:
        """Store likes."""
        for user in users:
            self.table.put_item(Item={"PK": {"S": f"POST#{post}"}, "SK": {"S": f"LIKE#USER#{user}"}})

    def unlike(self, post: str, user: str) -> None:
        """Remove a like."""
        self.table.delete_item(Key={"PK": {"S": f"POST#{post}"}, "SK": {"S": f"LIKE#USER#{user}"}})

    def settle(self, post: str, tally: int | None = None, shard: str | None = None) -> None:
        """Have a post counted up to now: its tally, what its likes are if not told otherwise, and its mark."""
        key = (f"POST#{post}", "META")
        likes = sum(found[0] == key[0] and found[1].startswith("LIKE#USER#") for found in self.table.items)
        mark = {"seq": {"S": f"{self._numbers:040d}"}, "at": {"N": str(int(self.clock))}}
        name = "mark#" + (shard or self.shard).removeprefix("shardId-")
        self.table.items[key] |= {"likeTally": {"N": str(likes if tally is None else tally)}, name: {"M": mark}}

    def rest(self) -> None:
        """Let so much time pass that nothing that happened is in the stream any more."""
        self.clock += 2 * DAY_S
        self.trimmed = len(self.streamed)

    def posts(self) -> set[str]:
        """Return the posts whose items were read, each for itself: those that were not proved right by a scan."""
        return {key[0].removeprefix("POST#") for name, key in self.table.calls if name == "Query"}

    # The stream, as `auditor.Stream` and as the failure queue's messages need it.

    @property
    def shards(self) -> Shards:
        """The one shard, which is open."""
        return Shards({self.shard: None}, frozenset({self.shard}))

    def catch_up(self, reached: Mapping[str, Mark] | None = None) -> None:  # noqa: ARG002 - there is no delay here
        """Take the time that it takes."""
        self.caught_up += 1
        self.clock += 4

    def changes(self, partition_key: str) -> list[Streamed]:
        """Return the changes of one item collection."""
        self.read.append(partition_key)
        return [change for key, change in self.streamed[self.trimmed :] if key == partition_key]

    def records(self, shard: str, first: str, last: str) -> list[dict[str, Any]]:
        """Return the records that are named, as the stream has them."""
        found = [
            (key, change)
            for key, change in self.streamed[self.trimmed :]
            if change.shard == shard and (padded(first) or "") <= change.number <= (padded(last) or "")
        ]
        if not found or found[0][1].number != padded(first):
            raise Trimmed(f"the stream has no record {first} of {shard} any more")
        return [
            record("INSERT" if change.inserted else "REMOVE", change.number, (key, change.sort_key), at=change.made_at)
            for key, change in found
        ]

    def _record(self, name: str, key: tuple[str, str]) -> None:
        self._numbers += 1
        if name != "MODIFY" and self.rules.parents_of(key[1]):
            number = f"{self._numbers:040d}"
            change = Streamed(self.shard, number, key[1], name == "INSERT", int(self.clock))
            self.streamed.append((key[0], change))
