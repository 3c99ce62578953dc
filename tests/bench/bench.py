"""All benchmarks in one run: a table, the figures as JSON beside it, and charts of how they grow with the batch.

Medians throughout. What is compared takes turns within one run; each goal is shown beside what was measured, and a
goal that is missed is said to be, but fails nothing: the machine has a part in it.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import pygal
import typer
from rich.console import Console
from rich.table import Table

from bench import bench_applying, bench_grouping, bench_starting

CONSOLE = Console(stderr=True)


def measure() -> dict[str, Any]:
    """Run everything, one after the other; return all figures."""
    parts = {
        "grouping": bench_grouping.measure,
        "applying": bench_applying.measure,
        "imports_ms": bench_starting.measure_imports,
        "bundle": bench_starting.measure_bundle,
        "memory": bench_applying.measure_memory,
    }
    load_before = os.getloadavg()[0]
    figures: dict[str, Any] = {}
    for name, part in parts.items():
        with CONSOLE.status(name):
            figures[name] = part()
    figures["machine"] = {
        "python": platform.python_version(),
        "boto3": version("boto3"),
        "powertools": version("aws-lambda-powertools"),
        "cpus": os.cpu_count(),
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
    }
    return figures


def goals_of(figures: dict[str, Any]) -> list[dict[str, Any]]:
    """Return each goal with what was measured for it, and whether it was met."""
    grouping, memory = figures["grouping"][-1], figures["memory"][-1]
    most = {row["delay_ms"]: row for row in figures["applying"] if row["records"] == 1_000}
    imports = bench_starting.against_goals(figures["imports_ms"])
    loops = {delay: row["applied_per_s"] / row["loop_per_s"] for delay, row in most.items()}
    rows = (
        ("group 10,000 records, ms of CPU", grouping["group_cpu_ms"], "<=", 15),
        ("... Powertools' DynamoDBStreamEvent, times as long", grouping["data_classes_ratio"], ">=", 6),
        ("... Powertools' BatchProcessor, times as long", grouping["batch_processor_ratio"], ">=", 6),
        ("parents applied a second, answers at once", most[0]["applied_per_s"], ">=", 2_000),
        ("... times a boto3 resource loop", loops[0], None, None),
        ("parents applied a second, answers after 5 ms", most[5]["applied_per_s"], ">=", 1_000),
        ("... times a boto3 resource loop", loops[5], None, None),
        ("CPU of a parent applied, µs", most[0]["applied_cpu_us"], None, None),
        ("import of aggregator, times boto3 alone", imports["aggregator"], "<=", 1.5),
        ("import of likes_api, times boto3 alone", imports["likes_api"], "<=", 1.5),
        ("import of boto3 with a DynamoDB client, times boto3 alone", _client_ratio(figures), None, None),
        ("bundle zipped without boto3, MB", figures["bundle"]["zipped_without_boto3_mb"], "<=", 5),
        ("memory before a batch, MB", memory["loaded_mb"], None, None),
        ("peak memory with 10,000 records, MB", memory["peak_mb"], None, None),
    )
    return [
        {
            "what": what,
            "measured": measured,
            "goal": None if relation is None else f"{relation} {goal:,}",
            "met": None if relation is None else (measured >= goal if relation == ">=" else measured <= goal),
        }
        for what, measured, relation, goal in rows
    ]


def _client_ratio(figures: dict[str, Any]) -> float:
    return figures["imports_ms"]["boto3_client"] / figures["imports_ms"]["boto3"]


def show(figures: dict[str, Any], console: Console) -> None:
    """Print the figures: against the goals, and by size of batch."""
    machine = figures["machine"]
    caption = f"load of the machine before and after: {machine['load_before']:.1f}, {machine['load_after']:.1f}"
    against = Table(title="measured against the goals", caption=caption)
    for name in ("what", "measured", "goal", ""):
        against.add_column(name, justify="left" if name == "what" else "right")
    said = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}
    for row in figures["goals"]:
        against.add_row(row["what"], f"{row['measured']:,.2f}", row["goal"] or "", said[row["met"]])
    console.print(against)
    console.print(_by_size("grouping, ms a batch", figures["grouping"]))
    console.print(_by_size("applying, one record a parent", figures["applying"]))
    console.print(_by_size("peak memory", figures["memory"]))


def _by_size(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title)
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" for value in row.values()))
    return table


def draw(figures: dict[str, Any], folder: Path) -> list[Path]:
    """Draw how time and memory grow with the batch, as SVG without scripts; return the files."""
    grouping, memory = figures["grouping"], figures["memory"]
    sizes = [row["records"] for row in grouping]
    times = _chart("Milliseconds a batch, by its records", sizes, logarithmic=True)
    times.add("group", [row["group_ms"] for row in grouping])
    times.add("group, by DynamoDBStreamEvent", [row["data_classes_ms"] for row in grouping])
    times.add("group, by BatchProcessor", [row["batch_processor_ms"] for row in grouping])
    for delay in bench_applying.DELAYS_MS:
        rows = [row for row in figures["applying"] if row["delay_ms"] == delay]
        times.add(f"apply, answers after {delay} ms", [row["records"] / row["applied_per_s"] * 1000 for row in rows])
        times.add(f"resource loop, after {delay} ms", [row["records"] / row["loop_per_s"] * 1000 for row in rows])
    peaks = _chart("Peak memory in MB, by the records of a batch", sizes, logarithmic=False)
    peaks.add("handler loaded", [row["loaded_mb"] for row in memory])
    peaks.add("peak", [row["peak_mb"] for row in memory])
    files = [folder / "bench-time.svg", folder / "bench-memory.svg"]
    for chart, file in zip((times, peaks), files, strict=True):
        chart.render_to_file(str(file))
    return files


def _chart(title: str, sizes: list[int], *, logarithmic: bool) -> Any:
    chart = pygal.Line(
        title=title, logarithmic=logarithmic, js=[], legend_at_bottom=True, legend_at_bottom_columns=2, height=640
    )
    chart.x_labels = [f"{size:,}" for size in sizes]
    chart.value_formatter = lambda value: f"{value:,.4g}"
    return chart


def main(
    out: Annotated[Path, typer.Option(help="where bench.json and the charts go")] = Path(".benchmarks"),
    *,
    as_json: Annotated[bool, typer.Option("--json", help="print the JSON instead of the tables")] = False,
) -> None:
    """Measure everything that the README claims a figure for."""
    figures = measure()
    figures["goals"] = goals_of(figures)
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(figures, indent=2)
    (out / "bench.json").write_text(text + "\n")
    files = [out / "bench.json", *draw(figures, out)]
    if as_json:
        sys.stdout.write(text + "\n")
    else:
        show(figures, Console(width=130))
    CONSOLE.print("written:", *files)


if __name__ == "__main__":
    typer.run(main)
