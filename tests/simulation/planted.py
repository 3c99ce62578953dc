"""Bugs that people write, planted into the product one at a time, to see that the simulation finds each.

A bug is a function that patches the product through pytest's monkeypatch. What is patched is the product's own code,
so that everything else stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from simulation.world import aggregator
from tallystream import batches, changes, counters
from tallystream.batches import Batches
from tallystream.changes import net
from tallystream.counters import Answer, Retryable, Uncountable
from tallystream.dynamodb import DynamoDbTable

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

_request, _settle, _count, _group = counters._request, Batches._settle, Batches._count, changes.group
_update, _handler, _removal = DynamoDbTable.update, aggregator.handler, counters._removal


def _with_request(patch: pytest.MonkeyPatch, change: Callable[[dict[str, Any]], None]) -> None:
    def request(*arguments: Any) -> dict[str, Any]:
        made = _request(*arguments)
        change(made)
        text = made["UpdateExpression"] + made["ConditionExpression"]
        for kind in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
            made[kind] = {name: value for name, value in made[kind].items() if name in text}
        return made

    patch.setattr(counters, "_request", request)


def blind_add(patch: pytest.MonkeyPatch) -> None:
    """The counter that everybody writes: `ADD`, and no mark at all."""

    def change(made: dict[str, Any]) -> None:
        made["UpdateExpression"] = made["UpdateExpression"].removeprefix("SET #mark = :mark ")
        made["ConditionExpression"] = "attribute_exists(PK)"

    _with_request(patch, change)


def mark_without_its_condition(patch: pytest.MonkeyPatch) -> None:
    """The mark is written, but nobody asks it."""

    def change(made: dict[str, Any]) -> None:
        made["ConditionExpression"] = "attribute_exists(PK)"
        made["UpdateExpression"] = made["UpdateExpression"].split(" REMOVE")[0]

    _with_request(patch, change)


def no_check_of_the_parent(patch: pytest.MonkeyPatch) -> None:
    """`ADD` brings a deleted post back as a ghost."""

    def change(made: dict[str, Any]) -> None:
        made["ConditionExpression"] = made["ConditionExpression"].replace("attribute_exists(PK) AND ", "")

    _with_request(patch, change)


def mark_of_the_first_record(patch: pytest.MonkeyPatch) -> None:
    """The mark is moved to the first record of the batch instead of the last."""

    def change(made: dict[str, Any]) -> None:
        values = made["ExpressionAttributeValues"]
        values[":mark"]["M"]["seq"] = values[":first"]

    _with_request(patch, change)


def unpadded_sequence_numbers(patch: pytest.MonkeyPatch) -> None:
    """Sequence numbers are compared as strings of whatever width they have."""

    def group(*arguments: Any) -> changes.Grouped:
        grouped = _group(*arguments)
        parents = {
            parent: [(number.lstrip("0"), *rest) for number, *rest in own] for parent, own in grouped.parents.items()
        }
        return grouped._replace(parents=parents)  # type: ignore[arg-type]

    patch.setattr(batches, "group", group)
    patch.setattr(counters, "padded", lambda number: number and number.lstrip("0"))


def no_shard_id(patch: pytest.MonkeyPatch) -> None:
    """One mark for all shards, while one post's likes lie in several."""
    patch.setattr(batches, "_lane", lambda _: "stream")


def zero_deltas_skipped(patch: pytest.MonkeyPatch) -> None:
    """A like and its unlike in one batch are left out, even where the batch is cut between them."""

    def settle(self: Batches, shares: list[Any], delivery: Any) -> list[Any]:
        return _settle(self, [share for share in shares if any(net(share.left).values())], delivery)

    patch.setattr(Batches, "_settle", settle)


def zero_deltas_marked_only_where_cut(patch: pytest.MonkeyPatch) -> None:
    """A like and its unlike are left out unless the batch is cut between them: exact until a batch grows."""

    def settle(self: Batches, shares: list[Any], delivery: Any) -> list[Any]:
        left = _settle(self, [share for share in shares if any(net(share.left).values())], delivery)
        cancelled_out = [share for share in shares if not any(net(share.left).values()) and not share.counted]
        while left:
            checkpoint = min(share.left[0][0] for share in left)
            torn = [
                share for share in cancelled_out if share.left and share.left[0][0] < checkpoint <= share.left[-1][0]
            ]
            if not torn:
                break
            left = left + _settle(self, torn, delivery)
            cancelled_out = [share for share in cancelled_out if share not in torn]
        return left

    patch.setattr(Batches, "_settle", settle)


