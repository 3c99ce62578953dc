"""How is a table audited? Groups of items in, verdicts out, and repairs on request, while everybody goes on writing.

A scan shows each parent and its children once. A parent whose tallies are what its children say, and to which nothing
happened meanwhile, is proved right by that alone. Every other one is judged by the exact procedure of `audit`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from tallystream.audit import (
    Disturbed,
    Keys,
    Mark,
    Reading,
    Shards,
    Streamed,
    Tally,
    Unjudged,
    Verdict,
    attributes_of,
    judge,
    judge_at_rest,
    last_repair,
    marks_of,
    number_in,
    repair,
    uncounted,
)
from tallystream.changes import ParentKey
from tallystream.counters import SECONDS_A_MARK_MATTERS, Item, Retryable, Table, Uncountable
from tallystream.rules import Rules
from tallystream.settings import CountingPath

READINGS = 3
"""How often a parent is read when something gets in between, before it is given up as unjudged."""

REPAIRS = 5
"""How often a repair is tried that finds the parent other than it was judged."""

CLOCKS_DIFFER_S = 5
"""A parent to which something happened in so many seconds before its children were read is not proved right by them:
the records are dated by DynamoDB's clock, in whole seconds."""

_A = TypeVar("_A")
_B = TypeVar("_B")


class Items(Protocol):
    """The port to the table: strongly consistent reads."""

    def item(self, key: ParentKey) -> Item | None:
        """Return an item with all its attributes; None if there is none."""

    def children(self, partition_key: str, prefix: str) -> Iterator[list[str]]:
        """Yield the sort keys with a prefix in one item collection, page by page, to the last.

        Raises:
            Unjudged: there is no time to read them all.
        """


class Stream(Protocol):
    """The port to the table's stream."""

    @property
    def shards(self) -> Shards:
        """The shards as of the last `catch_up`."""

    def catch_up(self, reached: Mapping[str, Mark]) -> None:
        """Read each shard until past this moment; marks say what it holds at least.

        Raises:
            Disturbed: records were trimmed before they could be read; the next call goes on behind them.
            Unjudged: the end was not reached in time.
        """

    def changes(self, partition_key: str) -> Sequence[Streamed]:
        """Return the INSERTs and REMOVEs of children in one item collection, in the order of their shards."""


class Concurrently(Protocol):
    """Applies a function to each of several things, several at a time, as `ThreadPoolExecutor.map` does."""

    def __call__(self, function: Callable[[_A], _B], items: Iterable[_A], /) -> Iterable[_B]:
        """Return the results in the order of the items; raise what the function raised."""


@dataclass(slots=True)
class Group:
    """One item collection, as a scan found it."""

    partition_key: str
    began: float
    """Epoch seconds, before its first page was asked for."""
    parents: dict[str, Item] = field(default_factory=dict)
    """Sort key -> item; its tallies and its marks at least."""
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    """(parent's sort key, attribute) -> children that count on it."""
    children: int = 0
    """Items that count somewhere."""
    last: str = ""
    """Sort key of the item that was added last: what a scan goes on after."""

    def add(self, item: Item, rules: Rules) -> None:
        """Take one item of the collection."""
        self.last = sort_key = item["SK"]["S"]
        if rules.counted_on(sort_key):
            self.parents[sort_key] = item
        targets = rules.parents_of(sort_key)
        self.children += bool(targets)
        for target in targets:
            self.counts[target] = self.counts.get(target, 0) + 1

    def all_parents(self) -> list[ParentKey]:
        """Return the parents that exist, and those that children count on."""
        return [(self.partition_key, key) for key in {**self.parents, **{key: None for key, _ in self.counts}}]


