"""Every command of the README: run here as it stands, or named with the test that runs it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallyctl import emulator

ROOT = Path(__file__).parents[2]
ELSEWHERE = {
    "make demo": "test_local_stack.py runs the demo, --start included; .ci/run and the workflow run make",
    "make test": ".ci/run",
    "sam build": "bundle.ensure runs it for every deployment here",
    "sam deploy --guided": "local.up runs sam deploy with the settings [local]; the questions need a person",
    "sam local invoke AggregatorFunction --event events/like-burst.json --env-vars events/env.json": (
        "needs Docker; test_events.py runs each event in the runtime that it starts"
    ),
}

OF_MAKE = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "ARGS"}


def commands() -> list[str]:
    """Return the commands of the README's shell blocks, one a line, continued lines joined."""
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", "").splitlines() if line]


def test_the_readme_has_the_two_commands():
    """They come first, alone, since everything else builds on them."""
    assert commands()[:2] == ["make demo", "make test"]


def test_each_command_that_is_not_run_here_is_in_the_readme():
    """A command that was renamed takes its exception with it."""
    assert set(ELSEWHERE) <= set(commands())


@pytest.fixture
def environment(tallyctl) -> Iterator[dict[str, str]]:
    """What a person has who has made `tallyctl local up`: the address of the API, and the emulator's credentials."""
    port = emulator.free_port()
    endpoint = f"http://127.0.0.1:{port}"
    try:
        up = tallyctl(["local", "up", "--endpoint-url", endpoint, "--json"])
        assert up.returncode == 0, up.stderr
        yield {
            # What `make test` was called with is not for the README's own make.
            **{name: value for name, value in os.environ.items() if name not in OF_MAKE},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "AWS_ENDPOINT_URL": endpoint,
            "PORT": str(port),
            "API_URL": json.loads(up.stdout)["outputs"]["ApiUrl"],
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }
    finally:
        emulator.stop(port)


@pytest.mark.e2e
def test_every_other_command_runs_as_it_stands(environment):
    """In the README's order, against one local stack; each ends well and needs nothing that is not said."""
    for command in commands():
        if command not in ELSEWHERE:
            done = subprocess.run(  # noqa: S602 - a shell is what the README is written for
                command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=200
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
