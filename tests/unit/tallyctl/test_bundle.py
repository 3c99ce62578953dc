"""Building and deploying with the SAM CLI: what can go wrong is one clear line."""

import os

import pytest

from tallyctl import bundle, local
from tallyctl.errors import TallyctlError


@pytest.fixture
def sam(tmp_path, monkeypatch):
    """Put a SAM CLI of the test's own in place, and return a function that writes its script."""
    program = tmp_path / "sam"
    monkeypatch.setattr(bundle, "ROOT", tmp_path)
    monkeypatch.setattr(bundle, "SAM", program)

    def write(script):
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return write


def test_a_missing_sam_cli_is_one_clear_line(sam, tmp_path):
    """The line says how to install it."""
    del sam
    with pytest.raises(TallyctlError, match=r"^the SAM CLI is not installed \(sam\): run `make setup`$"):
        bundle.run_sam(["build"], {}, tmp_path / "log")


def test_a_failed_deploy_is_one_clear_line_that_names_the_log(sam, tmp_path):
    """The line has what sam said last; all of it is in the log."""
    sam("echo Deploying; echo; echo 'Error: the stack is in ROLLBACK_COMPLETE' >&2; echo; exit 3")
    log = tmp_path / "logs" / "deploy.log"
    with pytest.raises(TallyctlError) as caught:
        bundle.run_sam(["deploy", "--stack-name", "s"], {}, log)
    expected = f"sam deploy failed: Error: the stack is in ROLLBACK_COMPLETE (all of it is in {log})"
    assert str(caught.value) == expected
    assert log.read_text().startswith("Deploying\n")


def test_sam_gets_nothing_of_the_callers_account(sam, tmp_path, monkeypatch):
    """It sees the variables that it was given for AWS and no others, and uv's folder on the PATH."""
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    sam("env")
    bundle.run_sam(["deploy"], local.deploy_environment(4572), tmp_path / "log")
    seen = dict(line.split("=", 1) for line in (tmp_path / "log").read_text().splitlines() if "=" in line)
    assert {name for name in seen if name.startswith("AWS_")} == local.deploy_environment(4572).keys()
    assert seen["AWS_ENDPOINT_URL"] == "http://127.0.0.1:4572"
    assert seen["SAM_CLI_TELEMETRY"] == "0"


def test_only_given_parameters_are_overridden():
    """Those not given keep the values that the stack has."""
    assert "--parameter-overrides" not in local.deploy_arguments("s", {})
    assert local.deploy_arguments("s", {"CountingPath": "transaction"})[-2:] == [
        "--parameter-overrides",
        "CountingPath=transaction",
    ]


def test_a_parameter_with_spaces_is_quoted():
    """The SAM CLI would split it: rules in JSON and schedules have spaces, and rules have quotes of their own."""
    assert local.deploy_arguments("s", {"AuditSchedule": "rate(1 day)"})[-1] == 'AuditSchedule="rate(1 day)"'
    assert local.deploy_arguments("s", {"Counters": '[{"child": "A#"}]'})[-1] == 'Counters="[{\\"child\\": \\"A#\\"}]"'


def test_a_bundle_is_stale_once_a_source_is_newer(tmp_path):
    """So `local up` deploys the sources as they are, and builds nothing twice."""
    built, source = tmp_path / "built", tmp_path / "source"
    source.touch()
    assert bundle.older(built, [source])
    built.touch()
    os.utime(source, (1, 1))
    assert not bundle.older(built, [source])
    os.utime(source, (2**32, 2**32))
    assert bundle.older(built, [source])


@pytest.mark.parametrize(("said", "line"), [("a\nb\n\n", "b"), ("", "it said nothing"), (" \n", "it said nothing")])
def test_the_last_line_is_the_last_that_says_something(said, line):
    """Blank lines at the end are passed over."""
    assert bundle.last_line(said) == line


@pytest.mark.parametrize("url", ["aws", "http://10.0.0.1:4566", "http://example.com:80"])
def test_the_local_stack_is_on_this_machine_only(url):
    """Nothing is ever deployed anywhere else by `local up`."""
    with pytest.raises(TallyctlError):
        local.port_of(url)