@dataclass(slots=True)
class Report:
    """What an audit has found so far."""

    parents: int = 0
    """Those that exist."""
    children: int = 0
    judged: int = 0
    """Parents that took the exact procedure; the others were proved right by the scan."""
    waiting: int = 0
    """Changes that the stream still brings to the judged parents."""
    waiting_since: int | None = None
    """When the oldest of them was made, in epoch seconds."""
    drifting: dict[ParentKey, list[Tally]] = field(default_factory=dict)
    """The tallies that were found wrong."""
    repaired: set[ParentKey] = field(default_factory=set)
    """Those of the drifting parents that have no drift any more."""
    unrepaired: dict[ParentKey, str] = field(default_factory=dict)
    """Those whose repair was tried and did not succeed, and why."""
    unjudged: dict[ParentKey, str] = field(default_factory=dict)
    """Parents of which it could not be told exactly, and why."""
    orphans: dict[ParentKey, int] = field(default_factory=dict)
    """Parents that do not exist -> children they have."""

    def add(self, verdict: Verdict, *, again: bool) -> None:
        """Take what was found of a parent that could be judged; `again` after a repair that did not succeed."""
        wrong = [tally for tally in verdict.tallies if tally.drift]
        if wrong:
            self.drifting[verdict.parent] = wrong
        elif verdict.parent not in self.repaired:
            self.drifting.pop(verdict.parent, None)  # somebody else has repaired it since
        if again:
            return
        self.waiting += verdict.waiting
        if verdict.waiting_since is not None:
            self.waiting_since = min(self.waiting_since or verdict.waiting_since, verdict.waiting_since)


