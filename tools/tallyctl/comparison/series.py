"""The series behind the charts: how cost, staleness, ceiling and drift change with what a user can choose or has."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tallyctl.comparison.costs import PARTITION_WRITE_UNITS, Usage, usd_per_million
from tallyctl.comparison.faults import KINDS, Schedule, drift_after
from tallyctl.comparison.paths import PATHS
from tallyctl.comparison.published import OWN_CODE_S, START_S
from tallyctl.comparison.runs import Run, run
from tallyctl.comparison.workloads import Operation, operations, spread
from tallyctl.demo import percentile

READS_PER_LIKE = 10
"""How often a count is looked at for each like: an assumption. The posts are looked at as often as they are liked."""

FAULT_OPERATIONS = 1000
SPREAD_OVER = (1, 10, 100, 1000, 10_000, 100_000)
RATES = (0.0003, 0.001, 0.003, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
WINDOWS_S = (0, 1, 2, 5, 10, 20, 30, 60)
MOST_REFUSED = 0.01
"""Above this share of requests that are told to come again, a path is stalled by conflicts."""

_SERIES_OPERATIONS = 1000
_CEILING_OPERATIONS = 1000
_WINDOWS_SEEN = 8
_MOST_LIKES_A_SECOND = 1000.0
_HALVINGS = 7


class Ceiling(NamedTuple):
    """How many likes a second one post takes, and what keeps it from more: partition, conflicts or aggregator."""

    likes_per_second: float
    by: str


@dataclass(frozen=True, slots=True)
class CostSeries:
    """Dollars a million likes by path, over x. `break_even`: at which x the cheaper one changes, if it does."""

    x: list[float]
    usd: dict[str, list[float]]
    break_even: float | None


def usage_of(played: Run) -> Usage:
    """Return what one like of a run uses. Where requests were refused, the others bear their cost."""
    accepted = max(1, played.accepted)
    running_s = sum(invocation.seconds + OWN_CODE_S for invocation in played.invocations)
    return Usage(
        write_units=played.write_units_per_like,
        read_units=played.meter.all_read_units / accepted + READS_PER_LIKE * played.mean_read_units,
        requests=played.operations / accepted,
        api_s=(sum(played.latency_s) + played.cold_requests * START_S) / accepted,
        invocations=len(played.invocations) / accepted,
        aggregator_s=(running_s + played.cold_invocations * START_S) / accepted,
    )


def usd(played: Run) -> float:
    """Return the dollars of a million likes like those of a run."""
    return sum(usd_per_million(usage_of(played)).values())


def cost_by_posts(rate: float, window_s: float, seed: int) -> CostSeries:
    """Return the cost against the number of posts that share the likes evenly: from one to 100,000."""
    return _cost_series(SPREAD_OVER, lambda posts: spread(int(posts), _SERIES_OPERATIONS, rate, seed), window_s, seed)


def cost_by_rate(workload: str, window_s: float, seed: int) -> CostSeries:
    """Return the cost of a workload against its likes a second: few of them are few a batch."""

    def at_rate(rate: float) -> list[Operation]:
        # By chance: evenly spaced, all likes would find the functions idle for too long, or none.
        times = spread(1, _SERIES_OPERATIONS, rate, seed)
        drawn = operations(workload, _SERIES_OPERATIONS, rate, seed)
        return [dataclasses.replace(operation, at=time.at) for operation, time in zip(drawn, times, strict=True)]

    return _cost_series(RATES, at_rate, window_s, seed)


def _cost_series(
    x: Sequence[float], played_at: Callable[[float], list[Operation]], window_s: float, seed: int
) -> CostSeries:
    costs: dict[str, list[float]] = {"stream": [], "transaction": []}
    for value in x:
        played = played_at(value)
        for name, series in costs.items():
            series.append(usd(run(PATHS[name], played, window_s, seed)))
    return CostSeries(list(x), costs, _crossing(x, costs["stream"], costs["transaction"]))


def _crossing(x: Sequence[float], stream: Sequence[float], transaction: Sequence[float]) -> float | None:
    """Return where the two lines cross, with x on a logarithmic scale; None if they do not."""
    gaps = [ours - theirs for ours, theirs in zip(stream, transaction, strict=True)]
    for (x0, gap0), (x1, gap1) in zip(zip(x, gaps, strict=True), zip(x[1:], gaps[1:], strict=False), strict=False):
        if (gap0 > 0) is not (gap1 > 0):
            share = gap0 / (gap0 - gap1)
            return math.exp(math.log(x0) + share * (math.log(x1) - math.log(x0)))
    return None


def staleness_by_window(seed: int) -> dict[str, list[float | None]]:
    """Return the stream path's staleness in seconds against the batch window: `window_s`, `p50_s`, `p99_s`.

    The likes come so slowly that the function always keeps up, and over several windows.
    """
    series: dict[str, list[float | None]] = {"window_s": [], "p50_s": [], "p99_s": []}
    for window_s in WINDOWS_S:
        rate = _SERIES_OPERATIONS / (_WINDOWS_SEEN * max(1, window_s))
        played = run(PATHS["stream"], spread(10, _SERIES_OPERATIONS, rate, seed), window_s, seed)
        series["window_s"].append(window_s)
        series["p50_s"].append(percentile(played.staleness_s, 50))
        series["p99_s"].append(percentile(played.staleness_s, 99))
    return series


@functools.cache
def ceiling(name: str, window_s: float, seed: int) -> Ceiling:
    """Return how many likes a second one hot post takes on a path.

    The least of three: what its partition takes in write units (all of the post's items in one partition), what can be
    answered without telling more than one in a hundred to come again, and what one invocation at a time can count.
    """
    path = PATHS[name]
    alone = dataclasses.replace(path, contention_s=None)
    hot = operations("viral", _SERIES_OPERATIONS, _MOST_LIKES_A_SECOND, seed)
    limits = [Ceiling(PARTITION_WRITE_UNITS / run(alone, hot, window_s, seed).write_units_per_like, "partition")]
    if path.contention_s is not None:
        limits.append(Ceiling(_before_conflicts(name, seed), "conflicts"))
    busy_s = path.seconds(_SERIES_OPERATIONS, 1)
    if busy_s:
        limits.append(Ceiling(_SERIES_OPERATIONS / busy_s, "aggregator"))
    return min(limits)


def _before_conflicts(name: str, seed: int) -> float:
    """Return the highest rate, found by halving, at which conflicts refuse no more than one request in a hundred."""
    low, high = 1.0, _MOST_LIKES_A_SECOND
    for _ in range(_HALVINGS):
        rate = math.sqrt(low * high)
        played = run(PATHS[name], spread(1, _CEILING_OPERATIONS, rate, seed), 0, seed)
        if played.accepted >= (1 - MOST_REFUSED) * played.operations:
            low = rate
        else:
            high = rate
    return low


def drift_by_fault(name: str, workload: str, rate: float, seed: int) -> dict[str, int]:
    """Return a path's drift after each kind of fault by itself."""
    played = operations(workload, FAULT_OPERATIONS, rate, seed)
    return {
        kind: drift_after(PATHS[name], played, Schedule.from_seed(seed, FAULT_OPERATIONS, (kind,)), seed)
        for kind in KINDS
    }
