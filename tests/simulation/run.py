"""Play many schedules on all cores: `make simulate SEEDS=1000000`."""

import multiprocessing
import os
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

CHUNK = 50


def play(first: int) -> list[int]:
    """Return the seeds of a chunk whose schedules go wrong."""
    from simulation.world import Schedule, failure_of  # noqa: PLC0415 - in the worker: the product sets itself up there

    return [seed for seed in range(first, first + CHUNK) if failure_of(Schedule.from_seed(seed))]


def main(
    seeds: Annotated[int, typer.Option(help="How many schedules to play.", min=1)] = 10_000,
    first: Annotated[int, typer.Option(help="The first seed; the test suite plays 0 to 2399.", min=0)] = 0,
    processes: Annotated[int, typer.Option(help="How many at a time.", min=1)] = os.cpu_count() or 1,
) -> None:
    """Play seeded schedules of faults through the real handler; exit with 1 and the shortest one if any goes wrong."""
    chunks = range(first, first + seeds, CHUNK)
    columns = TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    wrong: list[int] = []
    context = multiprocessing.get_context("spawn")
    with Progress(*columns, console=Console(stderr=True)) as progress, context.Pool(processes) as pool:
        bar = progress.add_task("", total=len(chunks) * CHUNK)
        for found in pool.imap_unordered(play, chunks):
            wrong += found
            progress.advance(bar, CHUNK)
    typer.echo(f"{len(chunks) * CHUNK} schedules from seed {first} on, {len(wrong)} wrong")
    if wrong:
        from simulation.world import Schedule, shortest, story  # noqa: PLC0415 - as above

        typer.echo(f"wrong seeds: {sorted(wrong)[:20]}\n{story(shortest(Schedule.from_seed(min(wrong))))}")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
