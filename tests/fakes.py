"""A DynamoDB client and an SQS client that live in memory, at boto3's client boundary.

The product's own request building, error reading and retries run against them. `tests/contract.py` holds the
fake, moto and the embedded AWS to the same answers. Only what the product sends is understood; anything else
fails loudly.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ReadTimeoutError

from builders import NOW
from tallystream.batches import Batches, Report
from tallystream.dynamodb import DynamoDbTable
from tallystream.failures import SqsFailures
from tallystream.rules import DEFAULT_COUNTERS, Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MAX_ITEM_BYTES = 400 * 1024
_TOKEN = re.compile(r"\s*(<=|>=|<>|[()=<>,+]|[#:]?[A-Za-z0-9_]+(?:\.#?[A-Za-z0-9_]+)*)")

Item = dict[str, dict[str, Any]]
Key = tuple[str, str]


def client_error(code: str, message: str = "", operation: str = "UpdateItem", **more: Any) -> ClientError:
    """Return the error that botocore raises for an answer of the service."""
    status = 500 if code in {"InternalServerError", "ServiceUnavailable"} else 400
    response = {"Error": {"Code": code, "Message": message or code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError({**response, **more}, operation)


def invalid(message: str) -> ClientError:
    """Return a ValidationException."""
    return client_error("ValidationException", message)


class FakeDynamoDb:
    """One table with the keys PK and SK.

    `on_change(name, key)` is told of each change that DynamoDB would write to the stream: INSERT, MODIFY or REMOVE; an
    update that changes nothing is none.
    """

    def __init__(self, on_change: Callable[[str, Key], None] | None = None) -> None:
        self.items: dict[Key, Item] = {}
        self.calls: list[tuple[str, Key]] = []
        self._on_change = on_change or (lambda *_: None)

    # What the product calls.

    def update_item(self, **request: Any) -> dict[str, Any]:
        """Apply an `UpdateItem`: condition first, then the update, then its size."""
        names, values = request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})
        condition = request.get("ConditionExpression", "")
        _check_all_used(names, values, request["UpdateExpression"] + " " + condition)
        key = _key(request["Key"])
        self.calls.append(("UpdateItem", key))
        before = self.items.get(key)
        self._require(request, before)
        after = copy.deepcopy(before) if before else {"PK": {"S": key[0]}, "SK": {"S": key[1]}}
        _update(after, request["UpdateExpression"], names, values)
        if _size(after) > MAX_ITEM_BYTES:
            raise invalid("Item size to update has exceeded the maximum allowed size")
        self._store(key, after)
        kind = request.get("ReturnValues", "NONE")
        if kind not in {"NONE", "ALL_NEW"}:
            raise NotImplementedError(kind)
        return {"Attributes": copy.deepcopy(after)} if kind == "ALL_NEW" else {}

    def put_item(self, **request: Any) -> dict[str, Any]:
        """Apply a `PutItem`."""
        key = _key(request["Item"])
        self.calls.append(("PutItem", key))
        self._require(request, self.items.get(key))
        self._store(key, copy.deepcopy(request["Item"]))
        return {}

    def delete_item(self, **request: Any) -> dict[str, Any]:
        """Apply a `DeleteItem`."""
        key = _key(request["Key"])
        self.calls.append(("DeleteItem", key))
        self._require(request, self.items.get(key))
        if self.items.pop(key, None) is not None:
            self._on_change("REMOVE", key)
        return {}

    def get_item(self, **request: Any) -> dict[str, Any]:
        """Return an item."""
        item = self.items.get(_key(request["Key"]))
        return {"Item": copy.deepcopy(item)} if item else {}

    # What a test asks.

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

    def _require(self, request: dict[str, Any], item: Item | None) -> None:
        condition = request.get("ConditionExpression")
        if not condition:
            return
        holds = _condition(condition)
        names, values = request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})
        if holds(item or {}, names, values):
            return
        more = {}
        if item and request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD":
            more["Item"] = copy.deepcopy(item)
        raise client_error("ConditionalCheckFailedException", "The conditional request failed", **more)

    def _store(self, key: Key, item: Item) -> None:
        before = self.items.get(key)
        self.items[key] = item
        if before is None:
            self._on_change("INSERT", key)
        elif before != item:
            self._on_change("MODIFY", key)


class FakeSqs:
    """One queue."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send_message(self, *, QueueUrl: str, MessageBody: str) -> dict[str, Any]:  # noqa: N803 - boto3's names
        """Keep a message."""
        assert QueueUrl
        self.messages.append(json.loads(MessageBody))
        return {}


