"""Applying parents: the product's own client and threads against a loop that sends one update a record.

Both talk to an endpoint in another process that answers each update alike. Run as a program, it is the process that is
measured, and prints JSON.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measuring import SIZES, busy_batch, scattered_batch, side_by_side
from builders import NOW

if TYPE_CHECKING:
    from collections.abc import Iterator

DELAYS_MS = (0, 5)
MOST_IN_THE_LOOP = 1_000
"""The loop's rate does not depend on how many records there are, and 10,000 of them would take a minute a round."""

_HERE = Path(__file__).parent


@contextmanager
def endpoint(delay_ms: float) -> Iterator[dict[str, str]]:
    """Start an endpoint; give the environment in which the handlers use it."""
    command = [sys.executable, _HERE / "endpoint.py", "--delay-ms", str(delay_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            url = f"http://127.0.0.1:{int(process.stdout.readline())}"
            yield {**handler_environment(), "AWS_ENDPOINT_URL": url}
        finally:
            process.terminate()


def handler_environment() -> dict[str, str]:
    """Return the environment that the handlers need, and nothing that concerns a real account."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **kept,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "TABLE_NAME": "Social",
        "COUNTING_PATH": "stream",
        "FAILED_BATCHES_URL": "https://sqs.eu-west-1.amazonaws.com/111122223333/failed",
        "POWERTOOLS_LOG_LEVEL": "CRITICAL",
    }


def measure() -> list[dict[str, Any]]:
    """Return parents a second for each delay and size of batch."""
    return [row for delay in DELAYS_MS for row in _in_fresh_process(delay, "rates")]


def measure_memory() -> list[dict[str, Any]]:
    """Return the peak memory of a process that applies one batch, for each size of batch."""
    return [_in_fresh_process(0, "memory", str(size)) for size in SIZES]


def _in_fresh_process(delay_ms: float, *arguments: str) -> Any:
    with endpoint(delay_ms) as environment:
        command = [sys.executable, "-m", "bench.bench_applying", *arguments]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    rows = json.loads(done.stdout)
    if isinstance(rows, list):
        return [{"delay_ms": delay_ms, **row} for row in rows]
    return rows


def _rates() -> list[dict[str, Any]]:
    """Measure in this process; the endpoint is in the environment."""
    import boto3  # noqa: PLC0415 - the same

    import aggregator  # noqa: PLC0415 - what its import costs is for another process to measure

    batches = replace(aggregator._batches, now=lambda: float(NOW))
    table = boto3.resource("dynamodb").Table("Social")
    rows = []
    for size in SIZES:
        event = scattered_batch(size)
        looped = event["Records"][:MOST_IN_THE_LOOP]

        def apply(event: dict[str, Any] = event, size: int = size) -> None:
            report = batches.apply(event, lambda: 900_000)
            assert report.figures["counted"] == report.figures["writes"] == size, report

        def loop(looped: list[dict[str, Any]] = looped) -> None:
            for record in looped:
                table.update_item(
                    Key={"PK": record["dynamodb"]["Keys"]["PK"]["S"], "SK": "META"},
                    UpdateExpression="ADD likeTally :d",
                    ExpressionAttributeValues={":d": 1},
                )

        # The smallest batch has warmed up clients and connections; the largest ones take long enough by themselves.
        rounds = min(5, max(1, 3_000 // size))
        times = side_by_side({"applied": apply, "loop": loop}, rounds, warm_up=size == SIZES[0])
        rows.append(
            {
                "records": size,
                "applied_per_s": size / times["applied"].median_s,
                "applied_cpu_us": times["applied"].median_cpu_s / size * 1e6,
                "loop_per_s": len(looped) / times["loop"].median_s,
                "loop_cpu_us": times["loop"].median_cpu_s / len(looped) * 1e6,
            }
        )
    return rows


def _memory(size: int) -> dict[str, Any]:
    """Apply one batch in this process, decoded from JSON as Lambda does it; return the peaks before and after."""
    import aggregator  # noqa: PLC0415 - part of what is measured

    text = json.dumps(busy_batch(size))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = aggregator._batches.apply(json.loads(text), lambda: 900_000)
    assert report.figures["received"] == report.figures["counted"] == size, report
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux gives KiB.
    return {"records": size, "loaded_mb": before * 1024 / 1e6, "peak_mb": after * 1024 / 1e6}


if __name__ == "__main__":
    what = sys.argv[1]
    print(json.dumps(_rates() if what == "rates" else _memory(int(sys.argv[2]))))  # noqa: T201 - for the parent process
