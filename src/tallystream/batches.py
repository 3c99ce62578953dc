"""How one batch is applied and answered: each parent once, all at a time, and what is left is reported to Lambda.

The rules that Lambda sets for the answer:
https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-batchfailurereporting.html and, for windows,
https://docs.aws.amazon.com/lambda/latest/dg/services-ddb-windows.html.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tallystream.changes import Change, Grouped, ParentKey, Record, group, net
from tallystream.counters import LANE_WITHOUT_SHARDS, Retryable, Share, Table, count
from tallystream.rules import Rules

RESERVE_MS = 1500
"""No update is begun with less time left, so that the answer can still go. A kill is harmless, but costs a delivery."""

PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0)
"""How long to wait, at most, before parents that were refused are tried again; then they are reported."""

_SECONDS_A_RECORD_LIVES = 24 * 3600
_REMEMBERED_PARENTS = 10_000
_MOST_NOTES = 20


class NotAStreamEvent(ValueError):
    """The event is not a batch of a DynamoDB stream."""


class NoSequenceNumber(ValueError):
    """A record that counts has no usable sequence number, so that it can neither be marked nor be reported."""


class Failures(Protocol):
    """The port to the failure queue."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Put one message on the queue; raise Retryable if it was not taken."""


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a batch: the answer for Lambda, and figures for the log and the metrics."""

    answer: dict[str, Any]
    figures: dict[str, int]
    """In records: received = counted + ignored + duplicates + orphaned + failed. `malformed` are among the ignored,
    `uncountable` (sent to the failure queue) among the failed. In parents: parents, negative. In requests: writes."""
    notes: list[dict[str, Any]]
    """What somebody should look at: one entry a malformed record, orphaned, uncountable or negative parent."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Applies batches to one table. Everything that is not a function of the batch comes in here."""

    table: Table
    failures: Failures
    rules: Rules
    concurrently: Callable[[Callable[[Share], None], Sequence[Share]], Iterable[None]]
    """Applies a function to each share; several at a time, in no particular order, raising what one of them raised."""
    now: Callable[[], float]
    sleep: Callable[[float], None]
    jitter: Callable[[], float]
    """A number from 0 to 1, another one at each call."""
    stale: dict[ParentKey, tuple[str, ...]] = field(default_factory=dict)
    """Marks that a former write saw to be stale, for the parent's next write to remove. May be lost at any time."""

    def apply(self, event: Mapping[str, Any], remaining_ms: Callable[[], int]) -> Report:
        """Bring a batch into the tallies of its parents, and say what is left to be delivered again.

        After: each change is counted exactly once, found to be counted already, orphaned, or on the failure queue;
        or the answer names the lowest sequence number that is not, and Lambda delivers again from there on.

        Args:
            event: what the event source mapping sends.
            remaining_ms: how many milliseconds this invocation has left.

        Raises:
            NotAStreamEvent: `event` is no batch of a stream.
            NoSequenceNumber: see there; raised when all other records have been applied.
            Exception: whatever the table raises that is neither `Retryable` nor `Uncountable`.
        """
        records = _records(event)
        delivery = _Delivery(records, _lane(event), int(self.now()), remaining_ms)
        grouped = group(records, self.rules)
        shares = [
            Share(parent, changes, _made_at(records[changes[-1][3]], delivery.now))
            for parent, changes in grouped.parents.items()
        ]
        left = self._settle(shares, delivery)
        if grouped.unnumbered:
            raise NoSequenceNumber(
                f"{len(grouped.unnumbered)} of {len(records)} records have no usable SequenceNumber, the first of them "
                f"at position {grouped.unnumbered[0]}; the others were applied"
            )
        answer: dict[str, Any] = {"batchItemFailures": []}
        if left:
            lowest = min(share.left[0] for share in left)
            answer["batchItemFailures"] = [{"itemIdentifier": _sequence_number(records, lowest)}]
        if "window" in event:
            # Without a state, Lambda takes the invocation of a window for a failed one. Nothing is kept in it.
            answer["state"] = {}
        return Report(answer, _figures(len(records), grouped, shares), _notes(records, grouped, shares))

    def _settle(self, shares: list[Share], delivery: "_Delivery") -> list[Share]:
        """Count the shares, again and again while there is time and some were refused; return those still left."""
        left = shares
        for pause in (*PAUSES_SECONDS, math.inf):
            # The iteration is what raises: an unexpected error ends the invocation, and Lambda delivers again.
            for _ in self.concurrently(lambda share: self._count(share, delivery), left):
                pass
            left = [share for share in left if share.left and not share.on_queue]
            wait = pause * (0.5 + self.jitter() / 2)
            if not left or delivery.remaining_ms() - wait * 1000 <= RESERVE_MS:
                break
            self.sleep(wait)
        return left

    def _count(self, share: Share, delivery: "_Delivery") -> None:
        """Count one share, or hand it to the failure queue if that can never succeed; leave it as it is on trouble."""
        if delivery.remaining_ms() <= RESERVE_MS:
            share.trouble = "no time left"
            return
        try:
            count(self.table, share, delivery.lane, delivery.now, self.stale.pop(share.parent, ()))
            if share.uncountable:
                self.failures.send(_message(share, delivery))
                share.on_queue = True
        except Retryable as error:
            share.trouble = str(error)
        if share.stale:
            if len(self.stale) >= _REMEMBERED_PARENTS:
                self.stale.clear()
            self.stale[share.parent] = share.stale


