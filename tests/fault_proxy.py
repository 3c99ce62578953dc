"""microburst between a client and the embedded AWS: it speaks AWS's protocols, so that the SDK believes its faults."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx

from tallyctl.emulator import LOOPBACK, ROOT, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PROGRAM = ROOT / ".tools" / "microburst" / "bin" / "microburst"
START_S = 30

LOST_ANSWER = {"response": {"abort_bytes": 0}}
"""The request is applied; of its answer, nothing arrives."""
RESET = {"reset": True}
"""The connection breaks before the request arrives: nothing is applied."""
THROTTLED = {"error": {"code": "ThrottlingException"}}
DENIED = {"error": {"code": "AccessDeniedException"}}
"""An error that no retry mends: the function raises, in mid-batch."""


def late(milliseconds: int) -> dict[str, Any]:
    """Return the fault of a request that arrives so much later, even if the client has given up on it meanwhile."""
    return {"latency": milliseconds}


def trickling(kilobytes_a_second: float) -> dict[str, Any]:
    """Return the fault of a request that is applied, and whose answer comes no faster than this."""
    return {"response": {"bandwidth_kbps": kilobytes_a_second}}


class FaultProxy:
    """A running proxy; made by `fault_proxy`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def inject(self, *faults: Mapping[str, Any]) -> None:
        """Have these faults from now on, in place of all others; the first whose rule matches a request strikes."""
        rules = [{"service": "dynamodb", **fault} for fault in faults]
        httpx.post(f"{self.url}/_microburst/rules", json=rules, timeout=10).raise_for_status()

    def held(self) -> int:
        """Return how many requests have come and not been forwarded yet; of no use with faults that never forward."""
        requests = httpx.get(f"{self.url}/_microburst/stats", timeout=10).raise_for_status().json()["requests"]
        return int(requests["total"] - requests["forwarded"])

    def struck(self) -> Counter[tuple[str, str]]:
        """Return how many requests were struck since the start, by operation and kind of fault."""
        found: Counter[tuple[str, str]] = Counter()
        answer = httpx.get(f"{self.url}/_microburst/fired", params={"limit": "2000"}, timeout=10).raise_for_status()
        for event in answer.json():
            # Latencies are logged with the milliseconds: `latency:1200ms`.
            found[event["operation"], "latency" if event["action"].startswith("latency") else event["action"]] += 1
        return found


@contextlib.contextmanager
def fault_proxy(endpoint_url: str, log: Path) -> Iterator[FaultProxy]:
    """Have a proxy in front of an endpoint for as long as the block runs; it forwards all until it is told otherwise.

    Args:
        endpoint_url: what it forwards to.
        log: a file, replaced.
    """
    port = free_port()
    # By name: for a host with dots in it, microburst first reads the models of all services, which takes 8 s.
    url = f"http://localhost:{port}"
    with log.open("w") as output:
        process = subprocess.Popen(
            [PROGRAM, "--host", LOOPBACK, "--port", str(port), "--upstream", endpoint_url, "--resign"],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_for(url, process, log)
        yield FaultProxy(url)
    finally:
        process.kill()
        process.wait()


def environment() -> dict[str, str]:
    """Return the environment of the proxy: nothing in it leads to a real account."""
    # A signature covers the Host header, so that what the proxy sends on needs one of its own.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {**kept, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"{url}/_microburst/health", timeout=5).raise_for_status()
            return
        time.sleep(0.05)
    raise AssertionError(f"the fault proxy did not come up: {log.read_text()[-500:]}")
