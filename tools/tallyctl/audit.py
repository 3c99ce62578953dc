"""The audit of a whole table, or of some posts: rounds of reading and judging, and what they found.

Each segment of a parallel scan gives some item collections, all of them are judged together, and then comes the next
round. So a table of any size takes the same memory, and the stream is caught up with once a round instead of once a
parent.
"""

import contextlib
import dataclasses
import functools
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallyctl.comparison.costs import PRICES, READ_UNIT_BYTES
from tallyctl.errors import TallyctlError
from tallyctl.findings import Findings, Place
from tallystream.audit import SHARDLESS_MARK
from tallystream.auditor import Auditor, Concurrently, Group, Report, groups, overdue_after
from tallystream.changes import ParentKey
from tallystream.counters import mark_name
from tallystream.dynamodb import DynamoDbItems, DynamoDbTable, Page
from tallystream.keys import post_key
from tallystream.rules import Rules
from tallystream.streams import TableStream

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from tallyctl import stack

WORKERS = 8
FIRST_ROUND = 256
"""How many item collections are judged together at first: what goes wrong shows early, and little is lost by it. Each
round takes four times as many as the one before, up to the next figure."""

ROUND_GROUPS = 8192
"""Some 3 KB of memory each, and more where they drift."""

ROUND_ITEMS = 262_144
"""So many items end the round as well, one large collection a segment left aside."""

_MOST_PROJECTED = 250
"""An expression has at most 4 KB:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-expression-parameters"""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be audited, and how."""

    posts: Sequence[str] = ()
    """Post ids; none for the whole table."""
    mend: bool = False
    workers: int = WORKERS
    """Threads, and segments of the scan."""
    resume: Path | None = None
    """Where the findings are kept until the audit is finished, so that another run can go on."""
    overdue_s: int | None = None
    """The age at which a change is waited for no more; None for as long as the mapping may deliver it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What DynamoDB says of a table."""

    stream_arn: str
    items: int
    """As of some hours ago, as is the next: DynamoDB counts about every six hours."""
    size_bytes: int
    clock_offset_s: float
    """How far DynamoDB's clock is ahead of this machine's."""

    @property
    def scan_units(self) -> int:
        """How many read units a strongly consistent scan takes."""
        return -(-self.size_bytes // READ_UNIT_BYTES)

    def now(self) -> float:
        """Return the time by DynamoDB's clock, which dates the records of the stream; epoch seconds."""
        return time.time() + self.clock_offset_s


def facts(client: "DynamoDBClient", table_name: str) -> Facts:
    """Return what DynamoDB says of a table.

    Raises:
        TallyctlError: there is no such table, its keys are not PK and SK, or it has no stream.
    """
    try:
        answer = client.describe_table(TableName=table_name)
    except client.exceptions.ResourceNotFoundException as error:
        raise TallyctlError(f"there is no table {table_name} here") from error
    table = answer["Table"]
    types = {attribute["AttributeName"]: attribute["AttributeType"] for attribute in table["AttributeDefinitions"]}
    keys = {key["KeyType"]: key["AttributeName"] for key in table["KeySchema"]}
    if keys != {"HASH": "PK", "RANGE": "SK"} or types["PK"] != "S" or types["SK"] != "S":
        raise TallyctlError(f"the keys of {table_name} are not PK and SK, both strings: nothing is counted on it")
    if not table.get("StreamSpecification", {}).get("StreamEnabled"):
        raise TallyctlError(
            f"{table_name} has no stream, so nothing says what changes during an audit: turn it on "
            "(StreamViewType KEYS_ONLY is enough)"
        )
    return Facts(
        table["LatestStreamArn"],
        table.get("ItemCount", 0),
        table.get("TableSizeBytes", 0),
        _clock_offset(answer["ResponseMetadata"]["HTTPHeaders"], time.time()),
    )


def _clock_offset(headers: Mapping[str, str], local: float) -> float:
    """Return how far the clock behind an answer is ahead, give or take half a second: the header has whole ones."""
    if "date" not in headers:
        return 0.0
    return parsedate_to_datetime(headers["date"]).timestamp() + 0.5 - local


