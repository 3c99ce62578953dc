"""The embedded AWS: MiniStack, started in an environment of its own, watched and stopped.

What is known of one started here is in `.local/<port>/`: its log, its process id, and a lock that the process itself
holds. Whoever finds the lock taken knows that the process is alive and that the id is still its own; when it dies, in
whatever way, the kernel lets go of the lock.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import httpx

from tallyctl.errors import TallyctlError

ROOT = Path(__file__).resolve().parents[2]
"""The project's folder: tallyctl is installed from it, in editable mode."""

LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 4566

_PROGRAM = ROOT / ".tools" / "ministack" / "bin" / "ministack"
_START_S = 60
_STOP_S = 10


class Listener(Enum):
    """What answers on a port."""

    NOBODY = "nobody"
    AWS = "an emulator of AWS"
    OTHER = "something else"


def listener(port: int) -> Listener:
    """Return what listens on a port of this machine: LocalStack and MiniStack both answer LocalStack's health path."""
    with socket.socket() as probe:
        probe.settimeout(2)
        if probe.connect_ex((LOOPBACK, port)):
            return Listener.NOBODY
    try:
        health = httpx.get(f"http://{LOOPBACK}:{port}/_localstack/health", timeout=5)
        services = health.json().get("services")
    except (httpx.HTTPError, ValueError, AttributeError):
        return Listener.OTHER
    return Listener.AWS if isinstance(services, dict) else Listener.OTHER


def is_ministack(endpoint_url: str) -> bool:
    """Return whether the emulator at this URL is MiniStack."""
    try:
        return httpx.get(f"{endpoint_url}/_ministack/health", timeout=5).is_success
    except httpx.HTTPError:
        return False


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def folder(port: int) -> Path:
    """Return the folder that holds what is known of the emulator on a port."""
    return ROOT / ".local" / str(port)


def start(port: int) -> bool:
    """Have an emulator listen on the port; return whether it was started here, or was there before.

    After: one answers on 127.0.0.1 only, in the background, with no state of an earlier one.

    Raises:
        TallyctlError: something else has the port, the program is not installed, or it does not come up.
    """
    match listener(port):
        case Listener.AWS:
            return False
        case Listener.OTHER:
            raise TallyctlError(f"port {port} is in use by something that is no emulator of AWS: choose another")
    if not _PROGRAM.exists():
        raise TallyctlError(f"the embedded AWS is not installed ({_PROGRAM.relative_to(ROOT)}): run `make setup`")
    home = folder(port)
    shutil.rmtree(home, ignore_errors=True)
    (home / "tmp").mkdir(parents=True)
    process = _spawn(port, home)
    deadline = time.monotonic() + _START_S
    while listener(port) is not Listener.AWS:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, os.WNOHANG)
        if not _alive(home) or time.monotonic() > deadline:
            stop(port)
            raise TallyctlError(f"the embedded AWS did not come up on port {port}: see {home / 'emulator.log'}")
        time.sleep(0.1)
    return True


def stop(port: int) -> bool:
    """Stop the emulator that was started here, and its functions; return whether there was one.

    One that was started by anybody else is left alone.

    Raises:
        TallyctlError: it does not end.
    """
    home = folder(port)
    if not _alive(home):
        return False
    process = int((home / "pid").read_text())
    for stopper, patience_s in ((signal.SIGTERM, _STOP_S), (signal.SIGKILL, _STOP_S)):
        # It leads a process group that its functions' processes belong to.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, stopper)
        deadline = time.monotonic() + patience_s
        while _alive(home) and time.monotonic() < deadline:
            time.sleep(0.05)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, os.WNOHANG)
    if _alive(home):
        raise TallyctlError(f"the embedded AWS on port {port} (process {process}) does not end")
    shutil.rmtree(home / "tmp", ignore_errors=True)
    return True


def is_ours(port: int) -> bool:
    """Return whether the emulator on the port was started here."""
    return _alive(folder(port))


def environment(port: int, home: Path) -> dict[str, str]:
    """Return the environment for an emulator: nothing in it leads to a real account or to another emulator."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MINISTACK_"))}
    return {
        **kept,
        "BIND_HOST": LOOPBACK,
        "GATEWAY_PORT": str(port),
        "PERSIST_STATE": "0",
        "AUTH": "true",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "TMPDIR": str(home / "tmp"),
    }


def _spawn(port: int, home: Path) -> int:
    """Start the emulator in a session of its own and return its process id."""
    lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, True)
    log = home / "emulator.log"
    try:
        process = os.posix_spawn(
            _PROGRAM,
            [str(_PROGRAM)],
            environment(port, home),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
    finally:
        os.close(lock)
    (home / "pid").write_text(str(process))
    return process


def _alive(home: Path) -> bool:
    """Return whether the process that was started in this folder still runs: then it holds the lock."""
    try:
        lock = os.open(home / "lock", os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


@contextlib.contextmanager
def running(port: int) -> Iterator[None]:
    """Have an emulator on the port for as long as the block runs; stop it afterwards if the block started it."""
    started = start(port)
    try:
        yield
    finally:
        if started:
            stop(port)
