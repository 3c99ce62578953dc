"""A DynamoDB client that lives in memory, at boto3's client boundary.

The product's own request building, error reading and retries run against it, in the tests and in the comparison.
`tests/contract.py` holds it, moto and the embedded AWS to the same answers. Only what is sent here is understood;
anything else fails loudly.
"""
# ruff: noqa: ANN401 - a request is whatever boto3's client takes, and an item's values are of many types

import functools
import re
import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from botocore.exceptions import ClientError

from tallyctl.comparison.costs import LARGEST_ITEM_BYTES, item_size

if TYPE_CHECKING:
    from botocore.exceptions import _ClientErrorResponseTypeDef

_TOKEN = re.compile(r"\s*(<=|>=|<>|[()=<>,+]|[#:]?[A-Za-z0-9_]+(?:\.#?[A-Za-z0-9_]+)*)")

_KEY_CONDITION = re.compile(r"[#\w]+ = (?P<pk>:\w+)(?: AND begins_with\([#\w]+, (?P<prefix>:\w+)\))?")

_T = TypeVar("_T")

Item: TypeAlias = dict[str, dict[str, Any]]
Key: TypeAlias = tuple[str, str]
Condition: TypeAlias = Callable[[Item, dict[str, str], dict[str, Any]], bool]
"""Whether a condition holds: for an item (empty if there is none), the expression's names and its values."""


