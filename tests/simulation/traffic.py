"""Traffic played out like by like, which `tallyctl plan` is held against: `python -m simulation.traffic`.

What is drawn here and only averaged there: when each like comes and whose it is, which shard a post is in (so that
shards are not alike), how long each invocation takes, and in which order records fill a batch. What both rest on, and
neither shows, is how Lambda gathers and how fast the aggregator writes: see tallyctl/planning.py.
"""

import math
import random
import time
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated

import typer

from tallyctl import planning
from tallyctl.comparison.costs import PARTITION_WRITE_UNITS, write_units
from tallyctl.comparison.published import INVOKE_S, PARENTS_PER_SECOND, POLL_S
from tallyctl.planning import Plan, Traffic

WARM_UP_CYCLES = 3
TOLERANCE = 0.10

_TICKS_A_SECOND = 1000


@dataclass
class Measured:
    """What happened after the warm-up."""

    since: float
    seconds: float
    likes: int = 0
    """Likes that came."""
    batches: int = 0
    """Batches with likes in them."""
    calls: int = 0
    writes: int = 0
    """Of parents."""
    write_units: int = 0
    """Of likes and parents."""
    waits: dict[int, int] = field(default_factory=dict)
    """Staleness in milliseconds -> likes."""

    @property
    def parents(self) -> float:
        """Parents a batch."""
        return self.writes / self.batches

    def staleness(self, share: float) -> float:
        """Return the staleness in seconds that so large a share of the likes does not exceed."""
        wanted, seen = share * sum(self.waits.values()), 0
        for tick in sorted(self.waits):
            seen += self.waits[tick]
            if seen >= wanted:
                return (tick + 0.5) / _TICKS_A_SECOND
        raise AssertionError("no likes")

    def beside(self, plan: Plan) -> dict[str, tuple[float, float]]:
        """Return name -> (planned, measured) of everything that a plan is held to."""
        planned = plan.average
        assert planned.staleness
        return {
            "parents a batch": (planned.parents, self.parents),
            "write units a second": (plan.units.write, self.write_units / self.seconds),
            "calls a second": (planned.calls_per_second, self.calls / self.seconds),
            "staleness p50": (planned.staleness.p50, self.staleness(0.5)),
            "staleness p99": (planned.staleness.p99, self.staleness(0.99)),
        }


def simulate(plan: Plan, seconds: float, seed: int) -> Measured:
    """Play `seconds` of a plan's average traffic, and a few batches before and after, until all of it is counted.

    Those after it are there because the last batch, with nobody behind it to fill it, waits for its whole window.
    """
    rng = random.Random(seed)
    # A window, not a cycle alone: first windows begin at any time, and a full batch is over long before.
    warm_s = WARM_UP_CYCLES * (plan.average.cycle_s + plan.traffic.batch_window_s)
    weights = [rank**-plan.traffic.skew for rank in range(1, plan.traffic.posts + 1)]
    cumulated = list(accumulate(weights))
    homes = _homes([weight / cumulated[-1] for weight in weights], plan, rng)
    # Marks as after a day: seven or eight for each shard of a post, since shards live four hours.
    parts = [len(home) for home in homes]
    units = [write_units(plan.traffic.post_bytes + 7.25 * n * planning.MARK_BYTES) for n in parts]
    measured = Measured(warm_s, seconds)
    for likes in _arrivals(plan, cumulated, homes, warm_s + seconds + warm_s, rng):
        _work_off(likes, units, plan.traffic, measured, rng)
    return measured


def _arrivals(
    plan: Plan, cumulated: list[float], homes: list[list[int]], until_s: float, rng: random.Random
) -> list[tuple[array, array]]:
    """Return, for each shard, when its likes come and of which post they are."""
    streams = [(array("d"), array("L")) for _ in range(plan.shards)]
    now, population = 0.0, range(plan.traffic.posts)
    while now < until_s:
        for post in rng.choices(population, cum_weights=cumulated, k=10_000):
            now += rng.expovariate(plan.traffic.likes_per_second)
            if now >= until_s:
                break
            home = homes[post]
            times, posts = streams[home[0] if len(home) == 1 else rng.choice(home)]
            times.append(now)
            posts.append(post)
    return streams


