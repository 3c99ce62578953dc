"""The command line itself: one JSON object, or one clear line."""

import json
import sys

import pytest

from tallyctl import bundle, cli, emulator
from tallyctl.emulator import Listener, free_port


def run(monkeypatch, *arguments):
    """Run the command line in this process and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["tallyctl", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Keep the project's own folder and environment out of it."""
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setattr(emulator, "ROOT", tmp_path)
    monkeypatch.setattr(emulator, "_PROGRAM", tmp_path / "ministack")
    monkeypatch.setattr(bundle, "ROOT", tmp_path)


def test_nothing_runs_and_status_says_so(monkeypatch, capsys):
    """That is an answer, so the exit code is 0."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    assert run(monkeypatch, "local", "status", "--endpoint-url", endpoint, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"running": False, "endpoint_url": endpoint, "outputs": {}}


def test_down_may_be_repeated(monkeypatch, capsys):
    """Where nothing runs there is nothing to stop, and that is fine."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    assert run(monkeypatch, "local", "down", "--endpoint-url", endpoint) == 0
    assert capsys.readouterr().out == "not running\n"


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_an_expected_failure_is_one_line_and_no_traceback(monkeypatch, capsys, as_json):
    """On standard error, with exit code 2; with --json, standard output holds one object that says the same."""
    monkeypatch.setattr(emulator, "listener", lambda _: Listener.OTHER)
    assert run(monkeypatch, "local", "up", "--endpoint-url", "http://127.0.0.1:4599", *as_json) == cli.TROUBLE
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    *_, line = said.err.splitlines()
    assert line == "tallyctl: port 4599 is in use by something that is no emulator of AWS: choose another"
    assert said.out == ("" if not as_json else json.dumps({"error": line.removeprefix("tallyctl: ")}) + "\n")


def test_a_command_without_a_stack_is_one_clear_line(monkeypatch, capsys):
    """Nothing answers, and the line says what starts it."""
    endpoint = f"http://127.0.0.1:{free_port()}"
    assert run(monkeypatch, "demo", "--endpoint-url", endpoint) == cli.TROUBLE
    assert "`tallyctl local up` starts one" in capsys.readouterr().err


@pytest.mark.parametrize("pair", ["CountingPath", "", "transaction"])
def test_a_parameter_without_a_value_is_one_clear_line(monkeypatch, capsys, pair):
    """The line says how it is written."""
    assert (
        run(monkeypatch, "local", "up", "--parameter", pair, "--endpoint-url", "http://127.0.0.1:4599") == cli.TROUBLE
    )
    assert "--parameter takes NAME=VALUE" in capsys.readouterr().err
