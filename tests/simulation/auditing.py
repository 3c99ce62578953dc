"""Audits and repairs in the simulated AWS, at random moments of schedules in which something drifts.

What is played here besides `world`:

- *Drift*: somebody adds to a tally; children come or go without a record (a restored backup); batches are given up, by
  the retry cap or by their age; a tally is text for a while.
- *The auditor* is the product's own, on clients whose every call lets the world go on: likes, deliveries, splits,
  discarded batches, re-created posts, woken invocations, and a second auditor that repairs at the same time.
- *The stream* is read by the product's own reader. Pages are short and some are empty, iterators expire, a record shows
  after up to a second, and is trimmed after a day; so is a shard, a day after it was closed.

What is right is told by a `Ledger` that sees every record and every write: which records a tally contains, and what
else was done to it. It does not count children, which is what the auditor does.
"""

from __future__ import annotations

import dataclasses
import random
import zlib
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import ClientError

from builders import STREAM_ARN
from fakes import FakeDynamoDb, client_error
from simulation.world import (
    DAY,
    Invocation,
    Piece,
    Schedule,
    Shard,
    World,
    Wrong,
    _delta,
    _mark_name,
    _post_of,
    _same_lane,
    aggregator,
)
from tallystream.auditor import Auditor, Report, groups
from tallystream.changes import padded
from tallystream.dynamodb import DynamoDbItems, DynamoDbTable
from tallystream.streams import TableStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tallystream.audit import Verdict
    from tallystream.changes import ParentKey

AUDIT_FEATURES = (
    "plant",  # somebody adds to a tally
    "silent",  # children come and go without a record
    "mend",  # audits repair what they find
    "second_auditor",  # while one audits, another one does, and repairs
    "long_audit",  # hours pass while an audit reads
    "transactions",  # likes are counted in transactions: no mapping, no marks
    "clocks_differ",  # the auditor's clock is not DynamoDB's
    "unmapped",  # for a while nothing is counted, and the auditor knows it; then the mapping is switched on
)
UNDER_WAY_S = 900
IMPATIENT_S = 20
CLOCKS_DIFFER_S = 5
ACTS_AN_AUDIT = 40
EMPTY_PAGES_AT_MOST = 3
ITERATOR_LIVES_S = 900


@dataclass(frozen=True)
class AuditSchedule(Schedule):
    """A schedule with audits in it."""

    audits: int = 3
    record_age_s: int = 21_600
    impatient: bool = False
    """Whether the auditors take a change for passed over that the aggregator may only be late with."""

    @property
    def overdue_s(self) -> int:
        """The age at which the auditors wait for a change no more."""
        return IMPATIENT_S if self.impatient else self.record_age_s + UNDER_WAY_S

    @classmethod
    def from_seed(cls, seed: int) -> AuditSchedule:
        """Return a schedule whose faults and features are those of the plain schedule of this seed."""
        rng = random.Random(f"{seed} audits")
        plain = {part.name: getattr(Schedule.from_seed(seed), part.name) for part in dataclasses.fields(Schedule)}
        rare = {"transactions": 0.1, "long_audit": 0.3, "unmapped": 0.15}
        plain["features"] += tuple(name for name in AUDIT_FEATURES if rng.random() < rare.get(name, 0.5))
        plain["steps"] = rng.randint(5, 70)
        audits, record_age_s = rng.randint(1, 3), rng.choice((1800, 21_600, 82_800))
        return cls(**plain, audits=audits, record_age_s=record_age_s, impatient=seed % 7 == 6)

    def has(self, feature: str) -> bool:
        """Say whether a feature takes part. The ledger has a right answer for a replay in any company."""
        return feature in self.features if feature == "replay" else super().has(feature)


class ObservedDynamoDb(FakeDynamoDb):
    """The table, telling of each update that was applied: the request, and by how much the tally has changed."""

    observe: Any = None
    created = 0

    def add_post(self, post: str, **attributes: dict[str, Any]) -> None:
        """Store a post; no two have the same time of creation."""
        self.created += 1
        super().add_post(post, createdAt={"N": str(self.created)}, **attributes)

    def update_item(self, **request: Any) -> dict[str, Any]:
        """Apply an `UpdateItem`, and tell of it."""
        post = request["Key"]["PK"]["S"].removeprefix("POST#")
        before = self.tally(post) or 0
        answer = super().update_item(**request)
        self.observe(post, request, (self.tally(post) or 0) - before)
        return answer


class Change(NamedTuple):
    """A record of a child."""

    number: str
    """Padded."""
    shard: Shard
    sort_key: str
    delta: int
    made: float


@dataclass
class Ledger:
    """What a post's tally is made of, since the post was made."""

    born: str = ""
    """The last sequence number before."""
    counted: dict[str, int] = field(default_factory=dict)
    """Records that the aggregator has added: padded number -> delta."""
    settled: set[str] = field(default_factory=set)
    """Records that a repair has taken into account."""
    foreign: int = 0
    """What else was added: by others and by repairs."""
    repairs: int = 0


