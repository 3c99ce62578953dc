"""What a plan's figures mean for who deploys it, in sentences."""

import math

from tallyctl.comparison.costs import (
    LARGEST_ITEM_BYTES,
    PARTITION_READ_UNITS,
    PARTITION_WRITE_UNITS,
    write_units,
)
from tallyctl.planning import (
    LIKE_CALL_S,
    NEW_TABLE_READ_UNITS,
    NEW_TABLE_WRITE_UNITS,
    READ_CALL_S,
    Plan,
)

TABLE_QUOTA_UNITS = 40_000
"""Read units, and write units, of one table until a quota is raised:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html."""

API_REQUESTS_QUOTA = 10_000
"""A second, an account and Region: https://docs.aws.amazon.com/apigateway/latest/developerguide/limits.html."""

LAMBDA_CONCURRENCY_QUOTA = 1000
"""Invocations at a time: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html."""

API_THROTTLE = 2000
"""Requests a second: ThrottlingRateLimit in template.yaml."""


def advice(plan: Plan) -> list[str]:
    """Return what to do, and why, one entry a matter: pre-warming and the hottest post always, the rest if needed."""
    return [
        _prewarming(plan),
        _hot_key(plan),
        _hot_tally(plan),
        *_hot_item(plan),
        *_batches(plan),
        *_marks(plan),
        *_quotas(plan),
    ]


def _prewarming(plan: Plan) -> str:
    """Say whether and how to pre-warm.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/warm-throughput.html: it is charged, and cannot be
    taken back.
    """
    if not plan.prewarm:
        return "A new on-demand table takes the peak as it is: no pre-warming."
    write = max(NEW_TABLE_WRITE_UNITS, math.ceil(plan.units_peak.write))
    read = max(NEW_TABLE_READ_UNITS, math.ceil(plan.units_peak.read))
    return (
        f"Pre-warm a new table before its first peak, since it takes {NEW_TABLE_WRITE_UNITS:,} write and "
        f"{NEW_TABLE_READ_UNITS:,} read units a second: give SocialTable in the template a WarmThroughput of "
        f"{{WriteUnitsPerSecond: {write}, ReadUnitsPerSecond: {read}}} (AWS charges for that), or create it with as "
        "much provisioned capacity and then switch it to on-demand. Later it takes twice its last peak by itself."
    )


def _hot_key(plan: Plan) -> str:
    hottest = plan.hottest
    takes = f"The hottest post takes {hottest.write_units_per_second:,.1f} write units a second at the peak"
    if hottest.read_units_per_second:
        takes += f" and {hottest.read_units_per_second:,.1f} read units"
    if plan.key_shards == 1:
        return f"{takes}: one partition carries it."
    return (
        f"{takes}: as much as {plan.key_shards} partitions carry. DynamoDB splits a post's likes by sort key, but only "
        "under lasting load, and throttles meanwhile; pre-warming does not split one post. With partition keys "
        f"POST#id#0 to POST#id#{plan.key_shards - 1} they would be spread from the start; the product has no such "
        "keys, since a post and its likes share one."
    )


def _hot_tally(plan: Plan) -> str:
    """Say whether the hottest post's own item, which no split spreads, takes its writes."""
    hottest = plan.hottest
    tally = (
        f"Its tally is one item of {hottest.item_bytes:,.0f} bytes with its marks, and is written "
        f"{hottest.tally_writes_per_second:.2f} times a second, once a batch and shard: "
        f"{hottest.tally_units_per_second:,.1f} write units a second"
    )
    if hottest.tally_units_per_second <= PARTITION_WRITE_UNITS and hottest.item_bytes <= LARGEST_ITEM_BYTES:
        return f"{tally} of the {PARTITION_WRITE_UNITS:,} that an item takes."
    return (
        f"{tally}, which is more than an item takes ({PARTITION_WRITE_UNITS:,} units, {LARGEST_ITEM_BYTES:,} bytes). "
        "Each shard that its likes are spread over adds marks and writes: a longer --batch-window makes fewer writes."
    )


def _hot_item(plan: Plan) -> list[str]:
    notes = []
    if plan.hottest.read_units_per_second > PARTITION_READ_UNITS:
        notes.append("Reads of the hottest post are reads of one item, which no split spreads: cache them.")
    if plan.hottest.transaction_tally_units_per_second > PARTITION_WRITE_UNITS:
        notes.append(
            f"In transactions its tally would take {plan.hottest.transaction_tally_units_per_second:,.0f} write units "
            f"a second at the peak. An item takes {PARTITION_WRITE_UNITS:,}: it would throttle, and its transactions "
            "would conflict long before."
        )
    return notes


def _batches(plan: Plan) -> list[str]:
    size, window_s = plan.traffic.batch_size, plan.traffic.batch_window_s
    if not plan.peak.keeps_up:
        note = (
            f"At the peak the aggregator does not keep up, and tallies fall behind: it takes longer for a batch of "
            f"{size:,} records than the next one takes to fill. Take a larger --batch-size."
        )
    elif plan.peak.fills:
        note = (
            f"At the peak, batches of {size:,} records are full before their window of {window_s:g} s ends. How stale "
            "a tally is then hangs on how hot its shard is, and the figures for it are rougher."
        )
    else:
        return []
    return [note]


def _marks(plan: Plan) -> list[str]:
    alone, marked = write_units(plan.traffic.post_bytes), write_units(plan.quietest_bytes)
    if marked == alone:
        return []
    note = (
        f"With its marks even the quietest post has {plan.quietest_bytes:,.0f} bytes, so that each count of any post "
        f"costs {marked} write units or more instead of {alone}: keep posts smaller, or count on an item of its own "
        '("parent": "TALLY" in Counters).'
    )
    return [note]


def _quotas(plan: Plan) -> list[str]:
    traffic = plan.traffic
    requests = (traffic.likes_per_second + traffic.reads_per_second) * traffic.peak_factor
    calls = traffic.peak_factor * (traffic.likes_per_second * LIKE_CALL_S + traffic.reads_per_second * READ_CALL_S)
    notes = []
    if requests > API_THROTTLE:
        notes.append(f"The template lets {API_THROTTLE:,} requests a second through: raise its ThrottlingRateLimit.")
    for needed, what, quota in (
        (requests, "HTTP API requests a second", API_REQUESTS_QUOTA),
        (calls, "calls of Lambda functions at a time", LAMBDA_CONCURRENCY_QUOTA),
        (plan.units_peak.write, "write units a second of one table", TABLE_QUOTA_UNITS),
        (plan.units_peak.read, "read units a second of one table", TABLE_QUOTA_UNITS),
    ):
        if needed > quota:
            notes.append(f"Ask AWS to raise a quota: {needed:,.0f} {what} at the peak, {quota:,} by default.")
    return notes