@dataclass(frozen=True, slots=True)
class Auditor:
    """Audits one table. What is not a function of the items comes in here."""

    items: Items
    stream: Stream
    table: Table
    rules: Rules
    path: CountingPath
    overdue_s: int
    """A change that is older and in no tally counts as passed over; see `overdue_after`. A lower figure is safe for
    repairs, which move the marks over what they count, but takes a lag of the aggregator for drift."""
    concurrently: Concurrently
    now: Callable[[], float]
    """Epoch seconds, by DynamoDB's clock."""
    new_name: Callable[[], str]
    """A name that no repair has had."""
    names_shards: bool = True
    """Whether the aggregator is told its shard, as by a mapping with a tumbling window."""

    def audit(self, groups: Sequence[Group], report: Report, *, mend: bool) -> None:
        """Judge all parents of some groups, and repair them if asked to; add what is found to the report.

        After: each parent is proved right, or in the report as drifting, unjudged or without a parent item. With
        `mend`, what drifted and could be judged has no drift left, and no change was lost or counted twice for it.
        """
        suspects: dict[ParentKey, bool] = {}
        try:
            self._catch_up([item for group in groups for item in group.parents.values()])
        except Unjudged as error:
            report.unjudged |= {parent: str(error) for group in groups for parent in group.all_parents()}
            return
        for group in groups:
            report.parents += len(group.parents)
            report.children += group.children
            changes = self.stream.changes(group.partition_key)
            for parent in group.all_parents():
                if not self._proved_right(group, parent, changes):
                    suspects[parent] = suspects.get(parent, False) or parent[1] in group.parents
        self._judge(suspects, report, mend=mend)

    def judge(self, parents: Mapping[ParentKey, bool], report: Report, *, mend: bool) -> None:
        """Judge parents by the exact procedure, and repair them if asked to; add what is found to the report.

        Args:
            parents: parent -> whether it was seen to exist, so that one that is gone was deleted meanwhile.
            report: what is added to.
            mend: repair what drifts.
        """
        # Read before the parents too: what the stream loses while they are read has been seen then.
        try:
            self._catch_up(())
        except Unjudged as error:
            report.unjudged |= dict.fromkeys(parents, str(error))
            return
        self._judge(parents, report, mend=mend)

    def _judge(self, parents: Mapping[ParentKey, bool], report: Report, *, mend: bool) -> None:
        report.judged += len(parents)
        left = list(parents)
        sent: dict[ParentKey, str] = {}

        def unsettled(verdict: Verdict) -> ParentKey | None:
            sent[verdict.parent] = self.new_name()
            return None if self._repair(verdict, sent[verdict.parent], report) else verdict.parent

        for _ in range(REPAIRS):
            if not left:  # the stream's delay is not waited for either
                break
            wrong = self._wrong(left, parents, sent, report)
            # Several repairs at a time: a backfill has as many as the table has parents.
            again = self.concurrently(unsettled, wrong) if mend else (None for _ in wrong)
            left = [parent for parent in again if parent is not None]

    def _wrong(
        self,
        left: Sequence[ParentKey],
        parents: Mapping[ParentKey, bool],
        sent: Mapping[ParentKey, str],
        report: Report,
    ) -> Iterator[Verdict]:
        """Judge parents, add what is found of each to the report, and yield the verdicts on those that drift."""
        for parent, outcome in self._outcomes(left):
            report.unrepaired.pop(parent, None)
            if isinstance(outcome, Verdict):
                if parent in sent and last_repair(outcome.item) == sent[parent]:
                    report.repaired.add(parent)  # the answer was lost
                report.add(outcome, again=parent in sent)
                if outcome.drifting:
                    yield outcome
            else:
                _add_unjudged(report, outcome, parent, seen=parents[parent])

    def _proved_right(self, group: Group, parent: ParentKey, changes: Sequence[Streamed]) -> bool:
        """Say whether what the scan saw of a parent is all there is to it, and right.

        Nothing happened to its children since before they were read, and nothing is still to come to its tallies.
        """
        item = group.parents.get(parent[1])
        if item is None:
            return False
        own = [change for change in changes if attributes_of(change.sort_key, parent, self.rules)]
        try:
            if any(
                group.counts.get((parent[1], attribute), 0) != number_in(item, attribute)
                for attribute, _ in self.rules.counted_on(parent[1])
            ):
                return False
            missing = uncounted(parent, item, own, self._shards(), self.rules, self._overdue_before(group.began))
        except Unjudged:
            return False  # the exact procedure says why
        if any(change.made_at >= group.began - CLOCKS_DIFFER_S for change in own):
            return False
        return self.path == "transaction" or not any(missing)

    def _outcomes(self, parents: Sequence[ParentKey]) -> Iterator[tuple[ParentKey, Verdict | Reading | Unjudged]]:
        """Yield what the exact procedure says of each parent; of one that does not exist, the reading."""
        left: Sequence[ParentKey] = parents
        for attempt in range(READINGS):
            last = attempt + 1 == READINGS
            try:
                readings = list(self.concurrently(self._read, left))
            except Unjudged as error:
                yield from ((parent, error) for parent in left)
                return
            disturbed = []
            try:
                self.stream.catch_up(self._reached(reading.item for reading in readings if reading.item))
            except Disturbed as error:
                if last:
                    yield from ((reading.parent, error) for reading in readings)
                continue
            except Unjudged as error:
                yield from ((reading.parent, error) for reading in readings)
                return
            for reading in readings:
                outcome = self._outcome(reading)
                if isinstance(outcome, Disturbed) and not last:
                    disturbed.append(reading.parent)
                else:
                    yield reading.parent, outcome
            left = disturbed
            if not left:
                return

    def _outcome(self, reading: Reading) -> Verdict | Reading | Unjudged:
        if reading.item is None:
            return reading
        changes = self.stream.changes(reading.parent[0])
        try:
            if self.path == "transaction":
                return judge_at_rest(reading, changes, self.rules)
            return judge(reading, changes, self._shards(), self.rules, self._overdue_before(reading.began))
        except Unjudged as error:
            return error

    def _read(self, parent: ParentKey) -> Reading:
        """Read a parent and then its children; the order is what makes the verdict exact."""
        began = self.now()
        reading = Reading(parent, self.items.item(parent), began)
        counted_on = self.rules.counted_on(parent[1])
        reading.children = {attribute: Keys() for attribute, _ in counted_on}
        prefixes = sorted({prefix for _, prefix in counted_on})
        # One that begins with another is in that other's pages.
        for prefix in [
            one for one in prefixes if not any(one != other and one.startswith(other) for other in prefixes)
        ]:
            for page in self.items.children(parent[0], prefix):
                own: dict[str, list[str]] = {}
                for key in page:
                    attributes = attributes_of(key, parent, self.rules)
                    reading.found += bool(attributes)
                    for attribute in attributes:
                        own.setdefault(attribute, []).append(key)
                for attribute, keys in own.items():
                    reading.children[attribute].add(keys)
        return reading

    def _repair(self, verdict: Verdict, name: str, report: Report) -> bool:
        """Repair one parent; return whether that is settled."""
        try:
            answer = self.table.update(repair(verdict, name, int(self.now())))
        except (Retryable, Uncountable) as error:
            report.unrepaired[verdict.parent] = str(error)
            return isinstance(error, Uncountable)
        # Refused for its own name: the SDK has sent it twice, and the first one was applied.
        if answer.written or (answer.item and last_repair(answer.item) == name):
            report.repaired.add(verdict.parent)
            return True
        report.unrepaired[verdict.parent] = "it changed each time between its audit and its repair"
        return False

    def _shards(self) -> Shards:
        return replace(self.stream.shards, named=self.names_shards)

    def _overdue_before(self, began: float) -> float:
        # As of the reading, however long it took. What was overdue only later may have been counted meanwhile; and
        # where nothing is waited for, a change that came after its page was read must not be passed over with the rest.
        return int(began) - max(self.overdue_s, CLOCKS_DIFFER_S)

    def _catch_up(self, items: Iterable[Item]) -> None:
        reached = self._reached(items)
        for attempt in range(READINGS):
            try:
                self.stream.catch_up(reached)
            except Disturbed:
                if attempt + 1 == READINGS:
                    raise
            else:
                return

    def _reached(self, items: Iterable[Item]) -> dict[str, Mark]:
        """Return how far the marks of some parents say that each shard goes, as far as the stream still has it."""
        reached: dict[str, Mark] = {}
        for item in items:
            try:
                marks = marks_of(item)
            except Unjudged:
                continue  # its own verdict says so
            for name, mark in marks.items():
                if mark.at > self.now() - SECONDS_A_MARK_MATTERS + _TRIMMED_SOON_S:
                    reached[name] = max(reached.get(name, mark), mark)
        return reached


