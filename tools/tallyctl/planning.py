"""What a traffic takes: batches, capacity, partitions, staleness and cost, by formulas alone.

The model, which `tests/simulation/traffic.py` plays out like by like:

- Likes are a Poisson process, and the n-th most popular post gets n ** -skew times what the first one gets (Zipf).
- Each partition of the table has one open shard of the stream. DynamoDB splits what is hot, so that all get the same
  share of the likes; a post's likes are in one, or in several if they are more than one carries:
  https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/burst-adaptive-capacity.html.
- A shard has one invocation at a time, and the next batching window begins when it ends; a window in which nothing
  came makes none: https://docs.aws.amazon.com/lambda/latest/dg/invocation-eventsourcemapping.html.
- The aggregator writes parents in the order in which they first occur in the batch, so many a second.
- Its own writes come back as records of the stream, since the template's mapping has a window and no filter.

Left out: faults and what they repeat, likes that were there already (one write unit, no record), new posts, the final
call of each tumbling window, cold starts, and what logs, traces and data transfer cost.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from tallyctl.comparison.costs import (
    AGGREGATOR_GB,
    API_GB,
    LARGEST_ITEM_BYTES,
    PARTITION_READ_UNITS,
    PARTITION_WRITE_UNITS,
    PRICES,
    TRANSACTION_FACTOR,
    read_units,
    write_units,
)
from tallyctl.comparison.published import INVOKE_S, OWN_CODE_S, PARENTS_PER_SECOND, POLL_S, PUT_S, TRANSACTION_S
from tallyctl.comparison.stream import LARGEST_BATCH, LONGEST_BATCH_WINDOW_S
from tallyctl.errors import check_within
from tallystream.counters import SECONDS_A_MARK_MATTERS

GB = 2**30
PARTITION_BYTES = 10 * GB
"""https://aws.amazon.com/blogs/database/part-3-scaling-dynamodb-how-partitions-hot-keys-and-split-for-heat-impact-performance/"""

NEW_TABLE_WRITE_UNITS = 4000
NEW_TABLE_READ_UNITS = 12_000
"""What a new on-demand table takes; an older one takes twice its last peak at once:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html."""

NEW_TABLE_PARTITIONS = NEW_TABLE_WRITE_UNITS // PARTITION_WRITE_UNITS

ITEM_OVERHEAD_BYTES = 100
"""Stored with each item beside its own size: https://aws.amazon.com/dynamodb/pricing/on-demand/."""

SHARD_LIVES_S = 4 * 3600
MARK_BYTES = 90
"""A mark stays on its post for 25 hours (tallystream/counters.py), and a shard lives four (design, section 4); its size
is by https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html."""

AUTO_SCALING_TARGET = 0.7
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/AutoScaling.html"""

WRITE_UNIT_HOUR_USD = 0.00065
READ_UNIT_HOUR_USD = 0.00013
GB_MONTH_USD = 0.25 + 0.20
"""Provisioned capacity, and storage with point-in-time recovery, in us-east-1, as others quote them from
https://aws.amazon.com/dynamodb/pricing/provisioned/, which was not read here."""

HTTP_FIRST_TIER = 300e6
HTTP_LATER_USD = 0.90e-6
"""From the 300 millionth HTTP API request of a month on, in us-east-1, as others quote it from
https://aws.amazon.com/api-gateway/pricing/, which was not read here."""

HOURS_A_MONTH = 730
SECONDS_A_MONTH = HOURS_A_MONTH * 3600

GROUPING_S_A_RECORD = 1.5e-6
"""Measured here: docs/decisions/2026-11-30-what-boto3-costs.md."""

STREAM_LAG_S = 0.1
"""Assumed, from a write to its record: AWS says "near real time"
(https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html)."""

LIKE_CALL_S = OWN_CODE_S + PUT_S
TRANSACTION_CALL_S = OWN_CODE_S + TRANSACTION_S
READ_CALL_S = OWN_CODE_S + PUT_S
"""How long the API function runs: one request each."""