def _homes(shares: list[float], plan: Plan, rng: random.Random) -> list[list[int]]:
    """Return the shards over which each post's likes are spread, of most posts one.

    A key's hash puts a post anywhere, but DynamoDB has split what was too hot at the last peak: so anywhere where
    there still is room for it, of 1,000 write units. What is too hot alone is split by user.
    """
    peak_rate, cycle_s = plan.traffic.likes_per_second * plan.traffic.peak_factor, plan.peak.cycle_s
    free = [float(PARTITION_WRITE_UNITS)] * plan.shards
    homes: list[list[int]] = []
    for share in shares:
        likes = share * peak_rate
        parts = int(likes // PARTITION_WRITE_UNITS) + 1
        units = likes / parts - math.expm1(-likes / parts * cycle_s) / cycle_s
        tries = [rng.randrange(plan.shards) for _ in range(20)] if parts == 1 else []
        fitting = [shard for shard in tries if free[shard] > units]
        home = fitting[:1] or sorted(range(plan.shards), key=free.__getitem__)[-parts:]
        for shard in home:
            free[shard] -= units
        homes.append(home)
    return homes


def _work_off(
    likes: tuple[array, array], units: list[int], traffic: Traffic, measured: Measured, rng: random.Random
) -> None:
    """Play the invocations of one shard until all its likes are counted."""
    times, posts = likes
    window_s, waits = max(traffic.batch_window_s, POLL_S), measured.waits
    came_back: deque[float] = deque()  # when the aggregator's own writes can be read
    opens, first = rng.uniform(0, window_s), 0
    while first < len(times):
        starts, end, returned = _gather(times, first, came_back, opens, window_s, traffic.batch_size)
        if end == first and not returned:
            opens = starts
            continue
        for _ in range(returned):
            came_back.popleft()
        # Each invocation is slower or faster than planned, by up to a fifth and on its way by up to a half.
        a_parent_s = rng.uniform(0.8, 1.2) / PARENTS_PER_SECOND
        begins = starts + rng.uniform(0.5, 1.5) * INVOKE_S
        begins += planning.GROUPING_S_A_RECORD * (end - first + returned)
        written = {post: begins + n * a_parent_s for n, post in enumerate(dict.fromkeys(posts[first:end]), start=1)}
        opens = begins + len(written) * a_parent_s
        came_back.extend(at + planning.STREAM_LAG_S for at in written.values())
        if measured.since <= starts < measured.since + measured.seconds:
            measured.calls += 1
            measured.batches += bool(written)
            measured.writes += len(written)
            measured.write_units += sum(units[post] for post in written)
        for came, post in zip(times[first:end], posts[first:end], strict=True):
            if measured.since <= came < measured.since + measured.seconds:
                measured.likes += 1
                measured.write_units += 1
                tick = int((written[post] - came) * _TICKS_A_SECOND)
                waits[tick] = waits.get(tick, 0) + 1
        first = end


def _gather(
    times: array, first: int, came_back: deque[float], opens: float, window_s: float, batch_size: int
) -> tuple[float, int, int]:
    """Return when the invocation starts, the end of its likes, and how many of the aggregator's writes are in it."""
    lag = planning.STREAM_LAG_S
    closes = opens + window_s
    end = bisect_right(times, closes - lag, first)
    returned = bisect_right(came_back, closes)
    if end - first + returned < batch_size:
        return closes, end, returned
    end, returned, last = first, 0, opens
    for visible, is_like in _merged(times, first, came_back, lag):
        if is_like:
            end += 1
        else:
            returned += 1
        last = visible
        if end - first + returned == batch_size:
            break
    return max(opens, last), end, returned


def _merged(times: array, first: int, came_back: deque[float], lag: float) -> Iterator[tuple[float, bool]]:
    """Yield likes from `first` on and the aggregator's writes in the order in which they can be read."""
    own = iter(came_back)
    write = next(own, None)
    for like in range(first, len(times)):
        visible = times[like] + lag
        while write is not None and write <= visible:
            yield write, False
            write = next(own, None)
        yield visible, True
    while write is not None:
        yield write, False
        write = next(own, None)


def main(  # noqa: PLR0913 - the options of the command line
    *,
    likes_per_second: Annotated[float, typer.Option(help="Of the plan; played at the average.")] = 10_000,
    seconds: Annotated[float, typer.Option(help="How long, after the warm-up.")] = 600,
    posts: Annotated[int, typer.Option(help="How many.")] = 100_000,
    skew: Annotated[float, typer.Option(help="Zipf's exponent.")] = 1.0,
    batch_window: Annotated[float, typer.Option(help="In seconds.")] = 2,
    batch_size: Annotated[int, typer.Option(help="In records.")] = 10_000,
    likes_kept: Annotated[int, typer.Option(help="In the table: more of them mean more shards.")] = 0,
    seed: Annotated[int, typer.Option(help="The same seed plays the same.")] = 1,
) -> None:
    """Play traffic, and exit with 1 if the plan for it is more than 10 % off."""
    traffic = Traffic(
        likes_per_second,
        posts,
        skew,
        batch_window_s=batch_window,
        batch_size=batch_size,
        likes_kept=likes_kept,
    )
    plan = planning.plan(traffic)
    began = time.monotonic()
    measured = simulate(plan, seconds, seed)
    took = time.monotonic() - began
    typer.echo(f"{measured.likes} likes on {plan.shards} shards, {measured.batches} batches, played in {took:.0f} s")
    wrong = False
    for name, (expected, found) in measured.beside(plan).items():
        off = expected / found - 1
        wrong |= abs(off) > TOLERANCE
        typer.echo(f"{name:<22} planned {expected:>10.3f}   played {found:>10.3f}   {off:+.1%}")
    raise typer.Exit(wrong)


if __name__ == "__main__":
    typer.run(main)
