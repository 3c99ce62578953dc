"""Play many schedules on all cores, without and with audits: `make simulate SEEDS=1000000`."""

import functools
import multiprocessing
import os
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

CHUNK = 50


def play(first: int, *, audits: bool) -> list[int]:
    """Return the seeds of a chunk whose schedules go wrong."""
    # In the worker: the product sets itself up there.
    from simulation.auditing import AuditedWorld, AuditSchedule  # noqa: PLC0415
    from simulation.world import Schedule, World, failure_of  # noqa: PLC0415

    kind, world = (AuditSchedule, AuditedWorld) if audits else (Schedule, World)
    return [seed for seed in range(first, first + CHUNK) if failure_of(kind.from_seed(seed), world)]


def main(
    seeds: Annotated[int, typer.Option(help="How many schedules to play.", min=1)] = 10_000,
    first: Annotated[int, typer.Option(help="The first seed; the test suite plays some from 0 on.", min=0)] = 0,
    processes: Annotated[int, typer.Option(help="How many at a time.", min=1)] = os.cpu_count() or 1,
    *,
    audits: Annotated[bool, typer.Option("--audits", help="With audits and repairs at random moments.")] = False,
) -> None:
    """Play seeded schedules of faults through the real handler; exit with 1 and the shortest one if any goes wrong."""
    chunks = range(first, first + seeds, CHUNK)
    columns = TextColumn("schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    wrong: list[int] = []
    context = multiprocessing.get_context("spawn")
    with Progress(*columns, console=Console(stderr=True)) as progress, context.Pool(processes) as pool:
        bar = progress.add_task("", total=len(chunks) * CHUNK)
        for found in pool.imap_unordered(functools.partial(play, audits=audits), chunks):
            wrong += found
            progress.advance(bar, CHUNK)
    what = "schedules with audits" if audits else "schedules"
    typer.echo(f"{len(chunks) * CHUNK} {what} from seed {first} on, {len(wrong)} wrong")
    if wrong:
        from simulation.auditing import AuditedWorld, AuditSchedule  # noqa: PLC0415 - as above
        from simulation.world import Schedule, World, shortest, story  # noqa: PLC0415 - as above

        kind, world = (AuditSchedule, AuditedWorld) if audits else (Schedule, World)
        short = shortest(kind.from_seed(min(wrong)), world)
        typer.echo(f"wrong seeds: {sorted(wrong)[:20]}\n{story(short, world)}")
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
