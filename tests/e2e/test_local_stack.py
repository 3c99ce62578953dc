"""`tallyctl` as a person uses it: started, demonstrated, repeated, restarted and stopped."""

import json
import uuid
from collections.abc import Iterator

import pytest

from builders import like, windowed
from tallyctl import emulator

pytestmark = pytest.mark.e2e
DEMO = ("--posts", "4", "--likes", "120", "--users", "30", "--json")


@pytest.fixture
def endpoint(port) -> Iterator[str]:
    """The URL of an embedded AWS that the test itself starts; stopped after it, whatever happens."""
    del port  # ask first, so that the session's own port is taken
    own = emulator.free_port()
    yield f"http://127.0.0.1:{own}"
    emulator.stop(own)


def test_the_status_has_the_outputs_of_the_stack(stream_app, tallyctl):
    """`local status --json` names what the stack is made of."""
    found = tallyctl(
        ["local", "status", "--endpoint-url", stream_app.place.endpoint_url, "--stack-name", "e2e-stream", "--json"]
    )
    status = json.loads(found.stdout)
    assert status["running"] is True
    assert status["outputs"] == {**stream_app.stack.outputs, "ApiUrl": stream_app.api.url}
    assert status["outputs"].keys() == {"TableName", "ApiUrl", "AggregatorFunctionName", "FailedBatchesUrl"}


def test_b40_the_demo_is_right_each_time_it_is_run_and_after_a_restart(endpoint, tallyctl):
    """Up twice, three demos, a restart, one more demo: every tally is right, and there is one mapping."""
    where = ("--endpoint-url", endpoint)

    def run(*arguments: str) -> dict:
        done = tallyctl([*arguments, *where])
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert run("local", "up", "--json")["running"] is True
    first = run("local", "status", "--json")["outputs"]
    assert run("demo", "--seed", "1", *DEMO)["wrong"] == 0
    run("local", "up", "--json")
    assert run("local", "status", "--json")["outputs"] == first
    for seed in ("2", "3"):
        assert run("demo", "--seed", seed, *DEMO)["wrong"] == 0
    assert run("local", "down", "--json") == {"stopped": True, "running": False, "endpoint_url": endpoint}
    run("local", "up", "--json")
    again = run("demo", "--seed", "4", *DEMO)
    assert again["wrong"] == 0
    assert again["batches"] > 0
    assert again["write_units_per_like"] < 2
    assert run("local", "down", "--json")["stopped"] is True
    assert run("local", "down", "--json")["stopped"] is False
    assert run("local", "status", "--json")["running"] is False


def test_the_demo_counts_on_the_transaction_path_too(transaction_app, tallyctl):
    """There, a like costs four write units and is counted at once."""
    where = ["--endpoint-url", transaction_app.place.endpoint_url, "--stack-name", "e2e-transaction"]
    done = tallyctl(["demo", *where, *DEMO])
    figures = json.loads(done.stdout)
    assert (done.returncode, figures["wrong"], figures["path"]) == (0, 0, "transaction")
    assert figures["write_units_per_like"] == 4


def test_an_event_run_twice_is_counted_once(stream_app, tallyctl, tmp_path):
    """`tallyctl invoke` makes the post, runs the built bundle, and the second time says why nothing changed."""
    post_id = f"invoked-{uuid.uuid4().hex[:8]}"
    event = tmp_path / "event.json"
    event.write_text(json.dumps(windowed(*(like(number, post_id, f"u{number}") for number in range(101, 111)))))
    where = ["--endpoint-url", stream_app.place.endpoint_url, "--stack-name", "e2e-stream", "--json"]
    first, again = (json.loads(tallyctl(["invoke", str(event), *where]).stdout) for _ in range(2))
    key = {"PK": f"POST#{post_id}", "SK": "META"}
    assert first["answer"] == again["answer"] == {"batchItemFailures": [], "state": {}}
    assert first["parents"] == [{**key, "created": True, "before": {}, "after": {"likeTally": 10}}]
    assert again["parents"] == [{**key, "created": False, "before": {"likeTally": 10}, "after": {"likeTally": 10}}]
    assert "in the marks of its parents" in again["note"]
