"""The AWS lab's test of a stream counter, harder: bursts of likes, duplicates, killed invocations, then a count.

Each burst writes thousands of likes and unlikes to the table. Its stream is delivered to `aggregator.handler` as the
event source mapping does it, on a clock that is simulated, with

- five duplicates in every batch: three of its own records again, two that were delivered before;
- 5 to 10 % of the invocations killed, at one of their writes, before or after its effect; then the batch is bisected,
  sometimes after more than ten minutes;
- hot partitions that refuse a third of the parents for a whole invocation, so that the answer cuts the batch;
- answers that get lost, upon which the SDK sends the write again;
- at the end of the burst a replay of a part of each shard, after more than ten minutes and with other borders.

Beside it, a counter of the usual kind (a blind `ADD` of each parent's delta, repetitions within a batch left out) meets
the same faults, so that a run shows that they hurt. The exit code is 0 if each tally was exact after each burst, 1 if
not, and 2 if the blind counter was exact as well: then nothing was tested.
"""

from __future__ import annotations

import json
import random
import sys
import unittest.mock
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from builders import NOW, record, windowed
from fakes import FakeDynamoDb, FakeSqs, client_error
from simulation.world import aggregator
from tallyctl.comparison.costs import units_of_write
from tallystream.batches import Batches
from tallystream.changes import group, net
from tallystream.dynamodb import DynamoDbTable
from tallystream.failures import SqsFailures
from tallystream.rules import DEFAULT_COUNTERS, Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SHARDS = 2
SMALLEST_BATCH, LARGEST_BATCH = 50, 500
REPEATED_OF_ITS_OWN, REPEATED_OF_BEFORE = 3, 2
KILLED_SHARE = (0.065, 0.085)
"""With some seventy invocations a burst and whole kills, that comes to 5 to 10 %."""
HOT_SHARE = 0.08
LOST_ANSWERS = 0.01
TIMEOUT_MS = 60_000
HOUR = 3600
TEN_MINUTES = 600
BURSTS_A_SHARD_LIVES = 2
SECONDS_BETWEEN_BURSTS = 2 * HOUR

RULES = Rules.parse(DEFAULT_COUNTERS)
_HOT = client_error("ProvisionedThroughputExceededException")


class Killed(BaseException):
    """The invocation's process ends here."""


@dataclass(slots=True)
class Burst:
    """What one burst came to."""

    burst: int
    records: int
    batches: int = 0
    invocations: int = 0
    killed_before: int = 0
    killed_after: int = 0
    bisected: int = 0
    cut: int = 0
    replayed: int = 0
    """Records delivered again after more than ten minutes although they had been settled."""
    duplicates: int = 0
    """Dropped, by the handler's own figures; what a killed invocation dropped is not among them."""
    write_units: int = 0
    """Those of the tallies; a like's own write comes on top."""
    error: int = 0
    """How far the tallies are from the children: the sum over all posts."""

    @property
    def write_units_per_like(self) -> float:
        """One for the like itself, and its part of the tally's writes."""
        return 1 + self.write_units / self.records


@dataclass(slots=True)
class Shard:
    """A shard, how far it has been read, and the stretches of it that are to be delivered next."""

    id: str
    records: list[dict[str, Any]] = field(default_factory=list)
    position: int = 0
    pieces: list[tuple[int, int]] = field(default_factory=list)
    burst_began: int = 0


