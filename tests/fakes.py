"""The DynamoDB client in memory with what tests ask of it, an SQS client in memory, and the product on both."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ReadTimeoutError

from builders import NOW
from tallyctl.comparison.memory import Key, MemoryDynamoDb, client_error, key_of
from tallystream.batches import Batches, Report
from tallystream.dynamodb import DynamoDbTable
from tallystream.failures import SqsFailures
from tallystream.rules import DEFAULT_COUNTERS, Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [  # client_error too: the tests plant what the table in memory raises
    "LOST",
    "FakeDynamoDb",
    "FakeSqs",
    "FaultyDynamoDb",
    "batches_on",
    "check_answer",
    "client_error",
    "deliver",
    "replay",
    "reported",
]


class FakeDynamoDb(MemoryDynamoDb):
    """The table in memory, with what a test asks of it."""

    def tally(self, post: str, attribute: str = "likeTally") -> int | None:
        """Return a post's tally as a number; None if it has none."""
        value = self.items.get((f"POST#{post}", "META"), {}).get(attribute, {}).get("N")
        return None if value is None else int(value)

    def marks(self, post: str) -> dict[str, Any]:
        """Return a post's marks."""
        item = self.items.get((f"POST#{post}", "META"), {})
        return {name: value["M"] for name, value in item.items() if name.startswith("mark#")}

    def add_post(self, post: str, **attributes: dict[str, Any]) -> None:
        """Store a post with a tally of zero."""
        key = (f"POST#{post}", "META")
        self._store(key, {"PK": {"S": key[0]}, "SK": {"S": key[1]}, "likeTally": {"N": "0"}, **attributes})

    def writes(self, operation: str = "UpdateItem") -> int:
        """Return how many calls of an operation were made, refused ones included."""
        return sum(name == operation for name, _ in self.calls)


class FakeSqs:
    """One queue."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> dict[str, Any]:  # noqa: N803 - boto3's names
        """Keep a message."""
        assert QueueUrl
        self.messages.append(json.loads(MessageBody))
        return {}


LOST = ReadTimeoutError(endpoint_url="https://dynamodb.eu-west-1.amazonaws.com")
"""Planted as a fault: the update is applied or refused, but the answer is lost on the way."""


class FaultyDynamoDb(FakeDynamoDb):
    """The fake with planted faults."""

    def __init__(self, on_change: Callable[[str, Key], None] | None = None) -> None:
        super().__init__(on_change)
        self._faults: dict[Key, Iterator[Exception | None]] = {}

    def plant(self, post: str, faults: Iterable[Exception | None], sort_key: str = "META") -> None:
        """Let the next updates of a parent meet these faults, one each; None is none."""
        self._faults[(f"POST#{post}", sort_key)] = iter(faults)

    def update_item(self, **request: Any) -> dict[str, Any]:
        """Apply an `UpdateItem` unless a planted fault comes first."""
        key = key_of(request["Key"])
        fault = next(self._faults.get(key, iter(())), None)
        if fault is None:
            return super().update_item(**request)
        if fault is LOST:
            # A refusal is lost as well.
            with contextlib.suppress(ClientError):
                super().update_item(**request)
        else:
            self.calls.append(("UpdateItem", key))
        raise fault


def batches_on(client: Any, queue: Any = None, *, rules: str = DEFAULT_COUNTERS, **changes: Any) -> Batches:
    """Return the product on these clients: one parent after the other, at a fixed time, and it sleeps only on paper."""
    parts = {
        "table": DynamoDbTable(client, "T"),
        "failures": SqsFailures(queue or FakeSqs(), "https://sqs.eu-west-1.amazonaws.com/111122223333/failed"),
        "rules": Rules.parse(rules),
        "concurrently": map,
        "now": lambda: float(NOW),
        "sleep": lambda _: None,
        "jitter": lambda: 1.0,
    }
    return Batches(**{**parts, **changes})


def deliver(batches: Batches, event: dict[str, Any], remaining_ms: Callable[[], int] = lambda: 60_000) -> Report:
    """Deliver a batch; whatever the test is about, the answer is one that Lambda takes and the figures add up."""
    report = batches.apply(event, remaining_ms)
    check_answer(event, report.answer)
    figures = report.figures
    assert all(type(figure) is int and figure >= 0 for figure in figures.values()), figures
    settled = ("counted", "ignored", "duplicates", "orphaned", "failed")
    assert figures["received"] == len(event.get("Records", [])) == sum(figures[name] for name in settled), figures
    assert figures["malformed"] <= figures["ignored"]
    assert figures["uncountable"] <= figures["failed"]
    assert (figures["failed"] > figures["uncountable"]) is bool(report.answer["batchItemFailures"]), figures
    return report


def check_answer(event: dict[str, Any], answer: dict[str, Any]) -> None:
    """Hold an answer to Lambda's rules: one that breaks them is a failed batch or, worse, a silent success."""
    assert set(answer) == ({"batchItemFailures", "state"} if "window" in event else {"batchItemFailures"})
    assert answer.get("state", {}) == {}
    numbers = _numbers(event.get("Records", []))
    assert len(answer["batchItemFailures"]) <= 1
    for failure in answer["batchItemFailures"]:
        assert set(failure) == {"itemIdentifier"}
        assert type(failure["itemIdentifier"]) is str
        assert failure["itemIdentifier"] in numbers


def reported(report: Report) -> str | None:
    """Return the sequence number that an answer reports; None if it reports none."""
    failures = report.answer["batchItemFailures"]
    return failures[0]["itemIdentifier"] if failures else None


def replay(batches: Batches, event: dict[str, Any], deliveries: int = 10) -> list[dict[str, Any]]:
    """Deliver as Lambda does until nothing is left; return the records that are left after so many deliveries.

    A raised error brings all records again, a reported one brings the records from that one on.
    """
    left = event["Records"]
    for _ in range(deliveries):
        try:
            number = reported(deliver(batches, {**event, "Records": left}))
        except Exception:  # noqa: BLE001, S112 - Lambda takes any error so
            continue
        if number is None:
            return []
        left = left[_numbers(left).index(number) :]
    return left


def _numbers(records: list[Any]) -> list[Any]:
    """Return the records' sequence numbers; None for a record that has none."""
    found = [record.get("dynamodb") if isinstance(record, dict) else None for record in records]
    return [data.get("SequenceNumber") if isinstance(data, dict) else None for data in found]
