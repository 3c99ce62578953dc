"""Starting and stopping the embedded AWS: what can go wrong is one clear line."""

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tallyctl import emulator
from tallyctl.emulator import Listener
from tallyctl.errors import TallyctlError


class Answering(BaseHTTPRequestHandler):
    """A server that answers each GET with the same body."""

    body = b""

    def do_GET(self):
        """Answer."""
        self.send_response(200)
        self.send_header("content-length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def server():
    """Start a server with the given body and return its port."""
    running = []

    def start(body):
        handler = type("Handler", (Answering,), {"body": body})
        found = HTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        running.append((found, thread))
        return found.server_port

    yield start
    for found, thread in running:
        found.shutdown()
        thread.join()
        found.server_close()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A project folder of the test's own."""
    monkeypatch.setattr(emulator, "ROOT", tmp_path)
    monkeypatch.setattr(emulator, "_PROGRAM", tmp_path / "ministack")
    return tmp_path


@pytest.mark.parametrize("body", [b"hello", b"[]", b"{}", b'{"services": "all"}', b"null"])
@pytest.mark.usefixtures("home")
def test_a_port_in_use_by_something_else_is_one_clear_line(server, body):
    """Nothing is started on it, and the line names the port."""
    port = server(body)
    assert emulator.listener(port) is Listener.OTHER
    with pytest.raises(TallyctlError, match=f"^port {port} is in use by something that is no emulator of AWS"):
        emulator.start(port)


@pytest.mark.usefixtures("home")
def test_a_port_that_never_answers_is_in_use_too(monkeypatch):
    """A program that accepts and stays silent is not waited for, for ever."""
    monkeypatch.setattr(
        emulator.httpx, "get", lambda *_, **__: (_ for _ in ()).throw(emulator.httpx.ReadTimeout("late"))
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert emulator.listener(silent.getsockname()[1]) is Listener.OTHER


@pytest.mark.usefixtures("home")
def test_an_emulator_that_listens_already_serves_as_well(server):
    """LocalStack's health path is what tells; it is neither started again nor stopped."""
    port = server(b'{"services": {"dynamodb": "running"}}')
    assert emulator.start(port) is False
    assert emulator.is_ours(port) is False
    assert emulator.stop(port) is False
    assert emulator.listener(port) is Listener.AWS


@pytest.mark.usefixtures("home")
def test_an_emulator_that_is_not_installed_is_one_clear_line():
    """The line says how to install it."""
    with pytest.raises(TallyctlError, match=r"not installed .* run `make setup`"):
        emulator.start(emulator.free_port())


def test_an_emulator_that_dies_at_once_is_one_clear_line(home):
    """The line names its log, and nothing is left that looks as if it ran."""
    program = home / "ministack"
    program.write_text("#!/bin/sh\necho no such luck\nexit 1\n")
    program.chmod(0o755)
    port = emulator.free_port()
    with pytest.raises(TallyctlError, match=r"did not come up on port \d+: see .*emulator\.log"):
        emulator.start(port)
    assert "no such luck" in (emulator.folder(port) / "emulator.log").read_text()
    assert emulator.is_ours(port) is False


def test_stopping_ends_the_emulator_and_what_it_started(home, monkeypatch):
    """Its functions' processes are in its group: none outlives it, even if they ignore the polite signal."""
    monkeypatch.setattr(emulator, "_STOP_S", 0.5)
    program = home / "ministack"
    program.write_text(
        f"#!/bin/sh\ntrap '' TERM\nsleep 60 &\necho $! > {home}/child.new\nmv {home}/child.new {home}/child\nwait\n"
    )
    program.chmod(0o755)
    port = emulator.free_port()
    folder = emulator.folder(port)
    (folder / "tmp").mkdir(parents=True)
    emulator._spawn(port, folder)
    while not (home / "child").exists():
        time.sleep(0.01)
    child = int((home / "child").read_text())
    assert emulator.is_ours(port) is True
    assert emulator.stop(port) is True
    assert emulator.is_ours(port) is False
    assert ended_within(child, 5)
    assert emulator.stop(port) is False


def ended_within(process, seconds):
    """Whether a process is gone, or only waits to be reaped by its parent."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_the_emulator_knows_nothing_of_a_real_account(home, monkeypatch):
    """Nothing in its environment leads to one, and it listens on the loopback address only."""
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://elsewhere:1")
    found = emulator.environment(4572, home)
    assert {name for name in found if name.startswith("AWS_")} == {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_DEFAULT_REGION",
    }
    assert (found["AWS_ACCESS_KEY_ID"], found["BIND_HOST"], found["GATEWAY_PORT"]) == ("test", "127.0.0.1", "4572")
