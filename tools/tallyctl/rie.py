"""The built bundle in AWS's own Lambda runtime, without Docker.

The SAM CLI's package ships the Runtime Interface Emulator, which is the Lambda service's side of an invocation, and
`awslambdaric` is the runtime's side: together they decode, time and answer as on AWS, but run this machine's Python.
"""

import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx

from tallyctl.emulator import LOOPBACK, ROOT, free_port
from tallyctl.errors import TallyctlError

_START_S = 20
_GRACE_S = 10
_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class Function:
    """What to run, and how."""

    bundle: Path
    """The folder that `sam build` made for it."""
    handler: str
    """Such as `aggregator.handler`."""
    environment: Mapping[str, str]
    """The function's own variables, and what it needs to find its AWS."""
    timeout_s: int = 60
    memory_mb: int = 1769


@dataclass(frozen=True, slots=True)
class Answer:
    """What an invocation gave."""

    payload: Any
    """The answer, from JSON. Of a failure it is an object with `errorType` and `errorMessage`, as Lambda has it."""

    @property
    def failed(self) -> bool:
        """Whether the function raised, or ran out of time."""
        return isinstance(self.payload, dict) and ("errorType" in self.payload or "errorMessage" in self.payload)


class Runtime:
    """A running function; made by `runtime`."""

    def __init__(self, url: str, timeout_s: int, log: IO[str]) -> None:
        self._url = url
        self._timeout_s = timeout_s
        self._log = log

    def invoke(self, event: Mapping[str, Any]) -> Answer:
        """Invoke the function, once, and wait for its answer.

        Raises:
            TallyctlError: the runtime itself gave no answer.
        """
        try:
            answer = httpx.post(self._url, json=event, timeout=self._timeout_s + _GRACE_S)
        except httpx.TransportError as error:
            raise TallyctlError(f"the Lambda runtime gave no answer: {error}; it said: {self.log()[-500:]}") from error
        try:
            return Answer(json.loads(answer.text))
        except ValueError:
            # The emulator reports a time-out as a plain line of text.
            return Answer({"errorType": "Sandbox.Timedout", "errorMessage": answer.text.strip()})

    def log(self) -> str:
        """Return what the function and its runtime have logged so far."""
        self._log.flush()
        return Path(self._log.name).read_text()


@contextlib.contextmanager
def runtime(function: Function) -> Iterator[Runtime]:
    """Run a function for as long as the block lasts.

    Raises:
        TallyctlError: the emulator is not installed, the bundle is not built, or it does not come up.
    """
    if not function.bundle.is_dir():
        raise TallyctlError(f"there is no bundle in {function.bundle}: run `make build`")
    port, api_port = free_port(), free_port()
    command = [str(emulator_program()), "--runtime-interface-emulator-address", f"{LOOPBACK}:{port}"]
    command += ["--runtime-api-address", f"{LOOPBACK}:{api_port}"]
    command += [sys.executable, "-m", "awslambdaric", function.handler]
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        process = subprocess.Popen(
            command,
            cwd=function.bundle,
            env=environment(function),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait_for(port, process, Path(log.name))
            url = f"http://{LOOPBACK}:{port}/2015-03-31/functions/function/invocations"
            yield Runtime(url, function.timeout_s, log)
        finally:
            # The runtime that the emulator started belongs to its process group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def emulator_program() -> Path:
    """Return the Runtime Interface Emulator for this machine.

    Raises:
        TallyctlError: the SAM CLI is not installed, or ships none for this kind of machine.
    """
    architecture = _ARCHITECTURES.get(platform.machine().lower())
    if platform.system() != "Linux" or architecture is None:
        raise TallyctlError("the Lambda Runtime Interface Emulator runs on Linux only (x86_64 or arm64)")
    packages = ROOT / ".tools" / "sam" / "lib"
    found = sorted(packages.glob(f"python*/site-packages/samcli/local/rapid/aws-lambda-rie-{architecture}"))
    if not found:
        raise TallyctlError(f"the SAM CLI is not installed ({packages.relative_to(ROOT)}): run `make setup`")
    return found[-1]


def environment(function: Function) -> dict[str, str]:
    """Return the whole environment of a function: its own variables and Lambda's, and nothing of the caller's."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "en_US.UTF-8",
        "TZ": ":UTC",
        # Before the packages of this environment, so that the function imports what Lambda would.
        "PYTHONPATH": str(function.bundle),
        "LAMBDA_TASK_ROOT": str(function.bundle),
        "AWS_LAMBDA_FUNCTION_NAME": function.handler.partition(".")[0],
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_TIMEOUT": str(function.timeout_s),
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        **function.environment,
    }


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        time.sleep(0.02)
    raise TallyctlError(f"the Lambda runtime did not come up: {log.read_text()[-500:]}")
