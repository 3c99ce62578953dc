"""How a tally stays exact: one conditional write that adds the delta and moves the mark with it.

`ADD` is not idempotent, and everything on the way delivers more than once: Lambda retries batches, whole, bisected or
cut, and the SDK resends a request whose answer was lost. So the parent keeps, per shard, the sequence number of the
last record that its tally contains: its *mark*. Tally and mark are written by the same `UpdateItem`, under the
condition that the mark is below the first record to be added. What is in is never added again; what is not in is
never left out. The write costs what a blind `ADD` costs.

Changes that cancel out (a like and its unlike) move the mark all the same. Leaving that write out is sound only while
they are never torn apart and no earlier delivery had just the first of them: see docs/decisions.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from tallystream.changes import Change, ParentKey, net, padded
from tallystream.rules import MARK_PREFIX

SECONDS_A_MARK_MATTERS = 25 * 3600
"""A stream keeps its records for 24 hours, so a mark older than that can meet no record again; an hour is for clocks.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html"""

LANE_WITHOUT_SHARDS = "stream"
"""The lane of marks where the event names no shard: right only while all of a parent's children are in one shard."""

MOST_STALE_MARKS = 32
"""With so many stale marks (some 3 KB), a parent is cleaned by a write of its own; fewer wait for its next write."""

MOST_REMOVED_MARKS = 32
"""How many marks one write removes at most: an expression has at most 4 KB and 300 operators.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters"""

Item: TypeAlias = Mapping[str, Mapping[str, Any]]
"""An item as the low-level client gives it: attribute name -> {type: value}."""


class Answer(NamedTuple):
    """What the table said to an update: it was written, or its condition failed."""

    written: bool
    item: Item | None
    """Written: the item as it is now. Refused: the item that failed the condition, or None if there is none."""


class Retryable(Exception):
    """The update may or may not have been applied, and is worth another try: throttled, no answer, a server fault."""


class Uncountable(Exception):
    """The update can never succeed on this parent; the message says why."""


class Table(Protocol):
    """The port to the table that holds the parents."""

    def update(self, request: Mapping[str, Any]) -> Answer:
        """Send one `UpdateItem` (without the table's name).

        Raises:
            Retryable: as its docstring says.
            Uncountable: as its docstring says.
        """


@dataclass(slots=True)
class Share:
    """One parent's share of a batch, and what became of it. Each change is in one of the four lists."""

    parent: ParentKey
    left: list[Change]
    """What is still to be counted: changes of one shard, ascending."""
    last_change_at: int
    """When the last of them was made, in epoch seconds; kept with the mark, so that a stale mark can be told."""
    counted: list[Change] = field(default_factory=list)
    duplicates: list[Change] = field(default_factory=list)
    orphaned: list[Change] = field(default_factory=list)
    writes: int = 0
    """How many updates were written; refused ones not included."""
    uncountable: str | None = None
    """Why the changes in `left` can never be counted."""
    on_queue: bool = False
    """The changes in `left` are on the failure queue: nobody needs to deliver them again."""
    trouble: str | None = None
    """What last kept the changes in `left` from being counted; worth another try."""
    negative: bool = False
    """A tally is below zero: more removals than insertions were seen, which no correct history does."""
    stale: tuple[str, ...] = ()
    """The parent's marks that can never matter again, for the next write to remove."""


def mark_name(lane: str) -> str:
    """Return the attribute that holds the mark of a lane: a shard id, or `stream` where shards are not known."""
    return MARK_PREFIX + lane.removeprefix("shardId-")


def count(table: Table, share: Share, lane: str, now: int, stale: Sequence[str] = ()) -> None:
    """Bring the changes in `share.left` into the parent's tally, each exactly once.

    Before: no earlier change of this parent and shard is still to come. After: `share` says what became of each
    change, and `left` is empty or `uncountable` is set. Calling it again with the same changes, at any time and from
    anywhere, changes nothing more.

    Args:
        table: the port to write through.
        share: the parent and its changes.
        lane: the shard id, or `stream` where shards are not known.
        now: epoch seconds.
        stale: marks of this parent known to be stale, which the write removes.

    Raises:
        Retryable: see `Table.update`. What was settled before it is in `share`; call again.
    """
    mark = mark_name(lane)
    # Another lane may have seen this lane's own mark to be stale; it is about to be renewed, not removed.
    stale = [name for name in stale if name != mark][:MOST_REMOVED_MARKS]
    share.uncountable = None
    while share.left:
        try:
            answer = table.update(_request(share, mark, now, stale))
        except Uncountable as error:
            share.uncountable = str(error)
            return
        if answer.written:
            share.writes += 1
            share.counted, share.left = share.left, []
            item = answer.item or {}
            share.negative = any(_is_negative(item.get(attribute)) for attribute in net(share.counted))
            share.stale = _stale_marks(item, mark, now)
            if len(share.stale) >= MOST_STALE_MARKS:
                _clean(table, share, now)
        elif answer.item is None:
            # Nothing to add to. `ADD` would bring the parent back as a ghost that is only a key and a number.
            share.orphaned, share.left = share.left, []
        else:
            reached = _reached(answer.item, mark)
            contained = [change for change in share.left if change[0] <= reached]
            share.duplicates += contained
            share.left = share.left[len(contained) :]
            refused, stale = stale, _stale_marks(answer.item, mark, now)
            if not contained and set(refused) <= set(stale):
                # Another try would be refused for ever: the mark is not what this module writes.
                share.uncountable = f"{mark} is not a map of seq (a padded sequence number) and at: a foreign write"
                return