def tally_and_mark_in_two_writes(patch: pytest.MonkeyPatch) -> None:
    """First the mark, under its condition, then the tally: something happens between them."""

    def update(self: DynamoDbTable, request: dict[str, Any]) -> Answer:
        if "ADD" not in request["UpdateExpression"]:
            return _update(self, request)
        mark, _, rest = request["UpdateExpression"].partition(" ADD ")
        add, _, remove = rest.partition(" REMOVE ")

        def part(expression: str, condition: str) -> dict[str, Any]:
            names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
            text = expression + condition
            return {
                **request,
                "UpdateExpression": expression,
                "ConditionExpression": condition,
                "ExpressionAttributeNames": {name: names[name] for name in names if name in text},
                "ExpressionAttributeValues": {name: values[name] for name in values if name in text},
            }

        first = mark + (f" REMOVE {remove}" if remove else "")
        answer = _update(self, part(first, request["ConditionExpression"]))
        return _update(self, part("ADD " + add, "attribute_exists(PK)")) if answer.written else answer

    patch.setattr(DynamoDbTable, "update", update)


def event_id_reported(patch: pytest.MonkeyPatch) -> None:
    """The answer names a record by its eventID: Lambda takes that for an unknown record."""
    patch.setattr(batches, "_sequence_number", lambda records, change: records[change[3]]["eventID"])


def highest_failure_reported(patch: pytest.MonkeyPatch) -> None:
    """The answer names the highest failed record, and Lambda takes the lower ones for done."""
    patch.setattr(batches, "min", max, raising=False)


def clamp_at_zero(patch: pytest.MonkeyPatch) -> None:
    """A tally below zero is set to zero: a passing state becomes a lasting error."""

    def update(self: DynamoDbTable, request: dict[str, Any]) -> Answer:
        answer = _update(self, request)
        if answer.written and answer.item and answer.item.get("likeTally", {}).get("N", "0").startswith("-"):
            key = request["Key"]["PK"]["S"], request["Key"]["SK"]["S"]
            self._client.table.items[key]["likeTally"] = {"N": "0"}  # type: ignore[attr-defined]
        return answer

    patch.setattr(DynamoDbTable, "update", update)


def exception_swallowed(patch: pytest.MonkeyPatch) -> None:
    """The handler catches everything, and says that all is well."""

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        try:
            return _handler(event, context)
        except ClientError:
            return {"batchItemFailures": [], **({"state": {}} if "window" in event else {})}

    patch.setattr(aggregator, "handler", handler)


def lasting_refusal_swallowed(patch: pytest.MonkeyPatch) -> None:
    """A parent that was throttled to the end counts as done."""

    def settle(self: Batches, shares: list[Any], delivery: Any) -> list[Any]:
        _settle(self, shares, delivery)
        return []

    patch.setattr(Batches, "_settle", settle)


def poison_dropped(patch: pytest.MonkeyPatch) -> None:
    """A parent that cannot be counted is left out, and nobody is told."""

    def count(self: Batches, share: Any, delivery: Any) -> None:
        try:
            counters.count(self.table, share, delivery.lane, delivery.now)
        except Retryable:
            return
        share.on_queue = share.uncountable is not None

    patch.setattr(Batches, "_count", count)


def poison_blocks(patch: pytest.MonkeyPatch) -> None:
    """A parent that cannot be counted is delivered again, for ever."""

    def update(self: DynamoDbTable, request: dict[str, Any]) -> Answer:
        try:
            return _update(self, request)
        except Uncountable as error:
            raise Retryable(str(error)) from error

    patch.setattr(DynamoDbTable, "update", update)


def marks_pruned_too_early(patch: pytest.MonkeyPatch) -> None:
    """Marks are removed after ten minutes, the life of a request token, while records come back for a day."""
    patch.setattr(counters, "SECONDS_A_MARK_MATTERS", 600)


def marks_never_pruned(patch: pytest.MonkeyPatch) -> None:
    """Every shard that ever was leaves its mark on the item."""
    patch.setattr(counters, "SECONDS_A_MARK_MATTERS", 10**9)


def refusal_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    """Where the mark stands in the way of some records, all of them are dropped."""
    patch.setattr(counters, "_reached", lambda *_: "9" * 40)


def modify_counted(patch: pytest.MonkeyPatch) -> None:
    """Whatever is not a removal counts as a like."""
    patch.setattr(changes, "_DELTAS", {"INSERT": 1, "MODIFY": 1, "REMOVE": -1})


def expiry_ignored(patch: pytest.MonkeyPatch) -> None:
    """Removals by time to live are taken for housekeeping."""
    patch.setattr(
        batches, "group", lambda records, rules: _group([r for r in records if "userIdentity" not in r], rules)
    )


def state_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The answer to a window has no state: Lambda takes the invocation for a failed one."""

    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        return {"batchItemFailures": _handler(event, context)["batchItemFailures"]}

    patch.setattr(aggregator, "handler", handler)


BUGS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    blind_add,
    mark_without_its_condition,
    no_check_of_the_parent,
    mark_of_the_first_record,
    unpadded_sequence_numbers,
    no_shard_id,
    zero_deltas_skipped,
    zero_deltas_marked_only_where_cut,
    tally_and_mark_in_two_writes,
    event_id_reported,
    highest_failure_reported,
    clamp_at_zero,
    exception_swallowed,
    lasting_refusal_swallowed,
    poison_dropped,
    poison_blocks,
    marks_pruned_too_early,
    marks_never_pruned,
    refusal_taken_for_done,
    modify_counted,
    expiry_ignored,
    state_forgotten,
)