_HEAD = 200
_TAIL_RATIO = 1.05
_SLICES = 100
_MOST_ROUNDS = 100


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is asked for. Rates are averages over a month; `check` says what is allowed."""

    likes_per_second: float
    """Likes and unlikes."""
    posts: int = 100_000
    skew: float = 1.0
    """Zipf's exponent: 0, all posts are alike; 1, the n-th gets 1/n of the first."""
    peak_factor: float = 3.0
    """The busiest seconds against the average."""
    like_bytes: int = 100
    post_bytes: int = 300
    """Without the marks, which are added."""
    batch_window_s: float = 2.0
    reads_per_second: float = 0.0
    """Posts read with their tally, through the API."""
    batch_size: int = LARGEST_BATCH
    likes_kept: int | None = None
    """Likes in the table; None: those of a month."""


class Group(NamedTuple):
    """Posts that are about equally popular."""

    posts: float
    share: float
    """Of all likes, for one of these posts."""
    shards: int = 1
    """Over how many shards the likes of one of these posts are spread."""


@dataclass(frozen=True, slots=True)
class Staleness:
    """Seconds from a like's answer to the tally that contains it."""

    mean: float
    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Batching:
    """How the stream is worked off at one rate of likes."""

    cycle_s: float
    """From one batch to the next, in the hottest post's shards."""
    records: float
    """A batch: likes, and the changes of parents that come back."""
    parents: float
    """A batch, of those with likes in them."""
    invocation_s: float
    calls_per_second: float
    """Over all shards, batches without likes included."""
    parents_per_second: float
    parent_units_per_second: float
    """Write units of these."""
    fills: bool
    """Whether batches are full before their window ends, somewhere at least. Then a cycle hangs on how many likes its
    shard has, and shards are less alike than planned: the staleness is rougher."""
    keeps_up: bool
    """Whether a full batch takes less time than the next one takes to come."""
    staleness: Staleness | None
    """None where it does not keep up: then it grows without end."""


@dataclass(frozen=True, slots=True)
class Units:
    """Capacity units a second."""

    write: float
    read: float


@dataclass(frozen=True, slots=True)
class Capacity:
    """USD a month for reads and writes of the stream path, by the way of paying for them."""

    on_demand: float
    provisioned_for_peak: float
    """As much as the peak takes, all the time."""
    provisioned_auto_scaling: float
    """At best: always 70 % used. It follows in minutes, so a faster rise is throttled."""
    break_even_peak_factor: float
    """Above it, paying on demand is cheaper than providing for the peak."""
    cheaper: str
    """`on-demand` or `provisioned`: the cheaper one of the first two."""


