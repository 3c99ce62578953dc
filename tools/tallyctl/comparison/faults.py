"""One schedule of faults for every path alike, and what is left of the counts after it.

The schedule knows no path: it says at which operation a write of the API function goes wrong, where the batches
of the stream end, and at which record of which delivery the aggregator meets a fault. Every path gets the same.
"""

import dataclasses
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError
from botocore.exceptions import ClientError

from tallyctl.comparison.paths import Path
from tallyctl.comparison.runs import World
from tallyctl.comparison.simulated import Fault, Killed
from tallyctl.comparison.stream import SHARDS, Record, Shard, is_change
from tallyctl.comparison.workloads import Operation
from tallystream.likes import BusyError

KINDS = {
    "lost answers": ("lost",),
    "kills": ("killed_before", "killed_after"),
    "throttles": ("throttled",),
    "redelivery": ("redelivered",),
}
"""What can go wrong: a name for people, and what the simulation calls it. A killed invocation bisects its batch."""

OPERATIONS_HIT = 0.08
DELIVERIES_HIT = 0.5
MOST_FAULTS_IN_A_ROW = 3
BATCH_OPERATIONS = (100, 300)
"""So many operations gather before the stream is delivered: smallest and largest number."""

_TRIES = 10
"""How often a caller repeats a request that was not answered; each fault of the schedule strikes once."""

_FAILED = (Killed, ClientError, BusyError, BatchProcessingError)


class Planned(NamedTuple):
    """One fault, before it is known which request it strikes."""

    kind: str
    position: float
    """Where it strikes: 0 is the first write of the operation or the first record of the batch, 1 is after the last."""


@dataclass(frozen=True)
class Schedule:
    """What goes wrong, and where the stream's batches end.

    Attributes:
        operations: the fault that an operation's first try meets.
        borders: after which operations the stream is delivered.
        deliveries: for each border and shard, the faults of the first deliveries, in order.
    """

    operations: dict[int, Planned]
    borders: tuple[int, ...]
    deliveries: dict[tuple[int, int], tuple[Planned, ...]]

    @classmethod
    def from_seed(cls, seed: int, size: int, kinds: Iterable[str] = tuple(KINDS)) -> "Schedule":
        """Return a schedule for `size` operations with faults of these kinds, names of `KINDS`."""
        rng = random.Random(f"faults {seed}")
        names = [name for kind in kinds for name in KINDS[kind]]
        of_requests = [name for name in names if name != "redelivered"]
        operations = {
            number: Planned(rng.choice(of_requests), rng.random())
            for number in range(size)
            if of_requests and rng.random() < OPERATIONS_HIT
        }
        borders = []
        border = rng.randint(*BATCH_OPERATIONS)
        while border < size:
            borders.append(border)
            border += rng.randint(*BATCH_OPERATIONS)
        deliveries = {}
        for border in (*borders, size):
            for shard in range(SHARDS):
                faults: list[Planned] = []
                while len(faults) < MOST_FAULTS_IN_A_ROW and rng.random() < DELIVERIES_HIT:
                    faults.append(Planned(rng.choice(names), rng.random()))
                deliveries[border, shard] = tuple(faults)
        return cls(operations, tuple(borders), deliveries)

    def planted(self) -> dict[str, int]:
        """Return how many faults of each kind there are."""
        kinds = Counter(fault.kind for fault in self.operations.values())
        kinds.update(fault.kind for faults in self.deliveries.values() for fault in faults)
        return {name: sum(kinds[kind] for kind in of) for name, of in KINDS.items()}


def drift_after(path: Path, operations: Sequence[Operation], schedule: Schedule, seed: int) -> int:
    """Play the operations under the schedule, bring everything to rest, and return the drift.

    Callers repeat what was not answered; Lambda delivers again what failed, a killed batch in halves, and what it is
    told is left. Operations come one after the other, so that no drift comes from two being under way at once.

    Returns:
        The sum over all posts of how far the tally is from the likes that are stored.

    Raises:
        RuntimeError: a request was not answered though all its faults were over, which no path should do.
    """
    posts = sorted({operation.post for operation in operations})
    world = World(dataclasses.replace(path, contention_s=None), posts, random.Random(seed))
    for number, operation in enumerate(operations):
        if number in schedule.borders:
            _deliver(world, number, schedule)
        world.clock.now = max(world.clock.now, operation.at)
        planned = schedule.operations.get(number)
        if planned:
            world.api.fault = Fault(planned.kind, nth=int(planned.position * path.writes_per_like))
        _answered(world, operation)
        world.api.fault = None
    while any(shard.pending for shard in world.shards):
        _deliver(world, len(operations), schedule)
        # What the counter itself wrote to the stream comes without any fault.
        schedule = dataclasses.replace(schedule, deliveries={})
    return world.drift()


def _answered(world: World, operation: Operation) -> None:
    """Send an operation until it is answered."""
    for _ in range(_TRIES):
        try:
            world.play(operation)
        except _FAILED:
            continue
        return
    raise RuntimeError(f"no answer after {_TRIES} tries: {operation}")


def _deliver(world: World, border: int, schedule: Schedule) -> None:
    for shard in world.shards:
        records = [record for _, _, record in shard.take(len(shard.pending))]
        if records:
            _deliver_batch(world, shard, records, list(schedule.deliveries.get((border, shard.number), ())))


def _deliver_batch(world: World, shard: Shard, records: list[Record], faults: list[Planned]) -> None:
    """Deliver as Lambda does until nothing is left; each fault strikes one delivery."""
    if world.aggregator is None:
        return
    left = [records]
    while left:
        batch = left.pop(0)
        fault = faults.pop(0) if faults else None
        changes = [record for record in batch if is_change(record)]
        if fault and changes and fault.kind != "redelivered":
            partitions = [record["dynamodb"]["Keys"]["PK"]["S"] for record in changes]
            struck = int(fault.position * len(changes))
            # The write that has the struck record in it: of its parent's only one, or of as many as there are records.
            earlier = partitions[:struck].count(partitions[struck]) if world.path.writes_each_record else 0
            world.function.fault = Fault(fault.kind, earlier, partitions[struck])
        try:
            answer = world.aggregator(shard.event(batch))
        except _FAILED:
            half = len(batch) // 2
            left[:0] = [part for part in (batch[:half], batch[half:]) if part]
            continue
        failed = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        first = next((n for n, record in enumerate(batch) if record["dynamodb"]["SequenceNumber"] in failed), None)
        if first is not None:
            left.insert(0, batch[first:])
        elif fault and fault.kind == "redelivered":
            left.insert(0, batch)
