"""All paths on one workload: every figure from a seed, and the recommendation that follows from the figures."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tallyctl.comparison.costs import PARTITION_READ_UNITS, PRICES, usd_per_million
from tallyctl.comparison.faults import Schedule, drift_after
from tallyctl.comparison.paths import PATHS
from tallyctl.comparison.published import ASSUMED, LABELS
from tallyctl.comparison.runs import Run, run
from tallyctl.comparison.series import (
    FAULT_OPERATIONS,
    MOST_REFUSED,
    READS_PER_LIKE,
    Ceiling,
    CostSeries,
    ceiling,
    cost_by_posts,
    cost_by_rate,
    drift_by_fault,
    staleness_by_window,
    usage_of,
)
from tallyctl.comparison.stream import LONGEST_BATCH_WINDOW_S
from tallyctl.comparison.workloads import WORKLOADS
from tallyctl.comparison.workloads import operations as operations_of
from tallyctl.demo import percentile
from tallyctl.errors import TallyctlError, check_within

OPERATIONS = 10_000
RATE = 1000.0
WINDOW_S = 2.0
SEED = 1

MOST_OPERATIONS = 1_000_000
"""Of these, a quarter of an hour."""

MOST_RATE = 1e6

ABOUT_THE_SAME = 1.1
"""Within ten per cent of the cheapest, a path that counts at once is the better one."""

_READ_OF_A_TALLY = 0.5
_DIGITS = 4

Progress = Callable[[str, int, int], None]
"""Is told what is being done, how many steps are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Result:
    """One path on the workload."""

    title: str
    run: Run
    usd: dict[str, float]
    """Dollars a million likes, part by part."""
    drift_after_faults: int
    drift_by_fault: dict[str, int]
    ceiling: Ceiling
    counts_when_read: bool

    @property
    def refused(self) -> float:
        """The share of requests that were told to come again, since others were in the way for too long."""
        return 1 - self.run.accepted / self.run.operations

    @property
    def total_usd(self) -> float:
        """Dollars a million likes."""
        return sum(self.usd.values())

    @property
    def keeps_up(self) -> bool:
        """Whether the aggregator counts as fast as likes come; else its staleness grows for as long as they do."""
        return self.run.aggregator_load <= 1

    @property
    def objections(self) -> list[str]:
        """What speaks against the path, whatever it costs.

        A price that grows with every like is among it: counting when read comes into question only while a count costs
        no more than the read of a tally.
        """
        found = []
        if self.drift_after_faults:
            found.append(f"drifts by {self.drift_after_faults} after the faults")
        if self.refused > MOST_REFUSED:
            found.append(f"refuses {self.refused:.0%} of the requests for conflicts")
        if not self.keeps_up:
            found.append("counts more slowly than likes come")
        if self.counts_when_read and self.run.hottest_read_units > _READ_OF_A_TALLY:
            found.append(f"reads the hottest post for {self.run.hottest_read_units:.1f} units, more with each like")
        return found

    def figures(self) -> dict[str, Any]:
        """Return the path's figures for JSON."""
        played = self.run
        return {
            "title": self.title,
            "write_units_per_like": round(played.write_units_per_like, _DIGITS),
            "read_units_per_read": played.hottest_read_units,
            "read_units_per_read_mean": round(played.mean_read_units, _DIGITS),
            "usd_per_million_likes": round(self.total_usd, _DIGITS),
            "usd_parts": {name: round(part, _DIGITS) for name, part in self.usd.items()},
            "requests": dict(sorted(played.meter.requests.items())),
            "write_units": dict(sorted(played.meter.write_units.items())),
            "conflicts": played.conflicts,
            "refused": round(self.refused, _DIGITS),
            "drift": played.drift,
            "drift_after_faults": self.drift_after_faults,
            "drift_by_fault": self.drift_by_fault,
            "round_trips": round(played.round_trips / played.operations, _DIGITS),
            "latency_p50_s": percentile(played.latency_s, 50),
            "latency_p99_s": percentile(played.latency_s, 99),
            "staleness_p50_s": percentile(played.staleness_s, 50),
            "staleness_p99_s": percentile(played.staleness_s, 99),
            "keeps_up": self.keeps_up,
            "objections": self.objections,
            "invocations": len(played.invocations),
            "ceiling_likes_per_second": round(self.ceiling.likes_per_second, 1),
            "ceiling_by": self.ceiling.by,
            "ceiling_reads_per_second": round(PARTITION_READ_UNITS / played.hottest_read_units, 1),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found."""

    workload: str
    operations: int
    rate: float
    window_s: float
    seed: int
    paths: dict[str, Result]
    cost_by_posts: CostSeries
    cost_by_rate: CostSeries
    staleness_by_window: dict[str, list[float | None]]
    faults: dict[str, int]
    """How many faults of each kind the schedule of `drift_after_faults` plants."""

    @property
    def recommendation(self) -> str:
        """Which path for this workload, and why."""
        return recommend(self.workload, self.paths)

    def figures(self) -> dict[str, Any]:
        """Return the comparison as the JSON object that others read; the same seed gives the same one."""
        return {
            "workload": self.workload,
            "operations": self.operations,
            "rate": self.rate,
            "batch_window_s": self.window_s,
            "seed": self.seed,
            "paths": {name: result.figures() for name, result in self.paths.items()},
            "recommendation": self.recommendation,
            "series": {
                "cost_by_posts": _rounded(self.cost_by_posts),
                "cost_by_rate": _rounded(self.cost_by_rate),
                "staleness_by_window": self.staleness_by_window,
                "ceiling": {name: round(result.ceiling.likes_per_second, 1) for name, result in self.paths.items()},
                "drift_by_fault": {name: result.drift_by_fault for name, result in self.paths.items()},
            },
            "faults": {"operations": FAULT_OPERATIONS, "planted": self.faults},
            "assumptions": {
                "reads_per_like": READS_PER_LIKE,
                "prices": {name: price._asdict() for name, price in PRICES.items()},
                "seconds": ASSUMED,
                "published": LABELS,
            },
        }


def compare(
    workload: str,
    operations: int = OPERATIONS,
    rate: float = RATE,
    window_s: float = WINDOW_S,
    seed: int = SEED,
    progress: Progress = lambda _what, _done, _of: None,
) -> Comparison:
    """Play a workload on every path, with and without faults, and work out what follows.

    Args:
        workload: a name in `workloads.WORKLOADS`.
        operations: how many likes and unlikes.
        rate: how many of them a second.
        window_s: MaximumBatchingWindowInSeconds of the stream's mapping.
        seed: of everything that is left to chance. The same arguments give the same figures.
        progress: is told of each step before it is taken, and once more at the end.

    Raises:
        TallyctlError: there is no such workload, or a number is out of its bounds.
    """
    _check(workload, operations, rate, window_s)
    steps = len(PATHS) + 3
    played = operations_of(workload, operations, rate, seed)
    faulty = operations_of(workload, FAULT_OPERATIONS, rate, seed)
    schedule = Schedule.from_seed(seed, FAULT_OPERATIONS)
    paths = {}
    for done, (name, path) in enumerate(PATHS.items()):
        progress(name, done, steps)
        calm = run(path, played, window_s, seed)
        paths[name] = Result(
            title=path.title,
            run=calm,
            usd=usd_per_million(usage_of(calm)),
            drift_after_faults=drift_after(path, faulty, schedule, seed),
            drift_by_fault=drift_by_fault(name, workload, rate, seed),
            ceiling=ceiling(name, window_s, seed),
            counts_when_read=path.counts_when_read,
        )
    progress("cost against the number of posts", len(PATHS), steps)
    by_posts = cost_by_posts(rate, window_s, seed)
    progress("cost against the rate", len(PATHS) + 1, steps)
    by_rate = cost_by_rate(workload, window_s, seed)
    progress("staleness against the batch window", len(PATHS) + 2, steps)
    staleness = staleness_by_window(seed)
    progress("done", steps, steps)
    return Comparison(
        workload=workload,
        operations=operations,
        rate=rate,
        window_s=window_s,
        seed=seed,
        paths=paths,
        cost_by_posts=by_posts,
        cost_by_rate=by_rate,
        staleness_by_window=staleness,
        faults=schedule.planted(),
    )


def recommend(workload: str, paths: dict[str, Result]) -> str:
    """Return which path to take for a workload, and why, in a sentence.

    A path comes into question if nothing speaks against it (`Result.objections`). Of these the cheapest is taken, or
    the one that counts at once if it costs about the same.
    """
    fit = {name: result for name, result in paths.items() if not result.objections}
    if not fit:
        return f"No path fits the workload {workload}: each drifts, refuses too much, or counts too slowly."
    cheapest = min(fit, key=lambda name: fit[name].total_usd)
    limit = fit[cheapest].total_usd * ABOUT_THE_SAME
    at_once = [name for name, result in fit.items() if not result.run.invocations and result.total_usd <= limit]
    choice = min(at_once, key=lambda name: fit[name].total_usd) if at_once else cheapest
    chosen = fit[choice]
    why = f"at {chosen.total_usd:.2f} dollars a million likes it is "
    if choice == cheapest:
        why += "the cheapest path that stays exact under faults and keeps up"
    else:
        why += f"about as cheap as {cheapest} ({fit[cheapest].total_usd:.2f})"
    fresh = percentile(chosen.run.staleness_s, 99)
    why += f", and a like is counted {f'within {fresh:.1f} s (p99)' if fresh else 'at once'}"
    rival = "stream" if choice == "transaction" else "transaction"
    other = paths[rival]
    if rival != cheapest:  # whose price has been said
        why += f"; {rival} costs {other.total_usd:.2f}{''.join(f' and {objection}' for objection in other.objections)}"
    return f"Take {choice} for the workload {workload}: {why}."


def _check(workload: str, operations: int, rate: float, window_s: float) -> None:
    if workload not in WORKLOADS:
        raise TallyctlError(f"there is no workload {workload!r}: choose one of {', '.join(WORKLOADS)}")
    check_within("operations", operations, 1, MOST_OPERATIONS)
    check_within("rate", rate, 1e-6, MOST_RATE)
    check_within("batch-window", window_s, 0, LONGEST_BATCH_WINDOW_S)


def _rounded(series: CostSeries) -> dict[str, Any]:
    return {
        "x": series.x,
        "usd_per_million_likes": {name: [round(value, _DIGITS) for value in of] for name, of in series.usd.items()},
        "break_even": None if series.break_even is None else round(series.break_even, _DIGITS),
    }