def client_error(code: str, message: str = "", operation: str = "UpdateItem", **more: Any) -> ClientError:
    """Return the error that botocore raises for an answer of the service."""
    status = 500 if code in {"InternalServerError", "ServiceUnavailable"} else 400
    response = {"Error": {"Code": code, "Message": message or code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(cast("_ClientErrorResponseTypeDef", {**response, **more}), operation)


def invalid(message: str) -> ClientError:
    """Return a ValidationException."""
    return client_error("ValidationException", message)


class MemoryDynamoDb:
    """One table with the keys PK and SK.

    `on_change(name, key)` is told of each change that DynamoDB would write to the stream: INSERT, MODIFY or REMOVE; an
    update that changes nothing is none.
    """

    def __init__(self, on_change: Callable[[str, Key], None] | None = None) -> None:
        self.items: dict[Key, Item] = {}
        self.calls: list[tuple[str, Key]] = []
        self._applied: dict[str, list[dict[str, Any]]] = {}
        self.page_size = 1000
        """Items a page of a query or a scan, where DynamoDB's pages end at 1 MB."""
        self._on_change = on_change or (lambda *_: None)

    def update_item(self, **request: Any) -> dict[str, Any]:
        """Apply an `UpdateItem`: condition first, then the update, then its size."""
        key = key_of(request["Key"])
        self.calls.append(("UpdateItem", key))
        after = self._updated(request, key)
        self._store(key, after)
        kind = request.get("ReturnValues", "NONE")
        if kind not in {"NONE", "ALL_NEW"}:
            raise NotImplementedError(kind)
        return {"Attributes": _copied(after)} if kind == "ALL_NEW" else {}

    def put_item(self, **request: Any) -> dict[str, Any]:
        """Apply a `PutItem`."""
        key = key_of(request["Item"])
        self.calls.append(("PutItem", key))
        self._require(request, self.items.get(key))
        self._store(key, _copied(request["Item"]))
        return {}

    def delete_item(self, **request: Any) -> dict[str, Any]:
        """Apply a `DeleteItem`."""
        key = key_of(request["Key"])
        self.calls.append(("DeleteItem", key))
        self._require(request, self.items.get(key))
        if self.items.pop(key, None) is not None:
            self._on_change("REMOVE", key)
        return {}

    def get_item(self, **request: Any) -> dict[str, Any]:
        """Return an item."""
        item = self.items.get(key_of(request["Key"]))
        return {"Item": _copied(item)} if item else {}

    def query(self, **request: Any) -> dict[str, Any]:
        """Return a page of an item collection, by `PK = :pk` and `begins_with(SK, :prefix)`, names allowed."""
        values = request["ExpressionAttributeValues"]
        names = request.get("ExpressionAttributeNames", {})
        match = _KEY_CONDITION.fullmatch(request["KeyConditionExpression"])
        if not match:
            raise NotImplementedError(request["KeyConditionExpression"])
        partition_key, prefix = values[match["pk"]]["S"], values[match["prefix"]]["S"] if match["prefix"] else ""
        keys = sorted(key for key in self.items if key[0] == partition_key and key[1].startswith(prefix))
        return self._page(keys, request, names)

    def scan(self, **request: Any) -> dict[str, Any]:
        """Return a page of the table or of one of its segments, in which an item collection is all in one."""
        segment, segments = request.get("Segment", 0), request.get("TotalSegments", 1)
        keys = sorted(key for key in self.items if zlib.crc32(key[0].encode()) % segments == segment)
        return self._page(keys, request, request.get("ExpressionAttributeNames", {}))

    def _page(self, keys: list[Key], request: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
        """Return some items: after the start key, up to the limit, with the attributes that are asked for."""
        start = request.get("ExclusiveStartKey")
        left = [key for key in keys if not start or key > key_of(start)]
        page = left[: request.get("Limit", self.page_size)]
        shown = [_at(path.strip(), names)[0] for path in request.get("ProjectionExpression", "").split(",") if path]
        items = [self.items[key] for key in page]
        found = [{name: item[name] for name in shown or item if name in item} for item in items]
        answer: dict[str, Any] = {"Count": len(page), "ScannedCount": len(page)}
        if request.get("Select") != "COUNT":
            answer["Items"] = _copied(found)
        if len(page) < len(left):
            answer["LastEvaluatedKey"] = {"PK": {"S": page[-1][0]}, "SK": {"S": page[-1][1]}}
        return answer

    def transact_write_items(self, *, TransactItems: list[dict[str, Any]], **more: Any) -> dict[str, Any]:  # noqa: N803
        """Apply Puts, Updates and Deletes together, or none of them.

        A `ClientRequestToken` is remembered for ever, where DynamoDB forgets it after ten minutes. One that was
        applied changes nothing the second time.
        """
        token = more.get("ClientRequestToken")
        planned = [self._planned(*action) for entry in TransactItems for action in entry.items()]
        self.calls.append(("TransactWriteItems", planned[0][0]))
        if token is not None and token in self._applied:
            if self._applied[token] != TransactItems:
                raise client_error("IdempotentParameterMismatchException", operation="TransactWriteItems")
            return {}
        if len({key for key, _, _ in planned}) < len(planned):
            raise invalid("Transaction request cannot include multiple operations on one item")
        reasons = [reason for _, _, reason in planned]
        if any(reason["Code"] != "None" for reason in reasons):
            codes = ", ".join(reason["Code"] for reason in reasons)
            raise client_error(
                "TransactionCanceledException",
                f"Transaction cancelled, please refer cancellation reasons for specific reasons [{codes}]",
                "TransactWriteItems",
                CancellationReasons=reasons,
            )
        for key, after, _ in planned:
            if after is not None:
                self._store(key, after)
            elif self.items.pop(key, None) is not None:
                self._on_change("REMOVE", key)
        if token is not None:
            self._applied[token] = _copied(TransactItems)
        return {}

    def _planned(self, verb: str, part: dict[str, Any]) -> tuple[Key, Item | None, dict[str, Any]]:
        """Return the key of one action of a transaction, the item that it leaves, and why it cannot be."""
        key = key_of(part.get("Key") or part["Item"])
        after: Item | None = None
        try:
            if verb == "Update":
                after = self._updated(part, key)
            elif verb in {"Put", "Delete"}:
                self._require(part, self.items.get(key))
                after = _copied(part["Item"]) if verb == "Put" else None
            else:
                raise NotImplementedError(verb)
        except ClientError as error:
            return key, None, _reason(error)
        return key, after, {"Code": "None"}

    def _updated(self, request: dict[str, Any], key: Key) -> Item:
        """Return the item as an update would leave it."""
        names, values = request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})
        _check_all_used(names, values, request["UpdateExpression"] + " " + request.get("ConditionExpression", ""))
        before = self.items.get(key)
        self._require(request, before)
        after = _copied(before) if before else {"PK": {"S": key[0]}, "SK": {"S": key[1]}}
        _update(after, request["UpdateExpression"], names, values)
        if item_size(after) > LARGEST_ITEM_BYTES:
            raise invalid("Item size to update has exceeded the maximum allowed size")
        return after

    def _require(self, request: dict[str, Any], item: Item | None) -> None:
        condition = request.get("ConditionExpression")
        if not condition:
            return
        holds = _condition(condition)
        names, values = request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})
        if holds(item or {}, names, values):
            return
        more: dict[str, Any] = {}
        if item and request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD":
            more["Item"] = _copied(item)
        raise client_error("ConditionalCheckFailedException", "The conditional request failed", **more)

    def _store(self, key: Key, item: Item) -> None:
        before = self.items.get(key)
        self.items[key] = item
        if before is None:
            self._on_change("INSERT", key)
        elif before != item:
            self._on_change("MODIFY", key)