@dataclass(frozen=True, slots=True)
class HottestPost:
    """The most popular post at the peak."""

    likes_per_second: float
    write_units_per_second: float
    """Of its item collection: its likes and its tally."""
    read_units_per_second: float
    item_bytes: float
    """Of the post itself, with its marks."""
    tally_writes_per_second: float
    """One a batch and shard."""
    tally_units_per_second: float
    """What they take. A tally is one item, which is never spread."""
    transaction_tally_units_per_second: float
    """What the tally would take in transactions."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the traffic takes."""

    traffic: Traffic
    average: Batching
    peak: Batching
    units: Units
    units_peak: Units
    transaction_units: Units
    partitions_by_throughput: int
    partitions_by_size: int
    shards: int
    key_shards: int
    hottest: HottestPost
    quietest_bytes: float
    """The size of the least popular post, with its marks."""
    prewarm: bool
    capacity: Capacity
    usd_stream: dict[str, float]
    usd_transaction: dict[str, float]

    @property
    def partitions(self) -> int:
        """How many partitions the table needs, by whatever needs more."""
        return max(self.partitions_by_throughput, self.partitions_by_size)

    def figures(self) -> dict[str, Any]:
        """Return the plan as the JSON object that others read. Plain names are averages; USD are a month's."""
        staleness, at_peak = self.average.staleness, self.peak.staleness
        return {
            "traffic": asdict(self.traffic),
            "parents_per_batch": round(self.average.parents, 2),
            "parents_per_batch_peak": round(self.peak.parents, 2),
            "parents_per_second": round(self.average.parents_per_second, 2),
            "batches_per_second": round(self.average.calls_per_second, 3),
            "write_units_per_second": round(self.units.write, 1),
            "write_units_per_second_peak": round(self.units_peak.write, 1),
            "write_units_per_like": round(self.units.write / self.traffic.likes_per_second, 3),
            "transaction_write_units_per_second": round(self.transaction_units.write, 1),
            "read_units_per_second": round(self.units.read, 1),
            "read_units_per_second_peak": round(self.units_peak.read, 1),
            "partitions": self.partitions,
            "partitions_by_throughput": self.partitions_by_throughput,
            "partitions_by_size": self.partitions_by_size,
            "shards": self.shards,
            "key_shards": self.key_shards,
            "hottest_post_peak": {name: round(value, 2) for name, value in asdict(self.hottest).items()},
            "prewarm": self.prewarm,
            "keeps_up": self.peak.keeps_up,
            "staleness_s": staleness and round(staleness.mean, 3),
            "staleness_p50_s": staleness and round(staleness.p50, 3),
            "staleness_p99_s": staleness and round(staleness.p99, 3),
            "staleness_peak_p50_s": at_peak and round(at_peak.p50, 3),
            "staleness_peak_p99_s": at_peak and round(at_peak.p99, 3),
            "capacity_usd_per_month": {
                name: value if isinstance(value, str) else round(value, 2)
                for name, value in asdict(self.capacity).items()
            },
            "usd_per_month": {
                "stream": round(sum(self.usd_stream.values()), 2),
                "transaction": round(sum(self.usd_transaction.values()), 2),
            },
            "usd_per_month_parts": {
                "stream": {part: round(usd, 2) for part, usd in self.usd_stream.items()},
                "transaction": {part: round(usd, 2) for part, usd in self.usd_transaction.items()},
            },
        }


def plan(traffic: Traffic) -> Plan:
    """Return what the traffic takes.

    The partitions are those of the peak, since partitions are split and never merged; average and peak then both run
    on as many shards.

    Raises:
        TallyctlError: see `check`.
    """
    check(traffic)
    rate, peak_rate = traffic.likes_per_second, traffic.likes_per_second * traffic.peak_factor
    posts = spread(popularity(traffic.posts, traffic.skew), traffic)
    by_size = max(1, math.ceil(stored_bytes(traffic, posts) / PARTITION_BYTES))
    hot = _shards([post for post in posts if post.share / post.shards > _half_partition(traffic)])

    def shards_of(partitions: int) -> int:
        return max(partitions, by_size, NEW_TABLE_PARTITIONS, hot)

    # How often parents are written hangs on the number of shards, and that on how often parents are written: so it is
    # the least number that carries what it brings, between no write of a parent and one a like.
    reads = units(traffic, posts, peak_rate, 0).read
    of_likes = peak_rate * write_units(traffic.like_bytes)
    of_parents = peak_rate * max(write_units(parent_bytes(traffic, post)) for post in posts)
    least, most = (partitions_by_throughput(Units(of_likes + more, reads)) for more in (0, of_parents))

    def carries(partitions: int) -> bool:
        parts = _parts(traffic, posts, peak_rate, shards_of(partitions))
        counting = math.fsum(part.parent_units_per_second for part in parts)
        return partitions_by_throughput(Units(of_likes + counting, reads)) <= partitions

    by_throughput = least + bisect.bisect_left(range(least, most), True, key=carries)
    shards = shards_of(by_throughput)
    peak = batching(traffic, posts, peak_rate, shards)
    units_peak = units(traffic, posts, peak_rate, peak.parent_units_per_second)
    average = batching(traffic, posts, rate, shards)
    average_units = units(traffic, posts, rate, average.parent_units_per_second)
    transaction = transaction_units(traffic)
    hottest = hottest_post(traffic, posts[0], peak)
    key_shards = partitions_by_throughput(Units(hottest.write_units_per_second, hottest.read_units_per_second))
    return Plan(
        traffic=traffic,
        average=average,
        peak=peak,
        units=average_units,
        units_peak=units_peak,
        transaction_units=transaction,
        partitions_by_throughput=by_throughput,
        partitions_by_size=by_size,
        shards=shards,
        key_shards=key_shards,
        hottest=hottest,
        quietest_bytes=parent_bytes(traffic, posts[-1]),
        prewarm=must_prewarm(units_peak),
        capacity=capacity(average_units, units_peak),
        usd_stream=_usd(traffic, posts, average_units, LIKE_CALL_S) | {"lambda_aggregator": aggregator_usd(average)},
        usd_transaction=_usd(traffic, posts, transaction, TRANSACTION_CALL_S),
    )