class Expected(NamedTuple):
    """What is right of a post at one moment."""

    drift: int | None
    """None: the tally is no number."""
    waiting: frozenset[str]
    passed_over: dict[str, str]
    """Mark's name -> the last record that it would be moved over."""
    lacking: frozenset[str]
    """Records that count as if they were in the tally, and are not."""
    born: str
    repairs: int
    changes: int
    """Records there are of it so far."""
    exists: bool


class AuditedWorld(World):
    """A world in which audits are made."""

    new_table = ObservedDynamoDb
    schedule: AuditSchedule
    table: ObservedDynamoDb

    def __init__(self, schedule: AuditSchedule) -> None:
        self.dice = random.Random(f"{schedule.seed} auditors")
        self.tops: dict[str, float] = {}
        self.closed_at: dict[str, float] = {}
        self.made: dict[str, float] = {}
        self.visible_at: dict[str, float] = {}
        self.changes: defaultdict[str, list[Change]] = defaultdict(list)
        self.silent: defaultdict[str, list[tuple[str, int, frozenset[str]]]] = defaultdict(list)
        self.ledgers: defaultdict[str, Ledger] = defaultdict(Ledger)
        self.given_up: set[str] = set()
        self.touched: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.auditing: list[Operator] = []
        self.acts_left = 0
        self.calm = False
        self.repairing: Expected | None = None
        self.names = 0
        self.mapped = not schedule.has("unmapped")
        super().__init__(schedule)
        self.table.observe = self._observe
        self.transactions = schedule.has("transactions")
        self.skew = self.dice.uniform(-0.9, 0.9) if schedule.has("clocks_differ") else 0.0
        self.operator = Operator(self)

    # Streams: a shard has one parent, as DynamoDB's have, and a child's changes stay in one lineage.

    def _new_shard(self, parents: tuple[Shard, ...]) -> Shard:
        shard = super()._new_shard(parents)
        for parent in parents:
            self.closed_at[parent.id] = self.clock
            self.tops[shard.id] = self._top(parent)
        return shard

    def _top(self, shard: Shard) -> float:
        """Return the end of the shard's stretch of the keys."""
        if shard.id not in self.tops:
            self.tops[shard.id] = (self.open.index(shard) + 1) / len(self.open)
        return self.tops[shard.id]

    def _open_at(self, point: float) -> Shard:
        tops = [self._top(shard) for shard in self.open]
        return next(shard for shard, top in zip(self.open, tops, strict=True) if point < top)

    def _do_split(self, post: str, user: str) -> None:
        del post, user
        if len(self.open) > 3:
            return
        index = self.people.randrange(len(self.open))
        parent = self.open[index]
        bottom = self._top(self.open[index - 1]) if index else 0.0
        parent.closed = True
        halves = [self._new_shard((parent,)), self._new_shard((parent,))]
        self.tops[halves[0].id] = (bottom + self._top(parent)) / 2
        self.open[index : index + 1] = halves

    def _append(self, entry: dict[str, Any], key: tuple[str, str]) -> None:
        number = entry["dynamodb"]["SequenceNumber"]
        shard = self._open_at(zlib.crc32("/".join(key).encode()) / 2**32)
        before = max((self.visible_at[old["dynamodb"]["SequenceNumber"]] for old in shard.records[-1:]), default=0.0)
        self.made[number] = self.clock
        self.visible_at[number] = max(before, self.clock + self.dice.random())
        super()._append(entry, key)
        post = _post_of(entry)
        if post is not None:
            sort_key = entry["dynamodb"]["Keys"]["SK"]["S"]
            self.changes[post].append(Change(padded(number) or "", shard, sort_key, _delta(entry), self.clock))
            self.touched[post] += 1

    def trimmed(self, shard: Shard) -> int:
        """Return how many of a shard's records the stream does not have any more."""
        horizon = self.clock - DAY
        return bisect_left(shard.records, horizon, key=lambda entry: self.made[entry["dynamodb"]["SequenceNumber"]])

    def gone(self, shard: Shard) -> bool:
        """Say whether the stream has forgotten a shard."""
        return self.closed_at.get(shard.id, self.clock) < self.clock - DAY

    def concurrently(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Apply a function to several things in any order; return the results in theirs."""
        ordered = list(items)
        results = {index: function(ordered[index]) for index in self.dice.sample(range(len(ordered)), len(ordered))}
        return [results[index] for index in range(len(ordered))]

    # The event source mapping.

    def deliver(self, *, calm: bool = False) -> bool:
        """Deliver a batch, if there is a mapping."""
        return self.mapped and not self.transactions and super().deliver(calm=calm)

    def _gives_up(self, shard: Shard, piece: Piece) -> bool:
        end = piece.first
        oldest = self.clock - self.schedule.record_age_s
        while end < piece.end and self.made[shard.records[end]["dynamodb"]["SequenceNumber"]] < oldest:
            end += 1
        if end == piece.first:
            return False
        self._discard(shard, piece.first, end)
        shard.pieces[:1] = [Piece(end, piece.end)] if end < piece.end else []
        return True

    def _discard(self, shard: Shard, first: int, end: int) -> None:
        super()._discard(shard, first, end)
        self.given_up |= {padded(entry["dynamodb"]["SequenceNumber"]) or "" for entry in shard.records[first:end]}

    def _do_replay(self, post: str, user: str) -> None:
        super()._do_replay(post, user)
        for shard in self.shards:
            shard.position = self.trimmed(shard)

    def _wake(self, entry: tuple[Shard, Any]) -> None:
        # Nothing that Lambda runs lives longer. What the simulation wakes too late has ended long before.
        if self.clock - entry[1].slept_at <= UNDER_WAY_S:
            super()._wake(entry)
            return
        self.zombies.remove(entry)
        entry[1].wake(killed=True)
        self.trace.append(f"zombie of {entry[0].id[-8:]} was killed in its sleep")

    # What people do.

    def act(self) -> None:
        """Do one thing; now and then, one that makes a tally drift."""
        chance = self.dice.random()
        post = str(self.dice.randrange(self.schedule.posts))
        if chance < 0.06 and self.schedule.has("plant"):
            self._plant(post)
        elif 0.06 <= chance < 0.12 and self.schedule.has("silent") and not self.auditing:
            self._go_silently(post, str(self.dice.randrange(self.schedule.users)))
        else:
            super().act()

    def _toggle(self, post: str, user: str) -> None:
        children = self._children(post)
        super()._toggle(post, user)
        item = self.table.items.get((f"POST#{post}", "META"))
        if self.transactions and item and "N" in item["likeTally"]:
            more = self._children(post) - children
            item["likeTally"] = {"N": str(int(item["likeTally"]["N"]) + more)}
            self.ledgers[post].foreign += more

    def _plant(self, post: str) -> None:
        item = self.table.items.get((f"POST#{post}", "META"))
        more = self.dice.choice((-3, -2, -1, 1, 2, 3))
        if item and "N" in item["likeTally"]:
            self._write_foreign(post, int(item["likeTally"]["N"]) + more)
            self.seen["planted"] += 1

    def _write_foreign(self, post: str, tally: int) -> None:
        """Let somebody else write a tally."""
        ledger = self.ledgers[post]
        self.table.items[f"POST#{post}", "META"]["likeTally"] = {"N": str(tally)}
        ledger.foreign = tally - sum(ledger.counted.values())
        self.touched[post] += 1
        self.trace.append(f"somebody sets the tally of {post} to {tally}")

    def _go_silently(self, post: str, user: str) -> None:
        """Let a child come or go without a record."""
        key = (f"POST#{post}", f"LIKE#USER#{user}")
        delta = -1 if self.table.items.pop(key, None) else 1
        if delta > 0:
            self.table.items[key] = {"PK": {"S": key[0]}, "SK": {"S": key[1]}}
        earlier = frozenset(change.number for change in self.changes[post] if change.sort_key == key[1])
        self.silent[post].append((key[1], delta, earlier))
        self.touched[post] += 1
        self.seen["silent"] += 1
        self.trace.append(f"{'' if delta > 0 else 'un'}like {post} by {user} without a record")

    def _do_poison(self, post: str, user: str) -> None:
        """Make a tally a text, or a number again."""
        if self.poisoned.pop(post, None) is not None:
            self._write_foreign(post, self.dice.randrange(5))
        else:
            super()._do_poison(post, user)
            self.touched[post] += 1

    def _do_delete_post(self, post: str, user: str) -> None:
        before = (f"POST#{post}", "META") in self.table.items
        super()._do_delete_post(post, user)
        self.touched[post] += 1
        if not before:
            self.ledgers[post] = Ledger(born=str(self.number).zfill(40))

    def _do_days(self, post: str, user: str) -> None:
        if not self.auditing:  # no audit takes a day
            super()._do_days(post, user)

    # The ledger.

    def _observe(self, post: str, request: dict[str, Any], more: int) -> None:
        """Note an applied update, and see that it was right to apply it."""
        ledger = self.ledgers[post]
        self.touched[post] += 1
        if self.repairing is not None:
            self._note_repair(post, ledger, self.repairing, more)
        elif "ADD" in request["UpdateExpression"]:
            values, name = request["ExpressionAttributeValues"], request["ExpressionAttributeNames"]["#mark"]
            first, last = values[":first"]["S"], values[":mark"]["M"]["seq"]["S"]
            added = [
                change
                for change in self.changes[post]
                if first <= change.number <= last and _mark_name(change.shard, self.schedule) == name
            ]
            again = [
                change.number for change in added if change.number in ledger.counted or change.number in ledger.settled
            ]
            if again:
                raise Wrong(f"post {post}: counted twice: {again}")
            if sum(change.delta for change in added) != more:
                raise Wrong(f"post {post}: {more} added for {added}")
            ledger.counted |= {change.number: change.delta for change in added}

    def _note_repair(self, post: str, ledger: Ledger, judged: Expected, more: int) -> None:
        if ledger.born != judged.born:
            raise Wrong(f"post {post}: made anew, and repaired by what was found of the former one")
        if ledger.repairs != judged.repairs:
            raise Wrong(f"post {post}: repaired twice for what was found once")
        if judged.drift is None or more != -judged.drift:
            raise Wrong(f"post {post}: a drift of {judged.drift} was repaired by {more}")
        if judged.lacking & ledger.counted.keys():
            raise Wrong(f"post {post}: repaired for what was counted since")
        ledger.foreign += more
        ledger.settled |= judged.lacking
        ledger.repairs += 1
        self.seen["repaired"] += 1
        self.trace.append(f"post {post} repaired by {more}")

    def expected(self, post: str, began: float) -> Expected:
        """Return what is right of a post as of its marks; `began` is when its auditor began to read it.

        Raises:
            Wrong: a tally does not consist of what went into it, or a record was lost.
        """
        ledger = self.ledgers[post]
        so_far = ledger.born, ledger.repairs, len(self.changes[post])
        item = self.table.items.get((f"POST#{post}", "META"))
        if item is None:
            return Expected(0, frozenset(), {}, frozenset(), *so_far, exists=False)
        marks = {name: mark["seq"]["S"] for name, mark in self.table.marks(post).items()}
        overdue = int(began) - (self.schedule.overdue_s if self.mapped else CLOCKS_DIFFER_S)
        missing, reached = self._missing(post, marks, overdue)
        waiting = frozenset(number for number, name in missing.items() if number > reached.get(name, ""))
        if self.transactions:
            waiting, reached = frozenset(), {}
        lacking = frozenset(
            change.number
            for change in self.changes[post]
            if change.number not in waiting
            and change.number not in ledger.counted
            and change.number not in ledger.settled
        )
        self._check_none_is_lost(post, ledger, lacking)
        if "N" not in item["likeTally"]:
            return Expected(None, waiting, reached, lacking, *so_far, exists=True)
        tally = int(item["likeTally"]["N"])
        if tally != ledger.foreign + sum(ledger.counted.values()):
            raise Wrong(f"post {post}: the tally {tally} is not what was added: {ledger}")
        truth = sum(change.delta for change in self.changes[post] if change.number not in waiting)
        truth += sum(delta for _, delta, earlier in self.silent[post] if not earlier & waiting)
        return Expected(tally - truth, waiting, reached, lacking, *so_far, exists=True)

    def _missing(self, post: str, marks: dict[str, str], overdue: int) -> tuple[dict[str, str], dict[str, str]]:
        """Return the records above the marks with their marks' names, and up to where each shard was passed over."""
        finished: set[str] = set()
        for shard in self.shards:
            above = shard.parents if f"mark#{shard.id.removeprefix('shardId-')}" in marks else ()
            while above:
                finished.add(above[0].id)
                above = above[0].parents
        missing: dict[str, str] = {}
        reached: dict[str, str] = {}
        for change in self.changes[post]:
            name = _mark_name(change.shard, self.schedule)
            if change.number > marks.get(name, ""):
                missing[change.number] = name
                if change.shard.id in finished or int(change.made) < overdue:
                    reached[name] = max(reached.get(name, ""), change.number)
        return missing, reached

    def _check_none_is_lost(self, post: str, ledger: Ledger, lacking: frozenset[str]) -> None:
        """See that each record that no tally will ever contain was given up, came before its post, or is overdue."""
        lost = {number for number in lacking if number > ledger.born and number not in self.given_up}
        oldest = self.clock - self.schedule.record_age_s
        # What an impatient auditor does not wait for is not lost: it is late, and may still be counted.
        lost -= {change.number for change in self.changes[post] if self.schedule.impatient or change.made < oldest}
        for message in self.queue.messages:
            if message.get("parent", {}).get("PK") == f"POST#{post}":
                lost -= {
                    change.number
                    for change in self.changes[post]
                    if message["first"].zfill(40) <= change.number <= message["last"].zfill(40)
                    and _same_lane(change.shard, message["shard"], self.schedule)
                }
        if lost and self.mapped and not self.transactions:
            raise Wrong(f"post {post}: lost: {sorted(lost)}")

    # Audits.

    def interlude(self) -> None:
        """Let the world go on between two calls of an auditor."""
        if self.calm or self.dice.random() > 0.25:
            return
        for _ in range(self.dice.randint(1, 3)):
            if self.acts_left > 0:
                self.acts_left -= 1
                self.act()
        if self.schedule.has("long_audit") and self.dice.random() < 0.05:
            self.clock += self.dice.randint(600, 5000)
            self.trace.append("a long while passes")
        if self.schedule.has("second_auditor") and len(self.auditing) == 1 and self.dice.random() < 0.1:
            self.trace.append("a second auditor comes")
            Operator(self).audit(mend=True)

    def happen(self) -> None:
        """Let everything happen, with audits in between; come to rest; audit and repair what there is to be."""
        schedule = self.schedule
        for step in range(schedule.steps):
            if not self.mapped and step > schedule.steps // 2:
                self.mapped = True
                self.operator = Operator(self)
            self.act()
            if self.dice.random() < schedule.audits / schedule.steps:
                if self.dice.random() < 0.5:
                    self.operator = Operator(self)
                self.operator.audit(mend=schedule.has("mend"))
        self.mapped = True
        self.drain()
        self.calm = True
        if schedule.has("days") and not self.transactions:
            self.check_marks()
        self.operator.audit(mend=False)
        for post in tuple(self.poisoned):
            self._do_poison(post, "")
        # What was given up behind the last mark is passed over at the latest when the stream has lost it.
        self.clock += self.dice.choice((1, 2)) * DAY + 7200
        Operator(self).audit(mend=True)
        self.check()
        if Operator(self).audit(mend=False).drifting:
            raise Wrong("something drifts after its repair")

    def check(self) -> None:
        """Compare each tally with the children, after the last repair."""
        for post in map(str, range(self.schedule.posts)):
            item = self.table.items.get((f"POST#{post}", "META"))
            if item is None:
                continue
            others = {name for name in item if not name.startswith("mark#")}
            if others != {"PK", "SK", "likeTally", "createdAt"}:
                raise Wrong(f"post {post} has grown attributes: {sorted(item)}")
            if int(item["likeTally"]["N"]) != self._children(post):
                raise Wrong(f"post {post}: tally {item['likeTally']['N']}, children {self._children(post)}")

    def _children(self, post: str) -> int:
        return sum(key[0] == f"POST#{post}" and key[1].startswith("LIKE#USER#") for key in self.table.items)


class Findings(Report):
    """A report that hands each verdict to whom knows what is right."""

    def __init__(self, operator: Operator) -> None:
        super().__init__()
        self.operator = operator

    def add(self, verdict: Verdict, *, again: bool) -> None:
        """Take a verdict that is right."""
        self.operator.check_verdict(verdict)
        super().add(verdict, again=again)


class Operator:
    """Somebody who audits, and the clients through which it is done."""

    def __init__(self, world: AuditedWorld) -> None:
        self.world = world
        self.dice = world.dice
        self.streams = StreamsClient(world)
        self.read_at = 0.0
        self.judged: dict[str, Expected] = {}
        """What was right of each post when it was last read for a verdict."""
        self.scanned: dict[str, Expected] = {}
        self.queried: set[str] = set()
        self.repairs: dict[str, tuple[str, int]] = {}
        """When each post was made, and how many repairs it had, before the audit."""
        self.mending = False
        rules = aggregator._batches.rules
        self.items = DynamoDbItems(self, "Simulated", self._now)  # type: ignore[arg-type]
        self.auditor = Auditor(
            items=self.items,
            stream=TableStream(
                self.streams,  # type: ignore[arg-type]
                STREAM_ARN,
                rules,
                now=self._now,
                sleep=self._sleep,
                concurrently=world.concurrently,
            ),
            table=DynamoDbTable(self, "Simulated"),  # type: ignore[arg-type]
            rules=rules,
            path="transaction" if world.schedule.has("transactions") else "stream",
            overdue_s=world.schedule.overdue_s if world.mapped else 0,
            concurrently=world.concurrently,
            now=self._now,
            new_name=self._new_name,
            names_shards=not world.schedule.has("no_window"),
        )

    def audit(self, *, mend: bool) -> Report:
        """Audit all posts in one of the ways there are, and see that the report is right."""
        world = self.world
        self.judged, self.scanned, self.queried, self.mending = {}, {}, set(), mend
        self.streams.trims = 0
        findings = Findings(self)
        touched = world.touched.copy()
        self.repairs = {
            post: (world.ledgers[post].born, world.ledgers[post].repairs)
            for post in map(str, range(world.schedule.posts))
        }
        at_rest = self._at_rest()
        way = self.dice.choice(("scan", "posts", "collections"))
        world.trace.append(f"audit by {way}{' and repair' if mend else ''}")
        if not world.auditing:
            world.acts_left = ACTS_AN_AUDIT
        world.auditing.append(self)
        try:
            self._audit(way, findings, mend=mend)
        except ClientError as error:
            if error.response["Error"]["Code"] != "AccessDeniedException":
                raise
            world.trace.append("audit denied")
            return findings
        finally:
            world.auditing.pop()
        world.seen["audited"] += 1
        self._check(findings, mend=mend)
        for post, repairs in self.repairs.items():
            ledger = world.ledgers[post]
            if (f"POST#{post}", "META") in findings.repaired and repairs == (ledger.born, ledger.repairs):
                raise Wrong(f"post {post} is said to be repaired, and was not")
        self._check_the_untouched(findings, way, at_rest, touched)
        world.trace.append(f"audited: {sorted((key[0], tallies) for key, tallies in findings.drifting.items())}")
        return findings

    def _audit(self, way: str, findings: Report, *, mend: bool) -> None:
        posts = [str(post) for post in range(self.world.schedule.posts)]
        if way == "posts":
            parents = {(f"POST#{post}", "META"): (f"POST#{post}", "META") in self.world.table.items for post in posts}
            self.auditor.judge(parents, findings, mend=mend)
            return
        segments = self.dice.randint(1, 3)
        if way == "scan":
            parts = [self.items.scan(segment, segments) for segment in range(segments)]
        else:
            parts = [self.items.collection(f"POST#{post}") for post in posts]
        for part in parts:
            found = groups(((page.began, page.items) for page in part), self.auditor.rules)
            self.auditor.audit(list(found), findings, mend=mend)

    def _at_rest(self) -> set[str]:
        """Return the posts that are right, and to which nothing has happened and nothing will."""
        world = self.world
        at_rest = set()
        for post in map(str, range(world.schedule.posts)):
            right = world.expected(post, world.clock)
            quiet = all(change.made < world.clock - 10 for change in world.changes[post])
            if right.exists and right.drift == 0 and quiet and not right.waiting and not right.passed_over:
                at_rest.add(post)
        return at_rest

    # What is right.

    def check_verdict(self, verdict: Verdict) -> None:
        """Compare a verdict with what was right when its post was read."""
        post = verdict.parent[0].removeprefix("POST#")
        right = self.judged[post]
        (tally,) = verdict.tallies
        self.world.seen["verdicts"] += 1
        self.world.seen["drifts"] += tally.drift != 0
        self.world.seen["waiting"] += verdict.waiting > 0
        self.world.seen["passed over"] += bool(verdict.passed_over)
        if tally.drift != right.drift:
            raise Wrong(f"post {post}: a drift of {right.drift}, and reported is {verdict}")
        if self.world.transactions:
            return
        since = len(self.world.changes[post]) - right.changes
        if not len(right.waiting) <= verdict.waiting <= len(right.waiting) + since:
            raise Wrong(f"post {post}: {len(right.waiting)} changes wait, and reported are {verdict.waiting}")
        moved = {name: mark.number for name, mark in verdict.passed_over.items()}
        if moved != right.passed_over:
            horizon = self.world.clock - DAY
            kept = {change.number for change in self.world.changes[post] if change.made >= horizon}
            moved = {name: number for name, number in moved.items() if number in kept}
            right = right._replace(passed_over={n: v for n, v in right.passed_over.items() if v in kept})
        if moved != right.passed_over:
            raise Wrong(f"post {post}: passed over up to {right.passed_over}, and reported is {moved}")

    def _check(self, findings: Report, *, mend: bool) -> None:
        """See that each post was proved right, judged, or left unjudged for a reason."""
        for post in map(str, range(self.world.schedule.posts)):
            parent = (f"POST#{post}", "META")
            judged = self.judged.get(post)
            if judged is None:
                found = self.scanned.get(post)
                if found and found.drift != 0 and parent not in findings.unjudged:
                    raise Wrong(f"post {post}: a drift of {found.drift}, and nothing is reported")
                if parent in findings.drifting:
                    raise Wrong(f"post {post} was not judged, and is reported")
            elif parent in findings.unjudged:
                self.world.seen["unjudged"] += 1
                disturbed = self.streams.trims or self.world.transactions
                if not (judged.drift is None or not judged.exists or disturbed):
                    raise Wrong(f"post {post} could be judged, and was not: {findings.unjudged[parent]}")
            elif judged.exists:
                self._check_judged(parent, judged, findings, mend=mend)
            elif parent in findings.drifting and parent not in findings.repaired:
                raise Wrong(f"post {post} is not there, and is reported")

    def _check_judged(self, parent: ParentKey, judged: Expected, findings: Report, *, mend: bool) -> None:
        if not mend and (parent in findings.drifting) is not bool(judged.drift):
            raise Wrong(f"{parent}: a drift of {judged.drift}, and reported is {findings.drifting}")
        if mend and judged.drift and parent not in findings.repaired and parent not in findings.unrepaired:
            raise Wrong(f"{parent} drifts, and was not repaired")

    def _check_the_untouched(self, findings: Report, way: str, at_rest: set[str], touched: Counter[str]) -> None:
        """See what was said and asked of posts to which nothing has happened during the audit."""
        world = self.world
        untouched = {post for post in map(str, range(world.schedule.posts)) if touched[post] == world.touched[post]}
        if way != "posts" and at_rest & self.queried & untouched:
            raise Wrong(f"idle and right, and asked for its children: {at_rest & self.queried & untouched}")
        world.seen["asked for no children"] += way != "posts" and bool(at_rest - self.queried)
        for post in untouched:
            parent = (f"POST#{post}", "META")
            orphans = 0 if parent in world.table.items else world._children(post)
            if findings.orphans.get(parent, 0) != orphans and parent not in findings.unjudged:
                raise Wrong(f"post {post}: {orphans} orphans, and reported are {findings.orphans}")
            world.seen["orphans"] += bool(orphans)

    # The clients.

    def _now(self) -> float:
        self.read_at = self.world.clock + self.world.skew
        return self.read_at

    def _sleep(self, seconds: float) -> None:
        self.world.clock += seconds
        self.world.interlude()

    def _new_name(self) -> str:
        self.world.names += 1
        return f"repair {self.world.names}"

    def get_item(self, *, TableName: str, Key: dict[str, Any], ConsistentRead: bool, **_: Any) -> dict[str, Any]:  # noqa: N803
        """Read a parent for a verdict."""
        assert TableName == "Simulated"
        assert ConsistentRead
        began = self.read_at
        self.world.interlude()
        post = Key["PK"]["S"].removeprefix("POST#")
        self.judged[post] = self.world.expected(post, began)
        return self.world.table.get_item(Key=Key)

    def query(self, **request: Any) -> dict[str, Any]:
        """Give a page of an item collection, or of a post's children."""
        values = request["ExpressionAttributeValues"]
        collection, prefix = values[":pk"]["S"], values.get(":prefix", {"S": ""})["S"]
        if prefix:
            self.queried.add(collection.removeprefix("POST#"))
        return self._page(lambda key: key[0] == collection and key[1].startswith(prefix), request)

    def scan(self, **request: Any) -> dict[str, Any]:
        """Give a page of a segment."""
        segment, segments = request["Segment"], request["TotalSegments"]
        return self._page(lambda key: zlib.crc32(key[0].encode()) % segments == segment, request)

    def _page(self, wanted: Callable[[tuple[str, str]], bool], request: dict[str, Any]) -> dict[str, Any]:
        assert request["ConsistentRead"]
        self.world.interlude()
        start = request.get("ExclusiveStartKey")
        after = (start["PK"]["S"], start["SK"]["S"]) if start else ("", "")
        keys = sorted(key for key in self.world.table.items if wanted(key) and key > after)
        size = self.dice.randint(1, 4)
        for key in keys[:size]:
            if key[1] == "META":
                post = key[0].removeprefix("POST#")
                self.scanned[post] = self.world.expected(post, self.read_at)
        items = [
            self.world.table.get_item(Key={"PK": {"S": key[0]}, "SK": {"S": key[1]}})["Item"] for key in keys[:size]
        ]
        # DynamoDB may say that there is more where there is not.
        more = len(keys) > size or (len(keys) == size and self.dice.random() < 0.3)
        return {"Items": items} | (
            {"LastEvaluatedKey": {name: items[-1][name] for name in ("PK", "SK")}} if more else {}
        )

    def update_item(self, *, TableName: str, **request: Any) -> dict[str, Any]:  # noqa: N803
        """Send a repair over the same bad network as the aggregator's updates."""
        assert TableName == "Simulated"
        if not self.mending:
            raise Wrong("an audit that is not to repair writes")
        return Repair(self.world, self.judged).update_item(**request)


class Repair(Invocation):
    """The SDK's call of a repair: between its attempts the world goes on."""

    def __init__(self, world: AuditedWorld, judged: dict[str, Expected]) -> None:
        super().__init__(world, calm=world.calm)
        self.fault = None
        self.judged = judged
        self.world: AuditedWorld = world

    def _attempt(self, request: dict[str, Any]) -> tuple[dict[str, Any] | None, Exception | None]:
        self.world.interlude()
        self.world.repairing = self.judged[request["Key"]["PK"]["S"].removeprefix("POST#")]
        try:
            answer, error = super()._attempt(request)
        finally:
            self.world.repairing = None
        if error:
            self.world.seen["repair without an answer"] += 1
        return answer, error


class StreamsClient:
    """boto3's client of the stream, as one reader sees it."""

    def __init__(self, world: AuditedWorld) -> None:
        self.world = world
        self.dice = world.dice
        self.trims = 0
        self._iterators: dict[str, tuple[Shard, int, float, bool]] = {}
        self._empty: Counter[str] = Counter()
        self._reads: defaultdict[str, list[float]] = defaultdict(list)

    def describe_stream(self, *, StreamArn: str, ExclusiveStartShardId: str | None = None) -> dict[str, Any]:  # noqa: N803
        """Give a page of shards."""
        assert StreamArn == STREAM_ARN
        self.world.interlude()
        # By their names and not by their age, so that children come before their parents.
        there = sorted((shard for shard in self.world.shards if not self.world.gone(shard)), key=lambda shard: shard.id)
        if self.world.schedule.seed % 2:
            there.reverse()
        ids = [shard.id for shard in there]
        first = ids.index(ExclusiveStartShardId) + 1 if ExclusiveStartShardId in ids else 0
        description: dict[str, Any] = {"Shards": [self._described(shard) for shard in there[first : first + 2]]}
        if len(there) > first + 2:
            description["LastEvaluatedShardId"] = there[first + 1].id
        return {"StreamDescription": description}

    def _described(self, shard: Shard) -> dict[str, Any]:
        numbers = {"StartingSequenceNumber": "1".zfill(21)}
        if shard.closed:
            numbers["EndingSequenceNumber"] = "9" * 40
        parent = {"ParentShardId": shard.parents[0].id} if shard.parents else {}
        return {"ShardId": shard.id, "SequenceNumberRange": numbers, **parent}

    def get_shard_iterator(self, **request: str) -> dict[str, Any]:
        """Give an iterator."""
        assert request["StreamArn"] == STREAM_ARN
        self.world.interlude()
        shard = self._shard(request["ShardId"])
        if request["ShardIteratorType"] == "TRIM_HORIZON":
            return {"ShardIterator": self._iterator(shard, self.world.trimmed(shard), fresh=True)}
        assert request["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER"
        numbers = [entry["dynamodb"]["SequenceNumber"] for entry in shard.records]
        index = numbers.index(request["SequenceNumber"])
        if index < self.world.trimmed(shard):
            self._trim()
        return {"ShardIterator": self._iterator(shard, index + 1)}

    def get_records(self, *, ShardIterator: str) -> dict[str, Any]:  # noqa: N803
        """Give a page of records."""
        shard, index, issued, fresh = self._iterators[ShardIterator]
        self._pace(shard)
        self.world.interlude()
        self._shard(shard.id)
        world = self.world
        if not world.calm and self.dice.random() < 0.03:
            raise client_error(self.dice.choice(("LimitExceededException", "InternalServerError")))
        if world.clock - issued > ITERATOR_LIVES_S or self.dice.random() < 0.02:
            raise client_error("ExpiredIteratorException")
        trimmed = world.trimmed(shard)
        if index < trimmed:
            if not fresh:
                self._trim()
            index = trimmed
        if self.dice.random() < 0.2 and self._empty[shard.id] < EMPTY_PAGES_AT_MOST:
            self._empty[shard.id] += 1
            return {"Records": [], "NextShardIterator": self._iterator(shard, index)}
        self._empty[shard.id] = 0
        records, end = self._visible(shard, index, self.dice.choice((1, 3, 10, 1000)))
        if shard.closed and end == len(shard.records):
            return {"Records": records}
        return {"Records": records, "NextShardIterator": self._iterator(shard, end)}

    def _visible(self, shard: Shard, index: int, limit: int) -> tuple[list[dict[str, Any]], int]:
        """Return records from a place on, as the stream's API gives them, and the place behind them."""
        records: list[dict[str, Any]] = []
        while index < len(shard.records) and len(records) < limit:
            entry = shard.records[index]
            number = entry["dynamodb"]["SequenceNumber"]
            if self.world.visible_at[number] > self.world.clock:
                break
            index += 1
            # Malformed records are something that a function may be given, and nothing that a stream has.
            if entry["eventName"] in {"INSERT", "MODIFY", "REMOVE"} and "SK" in entry["dynamodb"]["Keys"]:
                made = datetime.fromtimestamp(int(self.world.made[number]), UTC)
                records.append({**entry, "dynamodb": {**entry["dynamodb"], "ApproximateCreationDateTime": made}})
        return records, index

    def _shard(self, shard_id: str) -> Shard:
        shard = next(shard for shard in self.world.shards if shard.id == shard_id)
        if self.world.gone(shard):
            self.trims += 1
            raise client_error("ResourceNotFoundException")
        return shard

    def _iterator(self, shard: Shard, index: int, *, fresh: bool = False) -> str:
        name = f"{len(self._iterators)}"
        self._iterators[name] = (shard, index, self.world.clock, fresh)
        return name

    def _trim(self) -> None:
        self.trims += 1
        raise client_error("TrimmedDataAccessException")

    def _pace(self, shard: Shard) -> None:
        reads = self._reads[shard.id]
        reads[:] = [at for at in reads if at > self.world.clock - 0.99]
        reads.append(self.world.clock)
        if len(reads) > 5:
            raise Wrong(f"a shard is read {len(reads)} times a second")
