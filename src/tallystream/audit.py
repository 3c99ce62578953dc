"""How wrong is a tally, while likes keep coming? The difference between a tally and its children, exactly.

Tally and marks are written together, so *the tally as of these marks* is a well-defined number, however busy the post.
Whoever audits a parent reads, in this order and strongly consistent,

1. the parent: its tallies and its marks,
2. its children: their sort keys, all pages,
3. the stream behind the marks, in every shard, until past the end of step 2: the changes that the tallies lack.

A child with such a change existed as of the marks exactly if its *first* change is a removal; any other child existed
exactly if step 2 found it. That is the truth; what the tally has more is its drift. Whatever is written during the
steps shows in the stream as well, so it is taken out again.

A change that the aggregator has passed over (its batch was given up) is in no tally and never will be. So it is no
excuse for a tally that lacks it: it counts as if it lay before the marks, and a repair moves the marks over it.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from tallystream.changes import ParentKey, padded
from tallystream.counters import LANE_WITHOUT_SHARDS, SECONDS_A_MARK_MATTERS, Item, mark_name
from tallystream.rules import MARK_PREFIX, Rules

REPAIR_MARK = MARK_PREFIX + "repair"
"""The attribute that says which repair was the last: of two repairs of one reading, the second finds another one."""

SHARDLESS_MARK = mark_name(LANE_WITHOUT_SHARDS)
"""The mark where the aggregator is not told its shard. Right only while there is one lineage of shards."""

_CREATED = "createdAt"
_CLOCKS_DIFFER_S = 2
"""The stream dates its records by DynamoDB's clock, in whole seconds; a reading is dated by the auditor's."""


class Streamed(NamedTuple):
    """A child's change as the stream has it. Several of them stand in the order of their shards' lineage."""

    shard: str
    number: str
    """Padded, see `changes.padded`."""
    sort_key: str
    inserted: bool
    """INSERT; otherwise REMOVE."""
    made_at: int
    """Epoch seconds."""


class Mark(NamedTuple):
    """How far into a shard the tallies reach."""

    number: str
    at: int


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards that the stream still has."""

    parents: Mapping[str, str | None]
    """Shard id -> id of its parent shard, if it has one."""
    open: frozenset[str]
    named: bool = True
    """Whether the aggregator is told its shard: then the marks name it."""

    def ancestors(self, shard: str) -> Iterator[str]:
        """Yield the parent shard, its parent, and so on."""
        above = self.parents.get(shard)
        while above is not None:
            yield above
            above = self.parents.get(above)


class Keys:
    """Sort keys, in little memory: a viral post has millions, and few of them change during an audit."""

    def __init__(self) -> None:
        self.count = 0
        self._pages: list[bytes] = []

    def add(self, page: Sequence[str]) -> None:
        """Take a page of keys; none of them was added before."""
        if page:
            self.count += len(page)
            self._pages.append(zlib.compress(json.dumps(page).encode(), 1))

    def among(self, wanted: set[str]) -> int:
        """Return how many of the wanted keys are here."""
        if not wanted:
            return 0
        return sum(len(wanted.intersection(json.loads(zlib.decompress(page)))) for page in self._pages)


@dataclass(slots=True)
class Reading:
    """Steps 1 and 2: a parent, and after it its children."""

    parent: ParentKey
    item: Item | None
    began: float
    """Epoch seconds, before step 1."""
    children: dict[str, Keys] = field(default_factory=dict)
    """Attribute -> the children that count on it; each attribute that a rule counts on this parent."""
    found: int = 0
    """Children, each once, on however many attributes it counts."""


class Tally(NamedTuple):
    """One tally of a parent, and what it should be as of the parent's marks."""

    attribute: str
    tally: int
    truth: int

    @property
    def drift(self) -> int:
        """How much too high the tally is."""
        return self.tally - self.truth


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an audit says of one parent that exists."""

    parent: ParentKey
    item: Item
    tallies: tuple[Tally, ...]
    waiting: int
    """Changes that the stream still brings to this parent."""
    waiting_since: int | None
    """When the oldest of them was made, in epoch seconds."""
    passed_over: Mapping[str, Mark]
    """Marks to be moved by a repair: mark's attribute -> last change that the aggregator has passed over."""

    @property
    def drifting(self) -> bool:
        """Say whether any tally is wrong."""
        return any(tally.drift for tally in self.tallies)


class Unjudged(Exception):
    """It cannot be told exactly how wrong a parent's tallies are; the message says why."""


class Disturbed(Unjudged):
    """Something got in between: another reading may well succeed."""