def check(traffic: Traffic) -> None:
    """Raise TallyctlError, with what is allowed, if a figure makes no sense or AWS does not take it."""
    for option, value, least, most in (
        ("likes-per-second", traffic.likes_per_second, 1e-6, 1e8),
        ("posts", traffic.posts, 1, 1e12),
        ("skew", traffic.skew, 0, 5),
        ("peak-factor", traffic.peak_factor, 1, 1000),
        ("like-bytes", traffic.like_bytes, 1, LARGEST_ITEM_BYTES),
        ("post-bytes", traffic.post_bytes, 1, LARGEST_ITEM_BYTES),
        ("batch-window", traffic.batch_window_s, 0, LONGEST_BATCH_WINDOW_S),
        ("reads-per-second", traffic.reads_per_second, 0, 1e8),
        ("batch-size", traffic.batch_size, 1, LARGEST_BATCH),
        ("likes-kept", 0 if traffic.likes_kept is None else traffic.likes_kept, 0, 1e15),
    ):
        check_within(option, value, least, most)


# ----------------------------------------------------------------------------------------------- batches and parents


def popularity(posts: int, skew: float) -> list[Group]:
    """Return the posts in groups, the most popular first; the shares of all posts are 1 in sum.

    The first 200 posts are groups of their own and exact. Behind them a group spans ranks of a ratio of 1.05 and its
    posts share the group's weight, an integral of rank ** -skew, alike. For what is made of it here that is wrong by
    less than 1 in 1,000 (tested against the sum over all posts).
    """
    groups: list[tuple[float, float]] = [(1.0, rank**-skew) for rank in range(1, min(posts, _HEAD) + 1)]
    first = _HEAD + 1
    while first <= posts:
        end = min(math.ceil(first * _TAIL_RATIO), posts + 1)
        groups.append((end - first, _integral(first - 0.5, end - 0.5, skew) / (end - first)))
        first = end
    whole = math.fsum(count * weight for count, weight in groups)
    return [Group(count, weight / whole) for count, weight in groups]


def _integral(low: float, high: float, skew: float) -> float:
    """Return the integral of x ** -skew."""
    # Written with expm1, it holds for a skew of 1, where it is a logarithm, and beside it.
    ratio, power = math.log(high / low), 1 - skew
    return math.pow(low, power) * (math.expm1(power * ratio) / power if power else ratio)


def spread(posts: Sequence[Group], traffic: Traffic) -> list[Group]:
    """Return the posts with the likes of each spread over as many shards as they take at the peak.

    An item collection that is hotter than a partition is split by sort key, if there is no local secondary index:
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/burst-adaptive-capacity.html. That older likes
    fill partitions of their own spreads no post that is hot today.
    """
    peak_units = traffic.likes_per_second * traffic.peak_factor * write_units(traffic.like_bytes)
    return [post._replace(shards=max(1, math.ceil(post.share * peak_units / PARTITION_WRITE_UNITS))) for post in posts]