@dataclass(frozen=True, slots=True)
class Tools:
    """What an audit of one table works with."""

    facts: Facts
    dynamodb: "DynamoDBClient"
    streams: Callable[[str], TableStream]
    """Makes a reader of the stream with an ARN."""
    concurrently: Concurrently
    stopping: threading.Event
    """Set when the audit ends early: whoever reads page after page looks at it."""

    def items(self, table_name: str, attributes: Sequence[str] | None = None) -> DynamoDbItems:
        """Return the port for reading items."""
        return DynamoDbItems(self.dynamodb, table_name, self.facts.now, attributes)

    def auditor(self, counting: "stack.Counting", items: DynamoDbItems, stream: TableStream) -> Auditor:
        """Return what audits the table."""
        return Auditor(
            items=items,
            stream=stream,
            table=DynamoDbTable(self.dynamodb, counting.table_name),
            rules=counting.rules,
            path=counting.path,
            overdue_s=overdue_after(counting.record_age_s),
            concurrently=self.concurrently,
            now=self.facts.now,
            new_name=lambda: uuid.uuid4().hex,
            names_shards=counting.names_shards,
        )


@contextlib.contextmanager
def tools(
    place: "stack.Place", counting: "stack.Counting", workers: int, wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[Tools]:
    """Have the clients and threads for as long as the block runs.

    Args:
        place: where the table is.
        counting: the table.
        workers: how many requests are under way at a time.
        wanted: says of a partition key whether it may be audited.

    Raises:
        TallyctlError: see `facts`.
    """
    config = place.config(workers)
    dynamodb = place.session.client("dynamodb", config=config)
    found = facts(dynamodb, counting.table_name)
    stopping = threading.Event()
    with ThreadPoolExecutor(workers) as pool:
        reader = functools.partial(
            TableStream,
            place.session.client("dynamodbstreams", config=config),
            rules=counting.rules,
            now=found.now,
            sleep=time.sleep,
            concurrently=pool.map,
            wanted=wanted,
        )
        try:
            yield Tools(found, dynamodb, reader, pool.map, stopping)
        finally:
            stopping.set()


class _Stopped(Exception):
    """The audit ends early."""


class Segment:
    """A part of the table: the item collections of a scan's segment, or of one post."""

    def __init__(self, number: int, pages: Iterable[Page], rules: Rules, place: Place, post: str | None = None) -> None:
        self.number = number
        self.place = place
        self.post = post
        """The partition key of the post that this is."""
        self.empty = place.after is None
        """Whether there was no parent in it, so far."""
        self._groups = groups(((page.began, page.items) for page in pages), rules)

    def take(self, most_groups: int, most_items: int) -> list[Group]:
        """Return the next groups, one at least unless there are no more; `place` is behind them then."""
        taken: list[Group] = []
        items = 0
        while len(taken) < most_groups and items < most_items:
            group = next(self._groups, None)
            if group is None:
                self.place = self.place._replace(done=True)
                break
            taken.append(group)
            items += group.children + len(group.parents)
            self.place = Place((group.partition_key, group.last), done=False)
            self.empty = self.empty and not group.all_parents()
        return taken


def segments_of_table(
    items: DynamoDbItems,
    number: int,
    rules: Rules,
    place: Callable[[int], Place],
    watched: Callable[[Iterable[Page]], Iterable[Page]],
) -> list[Segment]:
    """Return the segments of a scan, each from the place where it goes on."""
    return [
        Segment(one, watched(items.scan(one, number, reached.after and _key(reached.after))), rules, reached)
        for one in range(number)
        for reached in (place(one),)
    ]


def segments_of_posts(
    items: DynamoDbItems,
    posts: Sequence[str],
    rules: Rules,
    place: Callable[[int], Place],
    watched: Callable[[Iterable[Page]], Iterable[Page]],
) -> list[Segment]:
    """Return a segment a post, given by its partition key; one that was settled is not read again."""
    return [
        Segment(number, () if reached.after else watched(items.collection(post)), rules, reached, post)
        for number, post in enumerate(posts)
        for reached in (place(number),)
    ]


def rounds(
    auditor: Auditor, segments: Sequence[Segment], findings: Findings, units: Callable[[], float], *, mend: bool
) -> None:
    """Audit segments to their ends, and keep what is found.

    After: each parent in them was proved right or judged, and repaired where it drifted and `mend` says so.

    Args:
        auditor: judges.
        segments: those that are done are passed over.
        findings: what is added to, a round at a time.
        units: the read units consumed so far.
        mend: repair what drifts.
    """
    began, spent = time.monotonic(), units()
    size = FIRST_ROUND
    active = [segment for segment in segments if not segment.place.done]
    while active:
        take = functools.partial(
            Segment.take, most_groups=-(-size // len(active)), most_items=-(-ROUND_ITEMS // len(active))
        )
        size = min(size * 4, ROUND_GROUPS)
        taken = [group for part in auditor.concurrently(take, active) for group in part]
        report = Report()
        if taken:
            auditor.audit(taken, report, mend=mend)
        for segment in active:
            if segment.post is not None and segment.place.done and segment.empty:
                report.unjudged[_post(segment.post)] = "there is no such post, and nothing counts on it"
        places = {segment.number: segment.place for segment in active}
        now, used = time.monotonic(), units()
        findings.add(report, places, read_units=used - spent, seconds=now - began)
        began, spent = now, used
        active = [segment for segment in active if not segment.place.done]


def _post(partition_key: str) -> ParentKey:
    return partition_key, post_key("")["SK"]


def run(
    place: "stack.Place",
    counting: "stack.Counting",
    order: Order,
    say: Callable[[str], None],
    progress: Callable[[int, int], None],
) -> Findings:
    """Audit a table or some posts of it, and return the findings; to be closed, and removed when they are shown.

    Args:
        place: where.
        counting: the table and how it is counted.
        order: what is to be done.
        say: told what it will cost.
        progress: told how many items the table has, as far as known, and how many more were read; from any thread.

    Raises:
        TallyctlError: the table cannot be audited, or the findings in the file are of something else.
        ClientError: DynamoDB refuses for good; what was found until then is in the file, if there is one.
    """
    posts = [post_key(post)["PK"] for post in dict.fromkeys(order.posts)]
    plan = {
        "table": counting.table_name,
        "posts": ", ".join(sorted(posts)) or "all",
        "segments": str(len(posts) or order.workers),
        "rules": repr(counting.rules.all),
        "repair": str(order.mend),
        "overdue": str(order.overdue_s),
    }
    wanted = frozenset(posts).__contains__ if posts else lambda _: True
    with contextlib.ExitStack() as undo, tools(place, counting, order.workers, wanted) as at_hand:
        findings = Findings(plan, order.resume)
        undo.callback(findings.close)
        say(_estimate(at_hand.facts, posts))
        if findings.resumed:
            say(f"going on with {order.resume}")
        stream = at_hand.streams(at_hand.facts.stream_arn)
        stream.find_shards()
        items = at_hand.items(counting.table_name, _attributes(counting.rules, stream.shards.parents))

        def watched(pages: Iterable[Page]) -> Iterator[Page]:
            for page in pages:
                if at_hand.stopping.is_set():
                    raise _Stopped
                progress(0 if posts else at_hand.facts.items, len(page.items))
                yield page

        if posts:
            segments = segments_of_posts(items, posts, counting.rules, findings.place, watched)
        else:
            segments = segments_of_table(items, order.workers, counting.rules, findings.place, watched)
        auditor = at_hand.auditor(counting, items, stream)
        if order.overdue_s is not None:
            auditor = dataclasses.replace(auditor, overdue_s=order.overdue_s)
        rounds(auditor, segments, findings, lambda: items.units, mend=order.mend)
        undo.pop_all()
    return findings


def _estimate(found: Facts, posts: Sequence[str]) -> str:
    about = "at most" if posts else "about"
    return (
        f"{about} {found.scan_units:,} read units (US$ {found.scan_units * PRICES['read'].usd:.4f}), and as much again "
        "for the parents that drift or change meanwhile"
    )


def _attributes(rules: Rules, shards: Iterable[str]) -> list[str] | None:
    """Return what a scan fetches of each item: tallies, and the marks of the shards that the stream has.

    A mark that is left out, of a shard that is younger than the list, only has its parent judged by the exact
    procedure. Too many for an expression: everything is fetched, for the same read units.
    """
    names = {rule.attribute for rule in rules.all} | {SHARDLESS_MARK} | {mark_name(shard) for shard in shards}
    return sorted(names) if len(names) <= _MOST_PROJECTED else None


def _key(key: ParentKey) -> dict[str, Any]:
    return {"PK": {"S": key[0]}, "SK": {"S": key[1]}}
