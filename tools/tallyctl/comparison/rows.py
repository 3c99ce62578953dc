"""A comparison's figures as text, one row a path: the terminal, the report and docs/comparison.md show the same.

All of it is made from the JSON objects that `tallyctl compare --json` prints.
"""

from collections.abc import Mapping
from typing import Any

COLUMNS = (
    "path",
    "write units a like",
    "read units a read",
    "$ a million likes",
    "round trips",
    "staleness p50, p99 (s)",
    "conflicts",
    "hot post's likes/s",
    "drift after faults",
)
"""The read is one of the post with the most likes; conflicts are those of all operations together."""

POSTGRES_COLUMNS = (
    "path",
    "round trips",
    "drift after faults",
    "operations a second",
    "latency p50, p99 (ms)",
    "conflicts",
    "lock waiters",
    "staleness p99 (s)",
)
"""All but the first three are measured."""

CROSS_CHECK_COLUMNS = ("path", "operation", "our units", "the emulator's", "requests")


def rows(figures: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row a path of a comparison, under COLUMNS."""
    return [
        (
            name,
            f"{path['write_units_per_like']:.3f}",
            f"{path['read_units_per_read']:.1f}",
            f"{path['usd_per_million_likes']:.2f}",
            f"{path['round_trips']:.2f}",
            f"{path['staleness_p50_s']:.1f}, {path['staleness_p99_s']:.1f}",
            f"{path['conflicts']:,}",
            f"{path['ceiling_likes_per_second']:,.0f}",
            f"{path['drift_after_faults']:,}",
        )
        for name, path in figures["paths"].items()
    ]


def postgres_rows(postgres: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row a path of PostgreSQL that could be run, under POSTGRES_COLUMNS."""
    return [
        (
            name,
            str(row["seeded"]["round_trips"]),
            str(row["seeded"]["drift_after_faults"]),
            f"{row['measured']['operations_per_second']:,}",
            f"{row['measured']['latency_p50_ms']:.1f}, {row['measured']['latency_p99_ms']:.1f}",
            f"{row['measured']['conflicts']:,}",
            "-" if row["measured"]["lock_waiters"] is None else f"{row['measured']['lock_waiters']:.2f}",
            f"{row['measured']['staleness_p99_s']:.2f}",
        )
        for name, row in postgres.items()
        if "unavailable" not in row
    ]


def postgres_caption(postgres: Mapping[str, Any]) -> str:
    """Return what the rows of PostgreSQL are, or the sentence that says why there are none."""
    first = next(iter(postgres.values()))
    if "unavailable" in first:
        return f"PostgreSQL: {first['unavailable']}"
    measured = first["measured"]
    return (
        f"{measured['server']}, the first {first['seeded']['operations']:,} operations by {measured['concurrency']} "
        "clients as fast as they go. Measured on this machine, on a server with fsync on its own disk: good for "
        "comparing these rows with each other, and with nothing else."
    )


def cross_check_rows(cross_check: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row a kind of request that the emulator charges otherwise, under CROSS_CHECK_COLUMNS."""
    return [
        (found["path"], found["operation"], found["ours"], found["emulator"], str(found["requests"]))
        for found in cross_check["differences"]
    ]


def cross_check_caption(cross_check: Mapping[str, Any]) -> str:
    """Return what came of the cross-check in one sentence, and how long operations took there, as ratios."""
    milliseconds = cross_check["measured"]["milliseconds_p50"]
    ratios = ", ".join(
        f"{name} {value / milliseconds['PutItem']:.1f}" for name, value in milliseconds.items() if name != "PutItem"
    )
    return (
        f"Of {cross_check['requests']} requests, the emulator charged or refused {cross_check['same']} as we do; of "
        f"{cross_check['uncharged']} refused ones only the error can be compared. Times there, against a PutItem's: "
        f"{ratios}."
    )


def objections(figures: Mapping[str, Any]) -> list[str]:
    """Return a line a path that something speaks against."""
    return [
        f"{name} {' and '.join(path['objections'])}" for name, path in figures["paths"].items() if path["objections"]
    ]


def break_even(figures: Mapping[str, Any], name: str) -> str:
    """Return where the cheaper one of the stream and the transaction changes.

    Args:
        figures: a comparison.
        name: `cost_by_rate` or `cost_by_posts`.
    """
    how, unit = {
        "cost_by_rate": ("At other rates", "likes a second"),
        "cost_by_posts": (f"With {figures['rate']:,g} likes a second spread evenly over some posts", "posts"),
    }[name]
    series = figures["series"][name]
    usd, where = series["usd_per_million_likes"], series["break_even"]
    cheaper, other = sorted(usd, key=lambda path: usd[path][0])
    if where is None:
        return f"{how}, {cheaper} is cheaper than {other} throughout."
    return f"{how}, {cheaper} is cheaper than {other} below {where:.2g} {unit}, and dearer above."


def assumptions(figures: Mapping[str, Any]) -> list[str]:
    """Return what the figures rest on, a sentence each; what a reader must know before taking them for AWS's."""
    assumed = figures["assumptions"]
    seconds, faults = assumed["seconds"], figures["faults"]
    prices = ", ".join(f"{price['unit']} {1e6 * price['usd']:g}" for price in assumed["prices"].values())
    planted = ", ".join(f"{kind} {count}" for kind, count in faults["planted"].items())
    return [
        "The product's own code and the others' run on a table in memory, in simulated time. Nothing ran on AWS.",
        (
            f"Units are by DynamoDB's rules. Prices are those of us-east-1 since "
            f"{assumed['prices']['write']['since']}, in dollars a million, and were not read again: {prices}. Tax, "
            "free tier, storage, logs and data transfer are left out."
        ),
        (
            f"Each like is looked at {assumed['reads_per_like']} times, as often on a post as it has likes; that is in "
            "the dollars."
        ),
        (
            f"A write or read takes {1000 * seconds['write_or_read_s']:.2f} ms and a transaction "
            f"{1000 * seconds['transaction_s']:.1f} ms (A. DeBrie, 2020, medians). Conflicts are modelled, since no "
            f"emulator makes any: a transaction is in the way of others on its items for "
            f"{1000 * seconds['transaction_holds_an_item_s']:.2f} ms, the difference of the two, and an optimistic "
            f"write for {1000 * seconds['optimistic_window_s']:.2f} ms. A refused request is not sent again by its "
            "caller."
        ),
        (
            f"The aggregator updates {seconds['parents_per_second']} parents a second (measured here: make bench), "
            f"starts {1000 * seconds['invoke_s']:.0f} ms after its batch is complete, and anew, in "
            f"{seconds['cold_start_s']} s, when it was idle for {seconds['cold_after_s']:.0f} s (assumed)."
        ),
        (
            f"The faults are one schedule for all paths over {faults['operations']:,} operations: {planted}. Drift is "
            "the sum over all posts of how far the tally is from the likes in the table."
        ),
        (
            "A hot post's ceiling is the least of what a partition takes (1,000 write units a second), what goes "
            "through with one request in a hundred refused, and what one invocation at a time counts. It is a model."
        ),
    ]