def distinct(posts: Sequence[Group], likes: float) -> float:
    """Return how many parents are expected in the batches that so many likes of the table fall into.

    For posts in one shard it is the sum of 1 - (1 - p) ** likes, with exp(-p * likes) for the power: exact where the
    number of likes is a Poisson variable, as it is in a time; for a fixed number it is too low by at most the sum of
    p * exp(-1), which is 0.37 parents. A post in several shards is a parent in each.
    """
    return math.fsum(count * shards * -math.expm1(-share / shards * likes) for count, share, shards in posts)


def batching(traffic: Traffic, posts: Sequence[Group], rate: float, shards: int) -> Batching:
    """Return how `shards` shards work off `rate` likes a second."""
    parts = _parts(traffic, posts, rate, shards)
    calls = math.fsum(part.calls_per_second for part in parts)
    parents = math.fsum(part.parents_per_second for part in parts)
    keeps_up = all(part.keeps_up for part in parts)
    return Batching(
        cycle_s=parts[0].cycle_s,
        records=math.fsum(part.records / part.cycle_s * part.shards for part in parts) / calls,
        parents=parents / math.fsum(part.batches_per_second for part in parts),
        invocation_s=math.fsum(part.invocation_s * part.calls_per_second for part in parts) / calls,
        calls_per_second=calls,
        parents_per_second=parents,
        parent_units_per_second=math.fsum(part.parent_units_per_second for part in parts),
        fills=any(part.fills for part in parts),
        keeps_up=keeps_up,
        staleness=_staleness(parts) if keeps_up else None,
    )


def _parts(traffic: Traffic, posts: Sequence[Group], rate: float, shards: int) -> list["_Part"]:
    """Return the shards in parts that are alike.

    No two hot posts share a shard: those with more likes in a shard than an even share, or than half of what a
    partition carries at the peak. The others are anywhere, so that each shard gets an even share, if not more already.
    """
    hottest = min(1 / shards, _half_partition(traffic))
    hot = [post for post in posts if post.share / post.shards > hottest]
    rest = [post for post in posts if post.share / post.shards <= hottest]
    if not rest:
        return [_Part(traffic, hot, [], rate, _shards(hot))]
    own = _shards(hot)
    of_rest = _share(rest)
    beside_hot = min(1.0, max(0.0, own / shards - _share(hot)) / of_rest) if own < shards else 1.0
    parts = []
    for owners, number, fraction in ((hot, own, beside_hot), ([], shards - own, 1 - beside_hot)):
        if number:
            others = [post._replace(posts=post.posts * fraction) for post in rest] if fraction else []
            parts.append(_Part(traffic, owners, others, rate, number))
    return parts


def _share(posts: Sequence[Group]) -> float:
    return math.fsum(post.posts * post.share for post in posts)


def _half_partition(traffic: Traffic) -> float:
    """Return the share of all likes that half a partition carries at the peak."""
    return (
        PARTITION_WRITE_UNITS / 2 / (traffic.likes_per_second * traffic.peak_factor * write_units(traffic.like_bytes))
    )


def _shards(posts: Sequence[Group]) -> int:
    return sum(int(post.posts) * post.shards for post in posts)