class Client:
    """The function's DynamoDB client in one invocation, with the faults that this invocation meets."""

    def __init__(self, lab: Lab, luck: random.Random, kill: str | None, posts: Sequence[str]) -> None:
        self._lab = lab
        self._luck = luck
        self._kill = kill
        self._strikes_at = luck.randrange(len(posts))
        hot = luck.random() < HOT_SHARE
        self._hot = set(luck.sample(posts, len(posts) // 3 + 1)) if hot else set()
        self._calls = 0

    def update_item(self, TableName: str, **request: Any) -> dict[str, Any]:  # noqa: N803 - boto3's name
        """Send one write, and again if its answer was lost, as the SDK does."""
        assert TableName
        strikes = self._calls == self._strikes_at
        self._calls += 1
        if strikes and self._kill == "before":
            raise Killed
        if request["Key"]["PK"]["S"] in self._hot:
            raise _HOT
        if self._luck.random() < LOST_ANSWERS:
            self._lab.write(request)
        answer = self._lab.write(request)
        if isinstance(answer, Exception):
            raise answer
        if strikes and self._kill == "after":
            raise Killed
        return answer


class HandlersMetrics:
    """Takes what the handler says of itself."""

    def __init__(self) -> None:
        self.figures: Counter[str] = Counter()

    def add_metric(self, name: str, _unit: object, value: int) -> None:
        """Add a figure."""
        self.figures[name] += value

    def flush_metrics(self) -> None:
        """Do nothing: the figures add up over a burst."""


class Lab:
    """A table with its stream, the mapping, and one counter: the real handler or the blind one."""

    def __init__(self, seed: int, parents: int, *, blind: bool) -> None:
        self._seed = seed
        self._blind = blind
        self._clock = float(NOW)
        self._number = 10**21 - 5_000  # the numbers get one digit longer on the way
        self._posts = [f"post-{number:04d}" for number in range(parents)]
        self._shards: list[Shard] = []
        self._table = FakeDynamoDb(self._to_stream)
        for post in self._posts:
            self._table.add_post(post)
        self._likes: dict[str, list[str]] = {post: [] for post in self._posts}
        self._killings_due = 0.5
        self._luck = random.Random()
        self._burst = Burst(0, 0)

    def run(self, number: int, records: int) -> Burst:
        """Write a burst, deliver it, replay parts of it, and compare the tallies with the children."""
        self._luck = random.Random(f"{self._seed} {number}")
        self._burst = Burst(number, records)
        self._begin_shards(number)
        for _ in range(records):
            self._like_or_unlike()
        metrics = HandlersMetrics()
        share = self._luck.uniform(*KILLED_SHARE)
        with unittest.mock.patch.object(aggregator, "_metrics", metrics):
            self._deliver_all(share)
            self._replay()
            self._deliver_all(share)
        self._burst.duplicates += metrics.figures["Duplicates"]
        self._burst.error = sum(abs((self._table.tally(post) or 0) - len(self._likes[post])) for post in self._posts)
        self._clock += SECONDS_BETWEEN_BURSTS
        return self._burst

    # The table and its stream.

    def write(self, request: dict[str, Any]) -> dict[str, Any] | Exception:
        """Apply one write to the table; return its answer or its refusal, and charge it either way."""
        key = request["Key"]["PK"]["S"], request["Key"]["SK"]["S"]
        before = self._table.items[key]
        try:
            answer: dict[str, Any] | Exception = self._table.update_item(**request)
        except Exception as error:  # noqa: BLE001 - handed on to whoever sent the write
            answer = error
        self._burst.write_units += units_of_write(before, self._table.items[key])
        return answer

    def _begin_shards(self, number: int) -> None:
        if number % BURSTS_A_SHARD_LIVES == 0:
            began = f"{int(self._clock * 1000):020d}"
            self._shards = [Shard(f"shardId-{began}-{lineage:08x}") for lineage in range(SHARDS)]
        for shard in self._shards:
            shard.burst_began = len(shard.records)

    def _like_or_unlike(self) -> None:
        self._clock += 0.001
        # Some posts are much busier than others.
        post = self._posts[int(len(self._posts) * self._luck.random() ** 2)]
        likes = self._likes[post]
        if likes and self._luck.random() < 0.2:  # a fifth are taken back
            user = likes.pop(self._luck.randrange(len(likes)))
            self._table.delete_item(Key={"PK": {"S": f"POST#{post}"}, "SK": {"S": f"LIKE#USER#{user}"}})
        else:
            user = f"user-{self._number}"
            likes.append(user)
            self._table.put_item(Item={"PK": {"S": f"POST#{post}"}, "SK": {"S": f"LIKE#USER#{user}"}})

    def _to_stream(self, name: str, key: tuple[str, str]) -> None:
        self._number += 7
        if not key[1].startswith("LIKE#"):
            return  # the tallies' own changes; the simulation delivers them, here they would only take time
        # A like and its unlike lie in one partition, hence in one shard; a post's likes lie in several.
        shard = self._shards[sum(key[1].encode()) % SHARDS]
        shard.records.append(record(name, str(self._number), key, at=int(self._clock)))

    # The event source mapping.

    def _deliver_all(self, killed_share: float) -> None:
        while unread := [shard for shard in self._shards if shard.pieces or shard.position < len(shard.records)]:
            self._deliver(self._luck.choice(unread), killed_share)

    def _deliver(self, shard: Shard, killed_share: float) -> None:
        """Deliver the next batch of a shard, and settle it by the answer."""
        if not shard.pieces:
            size = self._luck.randint(SMALLEST_BATCH, LARGEST_BATCH)
            shard.pieces = [(shard.position, min(shard.position + size, len(shard.records)))]
            shard.position = shard.pieces[0][1]
            self._burst.batches += 1
        first, end = shard.pieces.pop(0)
        self._clock += 1
        failed_at = self._invoke(shard, first, end, killed_share)
        if failed_at is None:  # killed: bisected, and delivered again soon or late
            middle = (first + end) // 2
            shard.pieces[:0] = [(first, middle), (middle, end)] if middle > first else [(first, end)]
            self._burst.bisected += middle > first
            self._clock += self._luck.choice((1, 30, TEN_MINUTES + 60))
        elif failed_at < end:
            shard.pieces.insert(0, (failed_at, end))
            self._burst.cut += 1

    def _invoke(self, shard: Shard, first: int, end: int, killed_share: float) -> int | None:
        """Return up to where an invocation has settled a stretch of a shard; None if it was killed."""
        self._burst.invocations += 1
        # One source of chance for each invocation, so that both counters meet the same.
        luck = random.Random(f"{self._seed} {self._burst.burst} {self._burst.invocations}")
        self._killings_due += killed_share
        kill = None
        if self._killings_due >= 1:
            self._killings_due -= 1
            kill = luck.choice(("before", "after"))
        records = self._with_duplicates(shard, first, end, luck)
        posts = sorted({entry["dynamodb"]["Keys"]["PK"]["S"] for entry in records})
        client = Client(self, luck, kill, posts)
        event = windowed(*records, shard=shard.id)
        answer = None
        try:
            answer = self._blind_handler(event, client) if self._blind else self._real_handler(event, client, luck)
        except Killed:
            assert kill
        if answer is None or kill:  # in the latter case, when all was done and before the answer went out
            self._burst.killed_before += kill == "before"
            self._burst.killed_after += kill == "after"
            return None
        numbers = [entry["dynamodb"]["SequenceNumber"] for entry in shard.records[first:end]]
        reported = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
        # A duplicate of an earlier batch is not in this one: then Lambda delivers all of it again.
        return first + min((numbers.index(n) if n in numbers else 0 for n in reported), default=end - first)

    def _with_duplicates(self, shard: Shard, first: int, end: int, luck: random.Random) -> list[dict[str, Any]]:
        """Return a stretch of a shard with five of its records, or of those before it, in it once more."""
        records = shard.records[first:end]
        before = shard.records[max(0, first - LARGEST_BATCH) : first]
        again = luck.choices(records, k=REPEATED_OF_ITS_OWN) + luck.choices(before or records, k=REPEATED_OF_BEFORE)
        for entry in again:
            records.insert(luck.randint(0, len(records)), entry)
        return records

    def _replay(self) -> None:
        """Let each shard be read again from somewhere in this burst, when a request token would be long forgotten."""
        self._clock += self._luck.randint(TEN_MINUTES + 1, HOUR)
        for shard in self._shards:
            shard.position = self._luck.randint(shard.burst_began, len(shard.records))
            self._burst.replayed += len(shard.records) - shard.position

    # The counters.

    def _real_handler(self, event: dict[str, Any], client: Client, luck: random.Random) -> dict[str, Any]:
        deadline = self._clock + TIMEOUT_MS / 1000

        class Context:
            get_remaining_time_in_millis = staticmethod(lambda: int((deadline - self._clock) * 1000))

        batches = Batches(
            table=DynamoDbTable(client, "Lab"),  # type: ignore[arg-type]
            failures=SqsFailures(FakeSqs(), "https://sqs.invalid/failed"),  # type: ignore[arg-type]
            rules=RULES,
            concurrently=in_any_order(luck),
            now=lambda: self._clock,
            sleep=self._pass_time,
            jitter=luck.random,
            stale=aggregator._batches.stale,
        )
        with unittest.mock.patch.object(aggregator, "_batches", batches):
            return aggregator.handler(event, Context)  # type: ignore[arg-type]

    def _pass_time(self, seconds: float) -> None:
        self._clock += seconds

    def _blind_handler(self, event: dict[str, Any], client: Client) -> dict[str, Any]:
        """Add each parent's delta, and report the lowest record of those that were refused."""
        records = event["Records"]
        grouped = group(records, RULES)
        self._burst.duplicates += len(grouped.repeated)
        refused = []
        for (partition_key, sort_key), changes in grouped.parents.items():
            ((attribute, delta),) = net(changes).items()
            try:
                client.update_item(
                    TableName="Lab",
                    Key={"PK": {"S": partition_key}, "SK": {"S": sort_key}},
                    UpdateExpression="ADD #a :d",
                    ConditionExpression="attribute_exists(PK)",
                    ExpressionAttributeNames={"#a": attribute},
                    ExpressionAttributeValues={":d": {"N": str(delta)}},
                )
            except type(_HOT):
                refused.append(changes[0])
        if not refused:
            return {"batchItemFailures": []}
        return {"batchItemFailures": [{"itemIdentifier": records[min(refused)[3]]["dynamodb"]["SequenceNumber"]}]}


def in_any_order(luck: random.Random) -> Callable[[Callable[[Any], None], Sequence[Any]], Iterable[None]]:
    """Return what stands for the thread pool: one after the other, shuffled, so that a seed always plays the same."""

    def concurrently(function: Callable[[Any], None], shares: Sequence[Any]) -> Iterable[None]:
        return [function(share) for share in luck.sample(shares, len(shares))]

    return concurrently


def run(seed: int, bursts: int, records: int, parents: int) -> list[tuple[Burst, Burst]]:
    """Play all bursts; return what each came to with the real handler and with the blind counter."""
    real, blind = Lab(seed, parents, blind=False), Lab(seed, parents, blind=True)
    console = Console(stderr=True)
    numbers = track(range(bursts), "bursts", console=console, transient=True, disable=not console.is_terminal)
    return [(real.run(number, records), blind.run(number, records)) for number in numbers]


def exit_code(played: list[tuple[Burst, Burst]]) -> int:
    """Return 0 if the real handler was always exact, 1 if not, 2 if the blind one was exact at the end as well."""
    if any(real.error for real, _ in played):
        return 1
    return 0 if played[-1][1].error else 2


def table_of(played: list[tuple[Burst, Burst]]) -> Table:
    """Return a line a burst, one for all of them, and one for the blind counter."""
    table = Table(caption="killed: before + after the effect. error: sum of |tally - children|. Sizes in records.")
    for name in (
        *("burst", "records", "batches", "invocations", "killed", "bisected", "cut", "replayed"),
        *("duplicates dropped", "write units a like", "error"),
    ):
        table.add_column(name, justify="right")
    for real, _ in played:
        table.add_row(str(real.burst + 1), *_cells([real]), str(real.error))
    table.add_section()
    for label, bursts in (("all", [real for real, _ in played]), ("blind ADD", [blind for _, blind in played])):
        worst = max(burst.error for burst in bursts)
        table.add_row(label, *_cells(bursts), f"[{'red' if worst else 'green'}]{worst}[/]")
    return table


def _cells(bursts: list[Burst]) -> list[str]:
    def total(name: str) -> int:
        return sum(getattr(burst, name) for burst in bursts)

    before, after, invocations = total("killed_before"), total("killed_after"), total("invocations")
    return [
        *(f"{total(name):,}" for name in ("records", "batches", "invocations")),
        f"{before} + {after} = {(before + after) / invocations:.1%}",
        *(f"{total(name):,}" for name in ("bisected", "cut", "replayed", "duplicates")),
        f"{1 + total('write_units') / total('records'):.3f}",
    ]


def main(
    bursts: Annotated[int, typer.Option(min=1, help="how many in a row, on one table")] = 20,
    records: Annotated[int, typer.Option(min=1, help="likes and unlikes in each burst")] = 10_000,
    seed: Annotated[int, typer.Option(help="the same seed plays the same")] = 1,
    parents: Annotated[int, typer.Option(min=1, help="how many posts they are on")] = 50,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object instead of the table")] = False,
) -> None:
    """Count bursts of likes under faults, and exit 1 if a tally is ever wrong."""
    played = run(seed, bursts, records, parents)
    if as_json:
        told = {
            name: [{**asdict(burst), "write_units_per_like": burst.write_units_per_like} for burst in bursts_of]
            for name, bursts_of in zip(("handler", "blind"), zip(*played, strict=True), strict=True)
        }
        print(json.dumps({"seed": seed, "parents": parents, **told}, indent=2))  # noqa: T201 - a command line prints
    else:
        Console(width=160).print(table_of(played))
    sys.exit(exit_code(played))


if __name__ == "__main__":
    typer.run(main)