def _key(attributes: Item) -> Key:
    key = attributes["PK"]["S"], attributes["SK"]["S"]
    if not all(key):
        raise invalid("One or more parameter values are not valid: a key attribute is empty")
    return key


def _size(item: Item) -> int:
    """Return an item's size in bytes, near enough for a limit: names and values as text."""
    return sum(len(name) + len(str(value)) for name, value in item.items())


def _check_all_used(names: dict[str, str], values: dict[str, Any], expressions: str) -> None:
    """DynamoDB refuses names and values that no expression uses, and expressions that use others."""
    used = set(re.findall(r"[#:][A-Za-z0-9_]+", expressions))
    if used != set(names) | set(values):
        raise invalid(f"unused or undefined in expressions: {sorted(used ^ (set(names) | set(values)))}")


def _at(path: str, names: dict[str, str]) -> list[str]:
    return [names[part] if part.startswith("#") else part for part in path.split(".")]


def _read(item: Item, path: list[str]) -> dict[str, Any] | None:
    """Return the value at a path; None if there is none, as where a step is no map."""
    value: Any = {"M": item}
    for part in path:
        value = value.get("M", {}).get(part) if isinstance(value, dict) else None
        if value is None:
            return None
    return value


@functools.lru_cache(4096)
def _condition(text: str) -> Any:  # noqa: C901 - one small parser, read from top to bottom
    """Compile a condition expression: and, or, parentheses, two functions and the comparisons."""
    tokens = _TOKEN.findall(text)
    if re.sub(r"\s", "", "".join(tokens)) != re.sub(r"\s", "", text):
        raise NotImplementedError(text)
    position = 0

    def take(expected: str | None = None) -> str:
        nonlocal position
        token = tokens[position]
        if expected and token != expected:
            raise NotImplementedError(f"{expected} expected in {text}")
        position += 1
        return token

    def peek() -> str | None:
        return tokens[position].upper() if position < len(tokens) else None

    def either() -> Any:
        terms = [both()]
        while peek() == "OR":
            take()
            terms.append(both())
        return lambda *at: any(term(*at) for term in terms)

    def both() -> Any:
        terms = [term()]
        while peek() == "AND":
            take()
            terms.append(term())
        return lambda *at: all(part(*at) for part in terms)

    def term() -> Any:
        token = take()
        if token == "(":
            inside = either()
            take(")")
            return inside
        if token in {"attribute_exists", "attribute_not_exists"}:
            take("(")
            path = take()
            take(")")
            there = token == "attribute_exists"
            return lambda item, names, _: (_read(item, _at(path, names)) is not None) is there
        operator, value = take(), take()
        return lambda item, names, values: _compare(_read(item, _at(token, names)), operator, values[value])

    compiled = either()
    if position != len(tokens):
        raise NotImplementedError(text)
    return compiled


def _compare(left: dict[str, Any] | None, operator: str, right: dict[str, Any]) -> bool:
    """Compare as DynamoDB does: values of different types, or a missing one, satisfy no comparison but <>."""
    if left is None or left.keys() != right.keys():
        return operator == "<>" and left is not None
    (kind,) = left
    a, b = (Decimal(left["N"]), Decimal(right["N"])) if kind == "N" else (left[kind], right[kind])
    return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "=": a == b, "<>": a != b}[operator]


def _update(item: Item, expression: str, names: dict[str, str], values: dict[str, Any]) -> None:
    """Apply SET, ADD and REMOVE of top-level attributes to an item."""
    clauses = re.split(r"\b(SET|ADD|REMOVE)\b", expression)[1:]
    touched: set[str] = set()
    for verb, body in zip(clauses[::2], clauses[1::2], strict=True):
        for action in body.split(","):
            words = action.replace("=", " ").split()
            (name,) = _at(words[0], names)
            if name in touched:
                raise invalid(f"Two document paths overlap with each other: {name}")
            touched.add(name)
            if verb == "REMOVE":
                item.pop(name, None)
            elif verb == "SET":
                item[name] = copy.deepcopy(values[words[1]])
            else:
                number = item.get(name, {"N": "0"})
                if "N" not in number or "N" not in values[words[1]]:
                    raise invalid("An operand in the update expression has an incorrect data type")
                item[name] = {"N": str(Decimal(number["N"]) + Decimal(values[words[1]]["N"]))}


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
        key = _key(request["Key"])
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