class _Part:
    """Shards that are alike, and how each works off its posts.

    A shard's cycle is the batching window and the invocation after it:
    https://docs.aws.amazon.com/lambda/latest/dg/invocation-eventsourcemapping.html. What gathers meanwhile is the next
    batch, whose invocation takes the longer the more parents are in it: the cycle is where the two agree. If the batch
    is full before, the cycle is the time that so many records take.
    """

    def __init__(
        self, traffic: Traffic, owners: Sequence[Group], others: Sequence[Group], rate: float, shards: int
    ) -> None:
        """Owners have each shard to themselves as far as they go; the others are in any of the shards."""
        posts = [*owners, *others]
        self._posts, self._owners, self._others = posts, owners, others
        self._rate = rate
        self.shards = shards
        self._shard_rate = rate * _share(posts) / shards
        window_s = max(traffic.batch_window_s, POLL_S)
        # At the latest the likes alone fill a batch; beside them come the parents.
        likes_fill_s = traffic.batch_size / self._shard_rate
        full_s = _root(lambda time_s: self._records(time_s) - traffic.batch_size, 0, likes_fill_s)
        self.fills = window_s + self._invocation_s(full_s) >= full_s
        # Parents grow ever slower with time, so the two agree once only.
        self.cycle_s = (
            full_s
            if self.fills
            else _root(lambda time_s: time_s - window_s - self._invocation_s(time_s), window_s, full_s)
        )
        self.records = self._records(self.cycle_s)
        self.invocation_s = self._invocation_s(self.cycle_s)
        self.keeps_up = self.invocation_s <= self.cycle_s
        self.parents_per_second = self.shards * self._parents(self.cycle_s) / self.cycle_s
        self.parent_units_per_second = math.fsum(
            distinct([post], rate * self.cycle_s) / self.cycle_s * write_units(parent_bytes(traffic, post))
            for post in posts
        )
        self.batches_per_second = shards * self._busy(self.cycle_s) / self.cycle_s
        # A cycle without likes still has an invocation if the one before it wrote: its writes come back.
        self.calls_per_second = shards * self._busy(2 * self.cycle_s) / self.cycle_s

    def _parents(self, time_s: float) -> float:
        return distinct(self._posts, self._rate * time_s) / self.shards

    def _busy(self, time_s: float) -> float:
        """Return the probability that a shard gets a like in so much time."""
        owner = distinct(self._owners, self._rate * time_s) / self.shards
        absent = (
            (1 + math.expm1(-self._rate * post.share / post.shards * time_s) / self.shards, post.posts * post.shards)
            for post in self._others
        )
        return 1 - (1 - owner) * math.prod(math.pow(one, pieces) for one, pieces in absent)

    def _records(self, time_s: float) -> float:
        return self._shard_rate * time_s + self._parents(time_s)

    def _invocation_s(self, time_s: float) -> float:
        return INVOKE_S + GROUPING_S_A_RECORD * self._records(time_s) + self._parents(time_s) / PARENTS_PER_SECOND

    def waits(self) -> list[tuple[float, float]]:
        """Return how long likes wait for their tally, in seconds, each with the likes a second for which it is so.

        A like that comes `a` seconds into a cycle waits for the rest of it, for the call and the grouping, and for the
        parents before its own. Its parent's place is that of the parent's first like in the batch, at `y` <= a: as many
        parents are before it as are expected in y seconds. That first like is later than y with the probability that
        the post has none in y seconds, which is exp(-its rate * y). So all pairs of a and y are weighted.
        """
        fixed_s = STREAM_LAG_S + INVOKE_S + GROUPING_S_A_RECORD * self.records
        slice_s = self.cycle_s / _SLICES
        later = [
            math.fsum(
                post.posts * post.share * math.exp(-self._rate * post.share / post.shards * slice_s * n)
                for post in self._posts
            )
            for n in range(_SLICES + 1)
        ]
        before_s = [self._parents(slice_s * (n + 0.5)) / PARENTS_PER_SECOND for n in range(_SLICES)]
        waits: list[tuple[float, float]] = []
        for came in range(_SLICES):
            wait_s = fixed_s + self.cycle_s - (came + 0.5) * slice_s
            waits += [(wait_s + before_s[n], later[n] - later[n + 1]) for n in range(came)]
            waits.append((wait_s + before_s[came], later[came]))
        return waits