def _copied(value: _T) -> _T:
    """Return a copy of an item or of a part of a request; `copy.deepcopy` takes several times as long."""
    if isinstance(value, dict):
        return cast("_T", {name: _copied(inside) for name, inside in value.items()})
    if isinstance(value, list):
        return cast("_T", [_copied(inside) for inside in value])
    return value


def _reason(error: ClientError) -> dict[str, Any]:
    """Return the entry of CancellationReasons for the error that one action would meet by itself."""
    response = cast("dict[str, Any]", error.response)
    code = {"ConditionalCheckFailedException": "ConditionalCheckFailed", "ValidationException": "ValidationError"}
    reason = {"Code": code[response["Error"]["Code"]], "Message": response["Error"]["Message"]}
    return reason | ({"Item": response["Item"]} if "Item" in response else {})


def key_of(attributes: Item) -> Key:
    """Return the key in a request's `Key` or `Item`; an empty part is a ValidationException."""
    key = attributes["PK"]["S"], attributes["SK"]["S"]
    if not all(key):
        raise invalid("One or more parameter values are not valid: a key attribute is empty")
    return key


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
    return cast("dict[str, Any]", value)


@functools.lru_cache(4096)
def _condition(text: str) -> Condition:  # noqa: C901 - one small parser, read from top to bottom
    """Compile a condition expression: and, or, parentheses, two functions and the comparisons."""
    tokens = _TOKEN.findall(text)
    if re.sub(r"\s", "", "".join(tokens)) != re.sub(r"\s", "", text):
        raise NotImplementedError(text)
    position = 0

    def take(expected: str | None = None) -> str:
        nonlocal position
        token: str = tokens[position]
        if expected and token != expected:
            raise NotImplementedError(f"{expected} expected in {text}")
        position += 1
        return token

    def peek() -> str | None:
        return tokens[position].upper() if position < len(tokens) else None

    def either() -> Condition:
        terms = [both()]
        while peek() == "OR":
            take()
            terms.append(both())
        return lambda *at: any(term(*at) for term in terms)

    def both() -> Condition:
        terms = [term()]
        while peek() == "AND":
            take()
            terms.append(term())
        return lambda *at: all(part(*at) for part in terms)

    def term() -> Condition:
        first = take()
        if first == "(":
            inside = either()
            take(")")
            return inside
        if first in {"attribute_exists", "attribute_not_exists"}:
            take("(")
            path = take()
            take(")")
            there = first == "attribute_exists"
            return lambda item, names, _: (_read(item, _at(path, names)) is not None) is there
        operator, value = take(), take()
        return lambda item, names, values: _compare(_read(item, _at(first, names)), operator, values[value])

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
                item[name] = _copied(values[words[1]])
            else:
                number = item.get(name, {"N": "0"})
                if "N" not in number or "N" not in values[words[1]]:
                    raise invalid("An operand in the update expression has an incorrect data type")
                item[name] = {"N": str(Decimal(number["N"]) + Decimal(values[words[1]]["N"]))}
