"""One path on one workload, without faults: what it sends, what it is charged, whom it keeps waiting."""

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from tallyctl.comparison.memory import Key
from tallyctl.comparison.metering import Meter, MeteredDynamoDb
from tallyctl.comparison.paths import TALLY, Path, Setting, Writer, count_likes, post_item
from tallyctl.comparison.published import COLD_AFTER_S, OWN_CODE_S
from tallyctl.comparison.simulated import Clock, Contention, SimulatedDynamoDb
from tallyctl.comparison.stream import SHARDS, Aggregator, Invocation, Shard, deliver_all, shard_of
from tallyctl.comparison.workloads import Operation
from tallystream.keys import LIKE_PREFIX, META, POST_PREFIX
from tallystream.likes import BusyError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

TABLE_NAME = "T"


class World:
    """A table with its stream, and one path on both. Whoever plays has the clock.

    `api` is the client of the API function, in simulated time; `function` is the aggregator's, whose time is not made
    of its requests, since it sends many at once.
    """

    def __init__(self, path: Path, posts: Sequence[str], rng: random.Random) -> None:
        self.path = path
        self.rng = rng
        self.clock = Clock()
        self.shards = [Shard(number, self.clock, filtered=not path.windowed) for number in range(SHARDS)]
        self.table = MeteredDynamoDb(self._to_stream if path.aggregator else None)
        # Past the meter and the stream: the posts were there before.
        self.table.items.update(map(post_item, posts))
        contention = Contention(path.contention_s) if path.contention_s is not None else None
        self.api = SimulatedDynamoDb(self.table, self.clock, contention)
        self.function = SimulatedDynamoDb(self.table)
        self.writer: Writer = path.writer(self._setting(self.api, self.clock))
        self.aggregator: Aggregator | None = (
            path.aggregator(self._setting(self.function, Clock())) if path.aggregator else None
        )

    def _to_stream(self, name: str, key: Key) -> None:
        self.shards[shard_of(key[0])].on_change(name, key)

    def _setting(self, client: SimulatedDynamoDb, clock: Clock) -> Setting:
        """Return a path's setting. The aggregator sleeps on a clock of its own: no time is known for its pauses."""
        return Setting(cast("DynamoDBClient", client), TABLE_NAME, clock.sleep, self.clock.epoch, self.rng)

    def play(self, operation: Operation) -> bool:
        """Send one operation as the API function does; return whether it changed something."""
        if operation.like:
            return self.writer.like(operation.post, operation.user, int(self.clock.epoch()))
        return self.writer.unlike(operation.post, operation.user)

    def children(self) -> dict[str, int]:
        """Return how many likes each post has that has any."""
        found: dict[str, int] = {}
        for partition, sort_key in self.table.items:
            if sort_key.startswith(LIKE_PREFIX):
                found[partition] = found.get(partition, 0) + 1
        return found

    def drift(self) -> int:
        """Return the sum over all posts of how far the tally is from the likes; 0 where the likes are the tally."""
        if self.path.counts_when_read:
            return 0
        children = self.children()
        posts = ((key[0], item) for key, item in self.table.items.items() if key[1] == META)
        return sum(abs(int(item[TALLY]["N"]) - children.get(partition, 0)) for partition, item in posts)


@dataclass(frozen=True, slots=True)
class Run:
    """What a path did with a workload."""

    operations: int
    accepted: int
    """Those that were done; the others were told to come again, since others were in the way for too long."""
    conflicts: int
    round_trips: int
    latency_s: list[float] = field(repr=False)
    """Per operation, in simulated time: requests, repetitions and waits, and the function's own code."""
    invocations: list[Invocation] = field(repr=False)
    meter: Meter
    hottest_read_units: float
    """A read of the count of the post with the most likes."""
    mean_read_units: float
    """The same on average, if posts are read as often as they are liked."""
    drift: int
    seconds: float
    """How long the operations last."""
    cold_requests: int
    """How many requests found no running API function, because the last one was too long ago; likewise the next."""
    cold_invocations: int

    @property
    def write_units_per_like(self) -> float:
        """Write units, those of the aggregator included, an operation that was done."""
        return self.meter.all_write_units / max(1, self.accepted)

    @property
    def aggregator_load(self) -> float:
        """The share of the time that the aggregator of the busiest shard runs; above 1 it falls behind.

        A run of less than a second is taken for a second: it is one batch, which nothing has to wait for.
        """
        busy_s = [0.0] * SHARDS
        for invocation in self.invocations:
            busy_s[invocation.shard] += invocation.seconds
        return max(busy_s) / max(1.0, self.seconds)

    @property
    def staleness_s(self) -> list[float]:
        """How long each like was missing in the count; 0 where it is counted at once."""
        counted = [seconds for invocation in self.invocations for seconds in invocation.staleness_s]
        return counted or [0.0]


def run(path: Path, operations: Sequence[Operation], window_s: float, seed: int) -> Run:
    """Play the operations at their times, count what the stream holds, and read the counts. Nothing fails.

    Args:
        path: the path.
        operations: in order of time.
        window_s: MaximumBatchingWindowInSeconds of the stream's mapping.
        seed: of waits, tokens and Lambda's looks at the stream.
    """
    world = World(path, sorted({operation.post for operation in operations}), random.Random(seed))
    accepted, latency_s = 0, []
    for operation in operations:
        world.clock.now = operation.at
        try:
            world.play(operation)
            accepted += 1
        except BusyError:
            # The caller is told to come again, and here does not: how many are is a figure of its own.
            pass
        latency_s.append(world.clock.now - operation.at + OWN_CODE_S)
    invocations: list[Invocation] = []
    if world.aggregator:
        for shard in world.shards:
            invocations += deliver_all(shard, world.aggregator, path.seconds, window_s, world.rng)
    meter, drift = world.table.meter, world.drift()
    world.table.meter = Meter()
    hottest, mean = _read_units(world)
    return Run(
        operations=len(operations),
        accepted=accepted,
        conflicts=world.api.conflicts,
        round_trips=world.api.round_trips,
        latency_s=latency_s,
        invocations=invocations,
        meter=meter,
        hottest_read_units=hottest,
        mean_read_units=mean,
        drift=drift,
        seconds=operations[-1].at,
        cold_requests=_cold([operation.at for operation in operations]),
        cold_invocations=_cold(sorted(invocation.ended for invocation in invocations)),
    )


def _cold(times: Sequence[float]) -> int:
    """Return how many of these times, ascending, come so long after the one before that the function starts anew."""
    return sum(later - earlier > COLD_AFTER_S for earlier, later in itertools.pairwise(times))


def _read_units(world: World) -> tuple[float, float]:
    """Return what a read of the count costs: of the post with the most likes, and on average over the likes."""
    children = world.children()
    if not children:
        return 0.5, 0.5
    client = cast("DynamoDBClient", world.function)
    units: dict[str, float] = {}
    for partition in children:
        before = world.table.meter.all_read_units
        if world.path.counts_when_read:
            count_likes(client, TABLE_NAME, partition.removeprefix(POST_PREFIX))
        else:
            client.get_item(TableName=TABLE_NAME, Key={"PK": {"S": partition}, "SK": {"S": META}})
        units[partition] = world.table.meter.all_read_units - before
    hottest = max(children, key=lambda partition: (children[partition], partition))
    total = sum(children.values())
    return units[hottest], sum(units[partition] * likes for partition, likes in children.items()) / total