@dataclass(frozen=True, slots=True)
class _Delivery:
    """One delivery of a batch: its records, the lane of their marks, when it came, and the time that it has left."""

    records: Sequence[Record]
    lane: str
    now: int
    remaining_ms: Callable[[], int]


def _records(event: Mapping[str, Any]) -> list[Record]:
    """Return the event's records. The last invocation of a window may have none."""
    records = event.get("Records", [] if "window" in event else None)
    if not isinstance(records, list):
        raise NotAStreamEvent("the event has no list of Records: this function takes batches of a DynamoDB stream")
    return records


def _lane(event: Mapping[str, Any]) -> str:
    """Return the shard id, which is in the event only if the event source mapping has a tumbling window."""
    shard_id = event.get("shardId")
    return shard_id if isinstance(shard_id, str) and shard_id else LANE_WITHOUT_SHARDS


def _made_at(record: Record, now: int) -> int:
    """Return when a record was made, in epoch seconds; now, if what it says cannot be."""
    stamp = record["dynamodb"].get("ApproximateCreationDateTime")
    # A record is delivered within 24 hours. An earlier stamp would have its mark removed while it is still needed.
    if isinstance(stamp, int | float) and now - _SECONDS_A_RECORD_LIVES <= stamp <= now:
        return int(stamp)
    return now


def _sequence_number(records: Sequence[Record], change: Change) -> str:
    """Return the sequence number of a change's record as the record has it: what Lambda takes as an identifier."""
    number: str = records[change[3]]["dynamodb"]["SequenceNumber"]
    return number


def _message(share: Share, delivery: _Delivery) -> dict[str, Any]:
    """Return all that is needed to repair a parent whose changes cannot be counted.

    Messages may overlap, since what is delivered again is sent again: a repair audits the parent, it never adds
    `deltas` blindly.
    """
    first, last = share.left[0], share.left[-1]
    return {
        "parent": {"PK": share.parent[0], "SK": share.parent[1]},
        "deltas": net(share.left),
        "shard": delivery.lane,
        "first": _sequence_number(delivery.records, first),
        "last": _sequence_number(delivery.records, last),
        "streamArn": delivery.records[first[3]].get("eventSourceARN"),
        "reason": share.uncountable,
    }


def _figures(received: int, grouped: Grouped, shares: list[Share]) -> dict[str, int]:
    """Return the figures of `Report`. A record that counts on two parents is where it fared worse."""
    failed = {change[3] for share in shares for change in share.left}
    orphaned = {change[3] for share in shares for change in share.orphaned} - failed
    duplicates = {change[3] for share in shares for change in share.duplicates} | grouped.repeated
    duplicates -= failed | orphaned
    return {
        "received": received,
        "counted": received - grouped.ignored - len(failed) - len(orphaned) - len(duplicates),
        "ignored": grouped.ignored,
        "malformed": len(grouped.malformed),
        "duplicates": len(duplicates),
        "orphaned": len(orphaned),
        "failed": len(failed),
        "uncountable": len({change[3] for share in shares if share.on_queue for change in share.left}),
        "parents": len(shares),
        "writes": sum(share.writes for share in shares),
        "negative": sum(share.negative for share in shares),
    }


def _notes(records: Sequence[Record], grouped: Grouped, shares: list[Share]) -> list[dict[str, Any]]:
    """Return what somebody should look at, a few of each kind at most: a log is no place for a whole batch."""
    notes: list[dict[str, Any]] = [
        {"note": "malformed record ignored", "position": position, "record": repr(records[position])[:500]}
        for position in grouped.malformed[:_MOST_NOTES]
    ]
    for label, said in (
        ("orphaned: the parent does not exist", [(share, None) for share in shares if share.orphaned]),
        ("uncountable: on the failure queue", [(share, share.uncountable) for share in shares if share.on_queue]),
        ("failed: to be delivered again", [(s, s.trouble) for s in shares if s.left and not s.on_queue]),
        ("negative tally", [(share, None) for share in shares if share.negative]),
    ):
        notes += [{"note": label, "parent": share.parent, "reason": reason} for share, reason in said[:_MOST_NOTES]]
    return notes
