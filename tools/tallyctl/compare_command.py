"""`tallyctl compare`: what it takes, what it runs, and how it is shown."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tallyctl import emulator, local
from tallyctl.comparison import compare as comparisons
from tallyctl.comparison import postgres, rows
from tallyctl.comparison.crosscheck import crosscheck
from tallyctl.comparison.report import page
from tallyctl.comparison.workloads import WORKLOADS, Operation
from tallyctl.comparison.workloads import operations as operations_of
from tallyctl.errors import TallyctlError
from tallyctl.stack import connect

ALL = "all"
DEFAULT_WORKLOAD = "social"
"""The one that a social network has. All of them take four times as long, and answer for three that are not asked."""

REPORT = "index.html"

_ANSWER_S = 5
_SERIES = ("cost_by_rate", "cost_by_posts")


def compare_command(  # noqa: PLR0913 - the options of the command line
    *,
    workload: Annotated[
        str, typer.Option(help=f"Which likes: {', '.join(WORKLOADS)}; or {ALL} of these.")
    ] = DEFAULT_WORKLOAD,
    operations: Annotated[int, typer.Option(help="Likes and unlikes.")] = comparisons.OPERATIONS,
    rate: Annotated[float, typer.Option(help="Of them, so many a second.")] = comparisons.RATE,
    batch_window: Annotated[float, typer.Option(help="BatchWindowSeconds of the stack.")] = comparisons.WINDOW_S,
    seed: Annotated[
        int, typer.Option(help="Of everything left to chance: the same seed gives the same figures.")
    ] = comparisons.SEED,
    report: Annotated[
        Path | None, typer.Option(help=f"Write the page {REPORT} with charts to this folder.", show_default=False)
    ] = None,
    with_postgres: Annotated[
        bool, typer.Option("--postgres/--no-postgres", help="Run the paths on PostgreSQL as well.")
    ] = True,
    cross_check: Annotated[
        bool, typer.Option("--cross-check", help="Compare our write and read units with a running emulator's.")
    ] = False,
    endpoint_url: Annotated[
        str, typer.Option(envvar="AWS_ENDPOINT_URL", help="Of the emulator, for --cross-check alone.")
    ] = f"http://{emulator.LOOPBACK}:{emulator.DEFAULT_PORT}",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on standard output, everything else on standard error.")
    ] = False,
) -> None:
    """Compare the ways to keep a like count: what each costs, how late and how exact it is, what stops it.

    Each path's own code runs on a table in memory, in simulated time, without faults and with a schedule of faults that
    is the same for all. Nothing is asked of AWS. The paths on PostgreSQL run on a server that is started for them; what
    is measured there is of this machine, and differs from run to run.

    vote: ten posts. social: 100,000 posts, the n-th with 1/n of the likes of the first. viral: one post. churn: the
    same users like and unlike.
    """
    if report is not None:
        _make_folder(report)  # now, rather than when all is done
    checked = _cross_checked(endpoint_url, seed) if cross_check else None
    found = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        for name in WORKLOADS if workload == ALL else [workload]:
            figures = comparisons.compare(name, operations, rate, batch_window, seed, _bar(bars, name)).figures()
            if with_postgres:
                likes = operations_of(name, min(operations, postgres.DEFAULT_OPERATIONS), rate, seed)
                figures["postgres"] = _on_postgres(likes, _bar(bars, f"{name} on PostgreSQL"))
            found.append(figures)
    if report is not None:
        (report / REPORT).write_text(page(found, checked), encoding="utf-8")
    if as_json:
        every = {"workload": ALL, "workloads": {one["workload"]: one for one in found}}
        figures = every if workload == ALL else found[0]
        print(json.dumps(figures | ({} if checked is None else {"cross_check": checked})))
        return
    console = Console(highlight=False)
    for figures in found:
        console.print(shown(figures))
    if checked is not None:
        lines = rows.cross_check_rows(checked)
        console.print(_table("Our units against the emulator's", rows.CROSS_CHECK_COLUMNS, lines))
        console.print(rows.cross_check_caption(checked))
    console.print("What this rests on:", *(f"- {line}" for line in rows.assumptions(found[0])), "", sep="\n")
    for figures in found:
        console.print(figures["recommendation"], style="bold")
    if report is not None:
        console.print(f"\nThe same with charts: {report / REPORT}", soft_wrap=True)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TallyctlError(f"--report {folder}: {error.strerror}") from error


def shown(figures: Mapping[str, Any]) -> Group:
    """Return a comparison as tables and sentences that a person can read."""
    title = (
        f"{figures['workload']}: {figures['operations']:,} operations, {figures['rate']:,g} a second, "
        f"batch window {figures['batch_window_s']:g} s, seed {figures['seed']}"
    )
    parts: list[RenderableType] = [
        _table(title, rows.COLUMNS, rows.rows(figures)),
        *(f"- {line}" for line in (*rows.objections(figures), *(rows.break_even(figures, name) for name in _SERIES))),
    ]
    if "postgres" in figures:
        parts += ["", _table("On PostgreSQL", rows.POSTGRES_COLUMNS, rows.postgres_rows(figures["postgres"]))]
        parts += [rows.postgres_caption(figures["postgres"])]
    return Group(*parts, "")


def _table(title: str, columns: Sequence[str], lines: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
    for column, *cells in zip(columns, *lines, strict=True):
        # Headings are broken between words, so that a table is not wider than 80 characters.
        width = max(map(len, (*column.split(), *cells)))
        table.add_column(column, justify="right" if table.columns else "left", vertical="bottom", width=width)
    for line in lines:
        table.add_row(*line)
    return table


def _bar(bars: Progress, name: str) -> comparisons.Progress:
    """Return what moves a bar of its own, and says beside it what is being done."""
    task = bars.add_task(name, total=None, visible=False)  # until it begins: an error has no bar above it

    def move(what: str, done: int, of: int) -> None:
        bars.update(task, description=f"{name}: {what}", completed=done, total=of, visible=True)

    return move


def _on_postgres(likes: Sequence[Operation], told: comparisons.Progress) -> dict[str, dict[str, Any]]:
    """Run the paths on PostgreSQL. Where its server does not come up, their rows say so: the others are still good."""
    try:
        return postgres.run(likes, progress=told)
    except TallyctlError as error:
        return {name: {"unavailable": str(error)} for name in postgres.PATHS}


def _cross_checked(endpoint_url: str, seed: int) -> dict[str, Any]:
    place = connect(endpoint_url, local.REGION)
    if place.endpoint_url is not None:
        # boto3 would try for a long time.
        try:
            httpx.get(place.endpoint_url, timeout=_ANSWER_S)
        except httpx.TransportError as error:
            raise TallyctlError(
                f"--cross-check needs a running emulator, and nothing answers at {endpoint_url} ({error}): "
                "`tallyctl local up` starts one"
            ) from error
    return crosscheck(place, seed).figures()