def _request(share: Share, mark: str, now: int, stale: Sequence[str]) -> dict[str, Any]:
    """Return the update that adds the changes' net deltas and moves the mark, on condition that it is below them."""
    changes = share.left
    names = {"#mark": mark, "#seq": "seq"}
    values: dict[str, Any] = {
        ":first": {"S": changes[0][0]},
        ":mark": {"M": {"seq": {"S": changes[-1][0]}, "at": {"N": str(share.last_change_at)}}},
    }
    condition = "attribute_exists(PK) AND (attribute_not_exists(#mark) OR #mark.#seq < :first)"
    deltas = net(changes)
    for number, (attribute, delta) in enumerate(deltas.items()):
        names[f"#a{number}"] = attribute
        # Zero too: a parent that cannot be counted on must refuse every share alike, or what is on the failure queue
        # and what the mark says is in would overlap.
        values[f":d{number}"] = {"N": str(delta)}
    expression = "SET #mark = :mark ADD " + ", ".join(f"#a{number} :d{number}" for number in range(len(deltas)))
    if stale:
        remove, still_stale = _removal(stale, now, names, values)
        expression += f" {remove}"
        condition += f" AND {still_stale}"
    return {
        "Key": _key(share.parent),
        "UpdateExpression": expression,
        "ConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
        # Both cost nothing: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_UpdateItem.html.
        # All of the new item, not the updated attributes alone, since other shards' marks show which are stale.
        "ReturnValues": "ALL_NEW",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _removal(stale: Sequence[str], now: int, names: dict[str, str], values: dict[str, Any]) -> tuple[str, str]:
    """Return REMOVE for the marks and the condition that each is still stale; add what they name.

    Without the condition, a mark that its shard moved on a moment ago would be lost, and a redelivery from that shard
    would count twice.
    """
    names["#at"] = "at"
    values[":horizon"] = {"N": str(now - SECONDS_A_MARK_MATTERS)}
    for number, name in enumerate(stale):
        names[f"#s{number}"] = name
    removed = [f"#s{number}" for number in range(len(stale))]
    condition = " AND ".join(f"(attribute_not_exists({name}) OR {name}.#at < :horizon)" for name in removed)
    return "REMOVE " + ", ".join(removed), condition


def _clean(table: Table, share: Share, now: int) -> None:
    """Remove stale marks by a write of their own.

    Reached only where each write of the parent comes from a fresh execution environment, which does not remember the
    parent's stale marks: there, the item would grow for ever.
    """
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    remove, still_stale = _removal(share.stale, now, names, values)
    request = {
        "Key": _key(share.parent),
        "UpdateExpression": remove,
        "ConditionExpression": f"attribute_exists(PK) AND {still_stale}",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
    try:
        answer = table.update(request)
    except (Retryable, Uncountable):
        # Nothing is lost: the changes are in, and the parent's next write finds the marks again.
        return
    if answer.written:
        share.writes += 1
        share.stale = ()


def _key(parent: ParentKey) -> dict[str, dict[str, str]]:
    return {"PK": {"S": parent[0]}, "SK": {"S": parent[1]}}


def _reached(item: Item, mark: str) -> str:
    """Return the sequence number up to which the item's tallies contain a lane's changes; "" if there is no mark."""
    return padded(item.get(mark, {}).get("M", {}).get("seq", {}).get("S")) or ""


def _stale_marks(item: Item, own: str, now: int) -> tuple[str, ...]:
    """Return the names of the item's marks, the writer's own left out, that can never meet a record again."""
    horizon = now - SECONDS_A_MARK_MATTERS
    others = [name for name in item if name.startswith(MARK_PREFIX) and name != own]
    stale = (name for name in others if float(item[name].get("M", {}).get("at", {}).get("N", now)) < horizon)
    return tuple(itertools.islice(stale, MOST_REMOVED_MARKS))


def _is_negative(value: Mapping[str, Any] | None) -> bool:
    return value is not None and str(value.get("N", "")).startswith("-")