_TRIMMED_SOON_S = 7200
"""The records of marks that are 23 hours old may be trimmed before an audit gets to them."""

_UNDER_WAY_S = 900
"""The longest that an invocation lasts: https://docs.aws.amazon.com/lambda/latest/dg/configuration-timeout.html"""


def overdue_after(record_age_s: int) -> int:
    """Return the age in seconds after which the aggregator is certain not to count a change any more.

    Args:
        record_age_s: the age at which the event source mapping gives a record up (`MaximumRecordAgeInSeconds`, at most
            a day); 0 where there is no mapping, or it is switched off: then nothing is waited for.
    """
    # An invocation that was given a record just in time may still be under way.
    return record_age_s and record_age_s + _UNDER_WAY_S


def groups(pages: Iterable[tuple[float, Sequence[Item]]], rules: Rules) -> Iterator[Group]:
    """Yield the item collections in the pages of a scan: (epoch seconds before it was asked for, items).

    A scan gives the items of one partition key one after the other. Where it does not, as between two segments, a
    collection comes out in parts; then none of its parents is proved right by a part, unless it is.
    """
    group: Group | None = None
    for began, items in pages:
        for item in items:
            partition_key = item["PK"]["S"]
            if group is None or group.partition_key != partition_key:
                if group is not None:
                    yield group
                group = Group(partition_key, began)
            group.add(item, rules)
    if group is not None:
        yield group


def _add_unjudged(report: Report, outcome: Reading | Unjudged, parent: ParentKey, *, seen: bool) -> None:
    """Add what was found of a parent that could not be judged, or that does not exist."""
    if isinstance(outcome, Unjudged):
        report.unjudged[parent] = str(outcome)
        return
    report.drifting.pop(parent, None)  # found before it was deleted
    if outcome.found:
        report.orphans[parent] = outcome.found
    if seen:
        report.unjudged[parent] = "it was deleted while it was audited"