def _staleness(parts: Sequence[_Part]) -> Staleness:
    waits = sorted(wait for part in parts for wait in part.waits())
    weights = list(itertools.accumulate(weight for _, weight in waits))

    def quantile(share: float) -> float:
        return waits[bisect.bisect_left(weights, share * weights[-1])][0]

    mean = math.fsum(wait * weight for wait, weight in waits) / weights[-1]
    return Staleness(mean, quantile(0.5), quantile(0.99))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function that is negative at `low` and not at `high` changes its sign."""
    for _ in range(_MOST_ROUNDS):
        middle = (low + high) / 2
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return high


# --------------------------------------------------------------------------------------------------------- capacity


def parent_bytes(traffic: Traffic, post: Group) -> float:
    """Return the size of a post of this group, with the marks that are expected on it.

    One mark is of the shard that is written now. Each of the others is of a shard that closed less than 25 hours ago,
    6.25 of them at four hours a shard, if the post got a like in its four hours. A post that is spread has as many
    for each of its shards.
    """
    rate = traffic.likes_per_second * post.share / post.shards
    earlier = SECONDS_A_MARK_MATTERS / SHARD_LIVES_S * -math.expm1(-rate * SHARD_LIVES_S)
    return traffic.post_bytes + MARK_BYTES * post.shards * (1 + earlier)


def units(traffic: Traffic, posts: Sequence[Group], rate: float, counting: float) -> Units:
    """Return what the stream path consumes at `rate` likes a second, reads in proportion.

    One write a like, and `counting` units a second for one write a parent and batch (design, section 8):
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html.
    A read takes in the whole post, since a projection, such as the API's, makes it no cheaper.
    """
    reads = traffic.reads_per_second * rate / traffic.likes_per_second
    reading = reads * math.fsum(
        post.posts * post.share * read_units(parent_bytes(traffic, post), consistent=False) for post in posts
    )
    return Units(rate * write_units(traffic.like_bytes) + counting, reading)


def transaction_units(traffic: Traffic) -> Units:
    """Return what the transaction path consumes: two units for each unit of like and post, and no marks on the post.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html
    """
    a_like = TRANSACTION_FACTOR * (write_units(traffic.like_bytes) + write_units(traffic.post_bytes))
    return Units(
        traffic.likes_per_second * a_like, traffic.reads_per_second * read_units(traffic.post_bytes, consistent=False)
    )


def partitions_by_throughput(peak: Units) -> int:
    """Return how many partitions carry this: each has 1,000 write units and 3,000 read units a second.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html. That a partition's
    reads and writes add up, as here, is the older and more careful reading.
    """
    return max(1, math.ceil(peak.write / PARTITION_WRITE_UNITS + peak.read / PARTITION_READ_UNITS))


def stored_bytes(traffic: Traffic, posts: Sequence[Group]) -> float:
    """Return the size of the table: likes and posts with marks, and 100 bytes an item.

    https://aws.amazon.com/dynamodb/pricing/on-demand/
    """
    kept = traffic.likes_per_second * SECONDS_A_MONTH if traffic.likes_kept is None else traffic.likes_kept
    of_posts = math.fsum(post.posts * (parent_bytes(traffic, post) + ITEM_OVERHEAD_BYTES) for post in posts)
    return kept * (traffic.like_bytes + ITEM_OVERHEAD_BYTES) + of_posts


def hottest_post(traffic: Traffic, post: Group, peak: Batching) -> HottestPost:
    """Return what the most popular post's item collection takes at the peak.

    Its partitions are the N of write sharding, `key#0..N`: (traffic x item size) / units of one partition. Its likes
    are spread over splits of the collection by sort key, which DynamoDB makes by itself under lasting heat, as long
    as there is no local secondary index; a single item is never spread:
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/burst-adaptive-capacity.html.
    """
    rate = traffic.likes_per_second * traffic.peak_factor * post.share
    reads = traffic.reads_per_second * traffic.peak_factor * post.share
    size = parent_bytes(traffic, post)
    # Each shard that the collection is spread over has batches of its own.
    tally_writes = distinct([post], traffic.likes_per_second * traffic.peak_factor * peak.cycle_s) / peak.cycle_s
    tally_units = tally_writes * write_units(size)
    return HottestPost(
        likes_per_second=rate,
        write_units_per_second=rate * write_units(traffic.like_bytes) + tally_units,
        read_units_per_second=reads * read_units(size, consistent=False),
        item_bytes=size,
        tally_writes_per_second=tally_writes,
        tally_units_per_second=tally_units,
        transaction_tally_units_per_second=TRANSACTION_FACTOR * rate * write_units(traffic.post_bytes),
    )


def must_prewarm(peak: Units) -> bool:
    """Return whether a new on-demand table would throttle at the peak.

    It takes 4,000 write and 12,000 read units; later twice the highest peak it has seen, within half an hour:
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/on-demand-capacity-mode.html.
    """
    return peak.write > NEW_TABLE_WRITE_UNITS or peak.read > NEW_TABLE_READ_UNITS


# ------------------------------------------------------------------------------------------------------------- cost


def capacity(average: Units, peak: Units) -> Capacity:
    """Return what reads and writes cost on demand, which follows the average, and provisioned, which needs the peak.

    https://aws.amazon.com/dynamodb/pricing/. Reserved capacity is left out.
    """
    on_demand = SECONDS_A_MONTH * (average.write * PRICES["write"].usd + average.read * PRICES["read"].usd)
    for_peak = _provisioned(peak.write, peak.read)
    scaled = _provisioned(average.write / AUTO_SCALING_TARGET, average.read / AUTO_SCALING_TARGET)
    # The peak's units are not quite the average's times the peak factor, since batches are larger then: so the factor
    # that is compared with this one is that of the units.
    break_even = on_demand / _provisioned(average.write, average.read)
    cheaper = "on-demand" if on_demand < for_peak else "provisioned"
    return Capacity(on_demand, for_peak, scaled, break_even, cheaper)


def _provisioned(write: float, read: float) -> float:
    return HOURS_A_MONTH * (write * WRITE_UNIT_HOUR_USD + read * READ_UNIT_HOUR_USD)


def aggregator_usd(average: Batching) -> float:
    """Return what the aggregator costs a month; that Lambda reads the stream costs nothing.

    https://aws.amazon.com/lambda/pricing/ and https://aws.amazon.com/dynamodb/pricing/on-demand/
    """
    return SECONDS_A_MONTH * average.calls_per_second * _call_usd(average.invocation_s, AGGREGATOR_GB)


def http_usd(requests: float) -> float:
    """Return what the HTTP API costs for so many requests a month: https://aws.amazon.com/api-gateway/pricing/."""
    first = min(requests, HTTP_FIRST_TIER)
    return first * PRICES["http"].usd + (requests - first) * HTTP_LATER_USD


def _usd(traffic: Traffic, posts: Sequence[Group], path: Units, like_call_s: float) -> dict[str, float]:
    """Return what a path costs a month, part by part, on demand; what only the stream path has is not in it."""
    likes, reads = traffic.likes_per_second * SECONDS_A_MONTH, traffic.reads_per_second * SECONDS_A_MONTH
    return {
        "dynamodb_writes": SECONDS_A_MONTH * path.write * PRICES["write"].usd,
        "dynamodb_reads": SECONDS_A_MONTH * path.read * PRICES["read"].usd,
        "dynamodb_storage": stored_bytes(traffic, posts) / GB * GB_MONTH_USD,
        "http_api": http_usd(likes + reads),
        "lambda_api": likes * _call_usd(like_call_s, API_GB) + reads * _call_usd(READ_CALL_S, API_GB),
    }


def _call_usd(duration_s: float, memory_gb: float) -> float:
    return PRICES["invocation"].usd + duration_s * memory_gb * PRICES["gb_s"].usd
