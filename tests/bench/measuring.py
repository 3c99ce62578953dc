"""What all benchmarks share: contenders take turns, so that whatever else the machine does concerns them alike."""

from __future__ import annotations

import gc
import random
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from builders import NOW, like, unlike, windowed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SIZES = (100, 300, 1_000, 3_000, 10_000)
"""Records in a batch; 10,000 is the most that an event source mapping delivers."""

RECORDS_A_POST = 20


@dataclass(slots=True)
class Times:
    """What one contender took, run by run."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    @property
    def median_s(self) -> float:
        """The median of the time that passed."""
        return statistics.median(self.wall_s)

    @property
    def median_cpu_s(self) -> float:
        """The median of the process's CPU time, all threads together."""
        return statistics.median(self.cpu_s)


def side_by_side(
    contenders: Mapping[str, Callable[[], object]], rounds: int, *, warm_up: bool = True
) -> dict[str, Times]:
    """Run all contenders once to warm up, and then in `rounds` rounds, in another order each."""
    times = {name: Times() for name in contenders}
    order = list(contenders)
    if warm_up:
        for contender in contenders.values():
            contender()
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            contenders[name]()
            times[name].cpu_s.append(time.process_time() - cpu)
            times[name].wall_s.append(time.perf_counter() - wall)
    return times


def busy_batch(size: int) -> dict[str, Any]:
    """Return a batch as a busy app's: twenty changes a post, mixed, one in five of them an unlike."""
    rng = random.Random(size)
    posts = max(1, size // RECORDS_A_POST)
    records = []
    for number in range(size):
        make = unlike if rng.random() < 0.2 else like
        records.append(make(10**21 + number, f"post-{rng.randrange(posts):06d}", f"user-{number:08d}", at=NOW))
    return windowed(*records)


def scattered_batch(size: int) -> dict[str, Any]:
    """Return a batch whose records are each on a post of its own: as many parents as there can be."""
    records = [like(10**21 + number, f"post-{number:06d}", f"user-{number:08d}") for number in range(size)]
    return windowed(*records)