def judge(
    reading: Reading, changes: Sequence[Streamed], shards: Shards, rules: Rules, overdue_before: float
) -> Verdict:
    """Return how wrong the tallies of a parent are that is counted from the stream (steps 3 and 4).

    Args:
        reading: of a parent that exists.
        changes: of the reading's partition key, from the oldest that the stream has, until past the reading's end.
        shards: of the stream, those of the changes among them.
        rules: what counts where.
        overdue_before: epoch seconds; the aggregator is never given a change made before (the event source mapping's
            `MaximumRecordAgeInSeconds`); infinite where no mapping delivers any.

    Raises:
        Unjudged: a tally is no number, a mark is not the aggregator's, or nothing tells which shard's mark it is.
    """
    item = _existing(reading)
    waiting, passed_over = uncounted(reading.parent, item, changes, shards, rules, overdue_before)
    return Verdict(
        reading.parent,
        item,
        tuple(_tallies(reading, item, waiting, rules)),
        len(waiting),
        min((change.made_at for change in waiting), default=None),
        passed_over,
    )


def judge_at_rest(reading: Reading, changes: Sequence[Streamed], rules: Rules) -> Verdict:
    """Return how wrong the tallies of a parent are that is counted in transactions: there are no marks to go by.

    Raises:
        Disturbed: a child came or went during the reading.
        Unjudged: a tally is no number.
    """
    item = _existing(reading)
    since = reading.began - _CLOCKS_DIFFER_S
    if any(change.made_at >= since and attributes_of(change.sort_key, reading.parent, rules) for change in changes):
        raise Disturbed("its children changed while they were read, and a tally by transactions has no marks")
    return Verdict(reading.parent, item, tuple(_tallies(reading, item, [], rules)), 0, None, {})


def uncounted(
    parent: ParentKey, item: Item, changes: Sequence[Streamed], shards: Shards, rules: Rules, overdue_before: float
) -> tuple[list[Streamed], dict[str, Mark]]:
    """Return the changes that a parent's tallies lack: those that wait in the stream, and how far others were passed.

    Passed over are: changes in a shard whose descendant the parent has a mark of, since a shard is read to its end
    first; and changes older than any that the aggregator is given. They come as the marks that would lie behind them.

    Raises:
        Unjudged: a mark is not the aggregator's, or it does not say which of several shards it is of.
    """
    marks = marks_of(item)
    own = [change for change in changes if attributes_of(change.sort_key, parent, rules)]
    shardless = SHARDLESS_MARK in marks or not (shards.named or marks)
    if shardless and len(shards.open) > 1 and own:
        raise Unjudged(
            f"its mark names no shard, and the stream has {len(shards.open)} open ones: set WindowSeconds, and audit "
            "it when its likes have rested for a day"
        )
    finished = {above for shard in shards.parents if mark_name(shard) in marks for above in shards.ancestors(shard)}
    passed_over: dict[str, Mark] = {}
    missing: list[tuple[str, Streamed]] = []
    for change in own:
        name = mark_name(change.shard)
        if any(change.number <= marks[mark].number for mark in (name, SHARDLESS_MARK) if mark in marks):
            continue
        if shardless:
            name = SHARDLESS_MARK
        if change.shard in finished or change.made_at < overdue_before:
            passed_over[name] = max(passed_over.get(name, Mark("", 0)), Mark(change.number, change.made_at))
        missing.append((name, change))
    # What lies below a mark that a repair would move is passed over with it.
    waiting = [
        change for name, change in missing if name not in passed_over or change.number > passed_over[name].number
    ]
    return waiting, passed_over


