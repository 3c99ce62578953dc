"""The table in memory with a meter: what each request would be charged on AWS."""
# ruff: noqa: ANN401 - a request is whatever boto3's client takes

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from tallyctl.comparison.costs import TRANSACTION_FACTOR, item_size, read_units, units_of_write
from tallyctl.comparison.memory import Item, Key, MemoryDynamoDb, key_of

PAGE_BYTES = 1024 * 1024
"""What a `Query` goes through before it returns a page.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Query.Pagination.html"""

_COUNT_OF_CHILDREN = "PK = :pk AND begins_with(SK, :prefix)"
_CHARGED_REFUSALS = {"ConditionalCheckFailedException", "TransactionCanceledException"}


@dataclass(slots=True)
class Meter:
    """Requests and units, by operation: `PutItem`, `UpdateItem` and so on."""

    requests: Counter[str] = field(default_factory=Counter)
    write_units: Counter[str] = field(default_factory=Counter)
    read_units: dict[str, float] = field(default_factory=dict)

    def charge(self, operation: str, *, writes: int = 0, reads: float = 0) -> None:
        """Add one request and its units."""
        self.requests[operation] += 1
        self.write_units[operation] += writes
        self.read_units[operation] = self.read_units.get(operation, 0) + reads

    @property
    def all_write_units(self) -> int:
        """Write units of all operations."""
        return self.write_units.total()

    @property
    def all_read_units(self) -> float:
        """Read units of all operations."""
        return sum(self.read_units.values())


class MeteredDynamoDb(MemoryDynamoDb):
    """The table in memory; `meter` has what AWS would charge for each request, refused ones included."""

    def __init__(self, on_change: Callable[[str, Key], None] | None = None) -> None:
        super().__init__(on_change)
        self.meter = Meter()
        self._sorted: tuple[int, dict[str, list[str]]] = (-1, {})

    def update_item(self, **request: Any) -> dict[str, Any]:
        """Apply an `UpdateItem` and charge it."""
        return self._metered("UpdateItem", super().update_item, request)

    def put_item(self, **request: Any) -> dict[str, Any]:
        """Apply a `PutItem` and charge it."""
        return self._metered("PutItem", super().put_item, request)

    def delete_item(self, **request: Any) -> dict[str, Any]:
        """Apply a `DeleteItem` and charge it."""
        return self._metered("DeleteItem", super().delete_item, request)

    def transact_write_items(self, *, TransactItems: list[dict[str, Any]], **more: Any) -> dict[str, Any]:  # noqa: N803
        """Apply a transaction and charge it: twice what its items cost alone.

        Repeated with the token of one that was applied, it is charged as a transaction that reads the items.
        """
        keys = [key_of(part.get("Key") or part["Item"]) for entry in TransactItems for part in entry.values()]
        before = [self.items.get(key) for key in keys]
        repeated = more.get("ClientRequestToken") in self._applied
        refused = False
        try:
            return super().transact_write_items(TransactItems=TransactItems, **more)
        except ClientError:
            refused = True
            raise
        finally:
            if repeated:
                sizes = [item_size(item or {}) for item in before]
                reads = sum(read_units(size, consistent=True) for size in sizes) * TRANSACTION_FACTOR
                self.meter.charge("TransactWriteItems", reads=reads)
            else:
                after = before if refused else [self.items.get(key) for key in keys]
                units = sum(map(units_of_write, before, after)) * TRANSACTION_FACTOR
                self.meter.charge("TransactWriteItems", writes=units)

    def get_item(self, **request: Any) -> dict[str, Any]:
        """Return an item and charge the read."""
        size = item_size(self.items.get(key_of(request["Key"]), {}))
        self.meter.charge("GetItem", reads=read_units(size, consistent=request.get("ConsistentRead", False)))
        return super().get_item(**request)

    def query(self, **request: Any) -> dict[str, Any]:
        """Count the items of a partition whose sort key has a prefix, page by page, and charge the read."""
        if request["Select"] != "COUNT" or request["KeyConditionExpression"] != _COUNT_OF_CHILDREN:
            raise NotImplementedError(request)
        values = request["ExpressionAttributeValues"]
        partition, prefix = values[":pk"]["S"], values[":prefix"]["S"]
        start = request["ExclusiveStartKey"]["SK"]["S"] if "ExclusiveStartKey" in request else ""
        size = count = 0
        last: str | None = None
        for sort_key in self._sort_keys().get(partition, []):
            if size >= PAGE_BYTES:
                break
            if sort_key <= start or not sort_key.startswith(prefix):
                continue
            size += item_size(self.items[partition, sort_key])
            count, last = count + 1, sort_key
        self.meter.charge("Query", reads=read_units(size, consistent=request.get("ConsistentRead", False)))
        answer: dict[str, Any] = {"Count": count, "ScannedCount": count}
        if size >= PAGE_BYTES:
            answer["LastEvaluatedKey"] = {"PK": {"S": partition}, "SK": {"S": last}}
        return answer

    def _sort_keys(self) -> dict[str, list[str]]:
        """Return each partition's sort keys in order; kept until the next write."""
        if self._sorted[0] != len(self.calls):
            partitions: dict[str, list[str]] = {}
            for partition, sort_key in sorted(self.items):
                partitions.setdefault(partition, []).append(sort_key)
            self._sorted = len(self.calls), partitions
        return self._sorted[1]

    def charge_refusal(self, operation: str, key: Key) -> None:
        """Charge a write whose condition failed on an item, without making it."""
        item = self.items.get(key)
        self.meter.charge(operation, writes=units_of_write(item, item))

    def _metered(self, operation: str, send: Callable[..., dict[str, Any]], request: dict[str, Any]) -> dict[str, Any]:
        key = key_of(request.get("Key") or request["Item"])
        before: Item | None = self.items.get(key)
        try:
            answer = send(**request)
        except ClientError as error:
            if error.response["Error"]["Code"] in _CHARGED_REFUSALS:
                self.charge_refusal(operation, key)
            raise
        self.meter.charge(operation, writes=units_of_write(before, self.items.get(key)))
        return answer
