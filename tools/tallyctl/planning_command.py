"""`tallyctl plan`: what it takes and how it is shown."""

import json
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.table import Table

from tallyctl.planning import Plan, Staleness, Traffic, plan
from tallyctl.planning_advice import advice

_DEFAULT = Traffic(likes_per_second=1)


def plan_command(  # noqa: PLR0913 - the options of the command line
    *,
    likes_per_second: Annotated[float, typer.Option(help="Likes and unlikes a second, on average.")],
    posts: Annotated[int, typer.Option(help="Posts that are liked.")] = _DEFAULT.posts,
    skew: Annotated[
        float, typer.Option(help="Zipf's exponent: 0, all posts are alike; 1, the n-th gets 1/n of the first.")
    ] = _DEFAULT.skew,
    peak_factor: Annotated[float, typer.Option(help="The busiest seconds against the average.")] = _DEFAULT.peak_factor,
    like_bytes: Annotated[int, typer.Option(help="Size of a like, attribute names included.")] = _DEFAULT.like_bytes,
    post_bytes: Annotated[int, typer.Option(help="Size of a post, without its marks.")] = _DEFAULT.post_bytes,
    batch_window: Annotated[float, typer.Option(help="BatchWindowSeconds of the stack.")] = _DEFAULT.batch_window_s,
    reads_per_second: Annotated[
        float, typer.Option(help="Posts read through the API a second, on average.")
    ] = _DEFAULT.reads_per_second,
    batch_size: Annotated[int, typer.Option(help="Records that fill a batch.")] = _DEFAULT.batch_size,
    likes_kept: Annotated[
        int | None, typer.Option(help="Likes in the table.", show_default="those of a month")
    ] = _DEFAULT.likes_kept,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, everything else on standard error.")
    ] = False,
) -> None:
    """Say what a traffic takes: capacity, partitions, pre-warming, how stale tallies are, and what each path costs.

    By formulas, each with its source, in tools/tallyctl/planning.py; prices are those of us-east-1, without tax, free
    tier, logs, traces and data transfer. Nothing is asked of AWS.
    """
    traffic = Traffic(
        likes_per_second=likes_per_second,
        posts=posts,
        skew=skew,
        peak_factor=peak_factor,
        like_bytes=like_bytes,
        post_bytes=post_bytes,
        batch_window_s=batch_window,
        reads_per_second=reads_per_second,
        batch_size=batch_size,
        likes_kept=likes_kept,
    )
    planned = plan(traffic)
    if as_json:
        print(json.dumps(planned.figures() | {"notes": advice(planned)}))
    else:
        Console().print(shown(planned))


def shown(planned: Plan) -> Group:
    """Return a plan as tables and sentences that a person can read."""
    load = Table(title="The stream path, by load")
    load.add_column("")
    load.add_column("average", justify="right")
    load.add_column("peak", justify="right")
    traffic, average, peak = planned.traffic, planned.average, planned.peak
    for label, usual, most in (
        ("likes a second", traffic.likes_per_second, traffic.likes_per_second * traffic.peak_factor),
        ("write units a second", planned.units.write, planned.units_peak.write),
        ("read units a second", planned.units.read, planned.units_peak.read),
        ("parents a batch", average.parents, peak.parents),
        ("batches a second", average.calls_per_second, peak.calls_per_second),
    ):
        load.add_row(label, f"{usual:,.1f}", f"{most:,.1f}")
    load.add_row("staleness p50, p99 (s)", _staleness(average.staleness), _staleness(peak.staleness))

    table = Table(title="The table", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    capacity = planned.capacity
    for name, value in (
        ("partitions", f"{planned.partitions:,}"),
        ("  by throughput, by size", f"{planned.partitions_by_throughput:,}, {planned.partitions_by_size:,}"),
        ("shards of the stream", f"{planned.shards:,}"),
        ("key shards of the hottest post", f"{planned.key_shards:,}"),
        ("pre-warm a new table", "yes" if planned.prewarm else "no"),
        ("reads and writes on demand (USD a month)", f"{capacity.on_demand:,.2f}"),
        ("  provisioned for the peak", f"{capacity.provisioned_for_peak:,.2f}"),
        ("  with auto scaling, at best", f"{capacity.provisioned_auto_scaling:,.2f}"),
        (f"cheaper at this peak (break-even: {capacity.break_even_peak_factor:.2f})", capacity.cheaper),
    ):
        table.add_row(name, value)

    cost = Table(title="USD a month, on demand")
    cost.add_column("")
    cost.add_column("stream", justify="right")
    cost.add_column("transaction", justify="right")
    for part, usd in planned.usd_stream.items():
        cost.add_row(part.replace("_", " "), f"{usd:,.2f}", f"{planned.usd_transaction.get(part, 0):,.2f}")
    totals = sum(planned.usd_stream.values()), sum(planned.usd_transaction.values())
    cost.add_section()
    cost.add_row("in all", *(f"{usd:,.2f}" for usd in totals))
    return Group(load, table, cost, *(f"- {note}" for note in advice(planned)))


def _staleness(staleness: Staleness | None) -> str:
    return "ever more" if staleness is None else f"{staleness.p50:.2f}, {staleness.p99:.2f}"