def repair(verdict: Verdict, name: str, now: int) -> dict[str, Any]:
    """Return the `UpdateItem` that takes the drift out of a parent's tallies; whatever is counted meanwhile stays.

    It adds minus the drift, which commutes with what the aggregator adds, under a condition that holds only while the
    verdict does: no other repair was applied since, no change that was taken for passed over has been counted, and
    the parent is still the one that was read.

    Args:
        verdict: with some drift.
        name: of this repair, unique.
        now: epoch seconds.
    """
    item = verdict.item
    names = {"#repair": REPAIR_MARK, "#seq": "seq"}
    values: dict[str, Any] = {":repair": _mark(name, now)}
    setting, adding = ["#repair = :repair"], []
    conditions = ["attribute_exists(PK)", _unchanged("#repair", REPAIR_MARK, ":former", item, values)]
    for number, (mark, reached) in enumerate(sorted(verdict.passed_over.items())):
        names[f"#p{number}"] = mark
        values[f":p{number}"] = _mark(reached.number, reached.at)
        setting.append(f"#p{number} = :p{number}")
        conditions.append(_unchanged(f"#p{number}", mark, f":was{number}", item, values))
    drifting = [tally for tally in verdict.tallies if tally.drift]
    for number, tally in enumerate(drifting):
        names[f"#a{number}"] = tally.attribute
        values[f":d{number}"] = {"N": str(-tally.drift)}
        adding.append(f"#a{number} :d{number}")
    # A parent that was deleted and made again meanwhile has a tally of its own, which this verdict says nothing of.
    if _CREATED in item:
        names["#created"] = _CREATED
        values[":created"] = dict(item[_CREATED])
        conditions.append("#created = :created")
    latest = max(((mark.at, name) for name, mark in marks_of(item).items()), default=(0, ""))
    if latest[0] > now - SECONDS_A_MARK_MATTERS + 3600:
        names["#latest"] = latest[1]
        values[":latest"] = item[latest[1]]["M"]["seq"]
        conditions.append("#latest.#seq >= :latest")
    else:
        for number, tally in enumerate(drifting):
            if tally.attribute in item:
                values[f":t{number}"] = dict(item[tally.attribute])
                conditions.append(f"#a{number} = :t{number}")
            else:
                conditions.append(f"attribute_not_exists(#a{number})")
    text = " ".join(conditions)
    return {
        "Key": {"PK": {"S": verdict.parent[0]}, "SK": {"S": verdict.parent[1]}},
        "UpdateExpression": f"SET {', '.join(setting)} ADD {', '.join(adding)}",
        "ConditionExpression": " AND ".join(conditions),
        "ExpressionAttributeNames": {key: name for key, name in names.items() if key != "#seq" or "#seq" in text},
        "ExpressionAttributeValues": values,
        "ReturnValues": "ALL_NEW",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def last_repair(item: Item) -> str | None:
    """Return the name of the last repair of a parent; None if there was none in the last day."""
    name: str | None = item.get(REPAIR_MARK, {}).get("M", {}).get("seq", {}).get("S")
    return name


def marks_of(item: Item) -> dict[str, Mark]:
    """Return the marks of a parent: attribute -> mark.

    Raises:
        Unjudged: an attribute with a mark's name is not what the aggregator writes.
    """
    marks = {}
    for name, value in item.items():
        if name.startswith(MARK_PREFIX) and name != REPAIR_MARK:
            parts = value.get("M", {})
            number = padded(parts.get("seq", {}).get("S"))
            at = parts.get("at", {}).get("N")
            if number is None or at is None:
                raise Unjudged(
                    f"{name} is not a map of seq (a sequence number) and at (epoch seconds): a foreign write"
                )
            marks[name] = Mark(number, int(Decimal(at)))
    return marks


def number_in(item: Item, attribute: str) -> int:
    """Return a tally; one that is missing is 0.

    Raises:
        Unjudged: it is no integer.
    """
    value = item.get(attribute, {"N": "0"})
    number = Decimal(value["N"]) if "N" in value else None
    if number is None or number != number.to_integral_value():
        kind, shown = next(iter(value.items()))
        raise Unjudged(f"{attribute} is no integer but {str(shown)[:40]!r} (type {kind}): set it to a number first")
    return int(number)


def _existing(reading: Reading) -> Item:
    if reading.item is None:
        raise Unjudged("it does not exist any more: it was deleted while it was audited")
    return reading.item


def attributes_of(sort_key: str, parent: ParentKey, rules: Rules) -> list[str]:
    """Return the attributes of a parent on which an item of its collection counts."""
    return [attribute for parent_sort_key, attribute in rules.parents_of(sort_key) if parent_sort_key == parent[1]]


def _tallies(reading: Reading, item: Item, waiting: Iterable[Streamed], rules: Rules) -> Iterator[Tally]:
    """Yield each tally of a parent with its truth: the children, with the waiting changes taken back."""
    first: dict[str, dict[str, bool]] = {attribute: {} for attribute in reading.children}
    for change in waiting:
        for attribute in attributes_of(change.sort_key, reading.parent, rules):
            first[attribute].setdefault(change.sort_key, change.inserted)
    for attribute, keys in reading.children.items():
        changed = first[attribute]
        removed_first = sum(not inserted for inserted in changed.values())
        truth = keys.count - keys.among(set(changed)) + removed_first
        yield Tally(attribute, number_in(item, attribute), truth)


def _mark(number: str, at: int) -> dict[str, Any]:
    return {"M": {"seq": {"S": number}, "at": {"N": str(at)}}}


def _unchanged(shown: str, name: str, value: str, item: Item, values: dict[str, Any]) -> str:
    """Return the condition that a mark is as it was read; add the value that it names."""
    if name not in item:
        return f"attribute_not_exists({shown})"
    values[value] = item[name]["M"]["seq"]
    return f"{shown}.#seq = {value}"
