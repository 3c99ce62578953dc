"""What a cold start pays for: how long the handlers take to import, and how large the bundle is."""

from __future__ import annotations

import io
import statistics
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

from bench.bench_applying import handler_environment
from tallyctl.bundle import folder

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS = 9
FROM_THE_RUNTIME = ("boto3", "botocore", "s3transfer")
_PROGRAMS = {
    "boto3": "import boto3",
    # What a handler cannot do without: the client that it calls.
    "boto3_client": "import boto3; boto3.client('dynamodb')",
    "aggregator": "import aggregator",
    "likes_api": "import likes_api",
}


def measure_imports() -> dict[str, float]:
    """Return the medians in milliseconds, each import in a fresh process, all of them taking turns."""
    times: dict[str, list[float]] = {name: [] for name in _PROGRAMS}
    for number in range(ROUNDS + 1):
        for name, program in _PROGRAMS.items():
            timed = f"import time; t = time.perf_counter()\n{program}\nprint(time.perf_counter() - t)"
            command = [sys.executable, "-c", timed]
            done = subprocess.run(
                command, env=handler_environment(), stdout=subprocess.PIPE, check=True, text=True, timeout=60
            )
            if number:  # the first round fills the caches
                times[name].append(float(done.stdout) * 1000)
    return {name: statistics.median(taken) for name, taken in times.items()}


def measure_bundle() -> dict[str, float]:
    """Return the sizes in MB of what `make build` built, as it is and zipped, and zipped without boto3."""
    built = folder("AggregatorFunction")
    files = sorted(path for path in built.rglob("*") if path.is_file())
    ours = [path for path in files if not path.relative_to(built).parts[0].startswith(FROM_THE_RUNTIME)]
    return {
        "unzipped_mb": sum(path.stat().st_size for path in files) / 1e6,
        "zipped_mb": _zipped(files, built) / 1e6,
        "zipped_without_boto3_mb": _zipped(ours, built) / 1e6,
    }


def _zipped(files: list[Path], root: Path) -> int:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            archive.write(path, path.relative_to(root))
    return len(target.getvalue())


def against_goals(imports: dict[str, float]) -> dict[str, Any]:
    """Return how long each handler takes to import, as a multiple of boto3 alone."""
    return {name: imports[name] / imports["boto3"] for name in ("aggregator", "likes_api")}
