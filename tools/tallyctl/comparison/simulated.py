"""DynamoDB in simulated time: requests take time, get in each other's way, and meet the faults that are armed.

Everything is deterministic. One operation is played to its end before the next one begins, with a clock of its own
start; `Contention` remembers which items were taken when, so that operations that overlap in time meet all the same.
"""
# ruff: noqa: ANN401 - a request is whatever boto3's client takes

import bisect
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from tallyctl.comparison.memory import Key, client_error, key_of
from tallyctl.comparison.metering import MeteredDynamoDb
from tallyctl.comparison.published import SERVICE_S

EPOCH = 1_796_040_000
"""2026-11-30T12:00:00Z: what the simulated clocks call zero."""

SDK_ATTEMPTS = 3
"""How often the SDK sends a request, as both functions configure it."""

_WRITES = {"PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems"}


class Killed(BaseException):
    """The process that sent the request is dead. No code of its own goes on: nothing may catch this as an error."""


@dataclass(slots=True)
class Clock:
    """Simulated time: seconds since the start."""

    now: float = 0.0

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def epoch(self) -> float:
        """Return the time in epoch seconds."""
        return EPOCH + self.now


@dataclass(slots=True)
class Contention:
    """Which items were written when. Two attempts on one item less than `length_s` apart conflict; the first one holds.

    An operation that retries takes its later times before operations that begin in between are played: those then lose
    where the retry would have lost. How many lose is the same.
    """

    length_s: float
    _taken: dict[Key, list[float]] = field(default_factory=dict)

    def blocked(self, key: Key, at: float) -> bool:
        """Return whether an attempt at this time meets another one."""
        times = self._taken.get(key, [])
        place = bisect.bisect_right(times, at - self.length_s)
        return place < len(times) and times[place] < at + self.length_s

    def take(self, key: Key, at: float) -> None:
        """Remember an attempt that went through."""
        bisect.insort(self._taken.setdefault(key, []), at)


@dataclass(slots=True)
class Fault:
    """One fault that waits for its request: the `nth` write from now on, from 0; of one partition, if that is given.

    Kinds: `lost` (applied, the answer is lost, the SDK sends it again), `throttled` (refused as often as the SDK sends
    it, and once more), `killed_before` and `killed_after` (the process dies before or after the write is applied).
    """

    kind: str
    nth: int = 0
    partition: str | None = None
    refusals: int = SDK_ATTEMPTS + 1

    def strikes(self, key: Key) -> bool:
        """Return whether this write is the one; call it once a write."""
        if self.partition not in {None, key[0]}:
            return False
        self.nth -= 1
        return self.nth < 0


class SimulatedDynamoDb:
    """boto3's client of the table in memory, with the SDK's retries.

    `round_trips` and `conflicts` count what was sent and what met another operation. `fault` is what the next write
    meets; None is nothing. Without a `clock`, requests take no time.
    """

    def __init__(
        self, table: MeteredDynamoDb, clock: Clock | None = None, contention: Contention | None = None
    ) -> None:
        self.table = table
        self.round_trips = 0
        self.conflicts = 0
        self.fault: Fault | None = None
        self._clock = clock
        self._contention = contention

    def put_item(self, **request: Any) -> dict[str, Any]:
        """Send a `PutItem`."""
        return self._send("PutItem", self.table.put_item, request, key_of(request["Item"]))

    def delete_item(self, **request: Any) -> dict[str, Any]:
        """Send a `DeleteItem`."""
        return self._send("DeleteItem", self.table.delete_item, request, key_of(request["Key"]))

    def get_item(self, **request: Any) -> dict[str, Any]:
        """Send a `GetItem`."""
        return self._send("GetItem", self.table.get_item, request, key_of(request["Key"]))

    def query(self, **request: Any) -> dict[str, Any]:
        """Send a `Query`."""
        return self._send("Query", self.table.query, request, None)

    def update_item(self, **request: Any) -> dict[str, Any]:
        """Send an `UpdateItem`. Where there is contention, a conditional one fails if another came between."""
        return self._send("UpdateItem", self._update, request, key_of(request["Key"]))

    def transact_write_items(self, **request: Any) -> dict[str, Any]:
        """Send a transaction. Where there is contention, it is cancelled if another one has an item of it."""
        (part,) = request["TransactItems"][0].values()
        return self._send("TransactWriteItems", self._transact, request, key_of(part.get("Key") or part["Item"]))

    def _update(self, **request: Any) -> dict[str, Any]:
        if self._contention and self._clock and "ConditionExpression" in request:
            key = key_of(request["Key"])
            if self._contention.blocked(key, self._clock.now):
                self.conflicts += 1
                self.table.charge_refusal("UpdateItem", key)
                raise client_error("ConditionalCheckFailedException")
            self._contention.take(key, self._clock.now)
        return self.table.update_item(**request)

    def _transact(self, **request: Any) -> dict[str, Any]:
        if self._contention and self._clock:
            keys = [key_of(part.get("Key") or part["Item"]) for e in request["TransactItems"] for part in e.values()]
            blocked = [self._contention.blocked(key, self._clock.now) for key in keys]
            if any(blocked):
                self.conflicts += 1
                # Counted, not charged: no document that was read says what a transaction costs that met another one.
                self.table.meter.charge("TransactWriteItems")
                reasons = [{"Code": "TransactionConflict" if met else "None"} for met in blocked]
                raise client_error(
                    "TransactionCanceledException", operation="TransactWriteItems", CancellationReasons=reasons
                )
            for key in keys:
                self._contention.take(key, self._clock.now)
        return self.table.transact_write_items(**request)

    def _send(
        self, operation: str, send: Callable[..., dict[str, Any]], request: dict[str, Any], key: Key | None
    ) -> dict[str, Any]:
        for _ in range(SDK_ATTEMPTS):
            self.round_trips += 1
            if self._clock:
                self._clock.sleep(SERVICE_S[operation])
            kind = self._fault_of(operation, key)
            if kind is None:
                return send(**request)
            if kind in {"lost", "killed_after"}:
                # A refusal is lost as well.
                with contextlib.suppress(ClientError):
                    send(**request)
            if kind.startswith("killed"):
                raise Killed
        raise client_error("ThrottlingException", operation=operation)

    def _fault_of(self, operation: str, key: Key | None) -> str | None:
        """Return the kind of the fault that this attempt meets; a fault strikes once, a throttle several times."""
        fault = self.fault
        if fault is None or key is None or operation not in _WRITES or not fault.strikes(key):
            return None
        if fault.kind == "throttled":
            fault.refusals -= 1
        if fault.kind != "throttled" or fault.refusals == 0:
            self.fault = None
        return fault.kind
