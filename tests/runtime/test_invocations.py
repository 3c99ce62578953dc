"""The built functions answer in AWS's own Lambda runtime as they do in the tests of their source."""

import json
import os
import time
import uuid
from pathlib import Path

import pytest

from builders import batch, like, unlike, windowed
from tallyctl.demo import batch_figures
from tallyctl.errors import TallyctlError
from tallyctl.rie import Function, runtime

pytestmark = pytest.mark.runtime
PLAIN = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@pytest.fixture
def post_id(aws):
    """A new post."""
    name = f"post-{uuid.uuid4().hex[:8]}"
    aws.create(name)
    return name


@pytest.fixture
def handler(tmp_path):
    """Write a function of the test's own, and return how to run it."""

    def write(body, timeout_s=10):
        (tmp_path / "sample.py").write_text(f"import os, time\n\ndef handler(event, context):\n    {body}\n")
        return Function(tmp_path, "sample.handler", PLAIN, timeout_s)

    return write


def test_b01_a_batch_is_counted_once_however_often_it_comes(aws, aggregator, post_id):
    """The second time its sequence numbers are in the mark."""
    event = batch(*(like(number, post_id, f"u{number}") for number in range(101, 201)), unlike(201, post_id, "u101"))
    for _ in range(2):
        answer = aggregator.invoke(event)
        assert (answer.failed, answer.payload) == (False, {"batchItemFailures": []})
        assert aws.tally(post_id) == 99


def test_a_window_gets_its_state_back(aws, aggregator, post_id):
    """Without `state` in the answer Lambda would call the invocation failed; the last one may have no records."""
    answer = aggregator.invoke(windowed(like(301, post_id)))
    assert answer.payload == {"batchItemFailures": [], "state": {}}
    assert aggregator.invoke(windowed(final=True)).payload == {"batchItemFailures": [], "state": {}}
    assert aws.tally(post_id) == 1


def test_an_event_that_is_no_batch_is_raised(aggregator):
    """Lambda gets an error with the exception's own name and message, and the next event is answered as usual."""
    answer = aggregator.invoke({"hello": "world"})
    assert answer.failed
    assert answer.payload["errorType"] == "NotAStreamEvent"
    assert aggregator.invoke(batch()).payload == {"batchItemFailures": []}


def test_each_batch_logs_one_line_that_the_demo_can_read(aggregator, post_id):
    """With the figures of that batch: they are where the demo has its own from."""
    before = len(batches_in(aggregator.log()))
    aggregator.invoke(batch(like(401, post_id), like(402, post_id, "u2")))
    batches = batches_in(aggregator.log())
    assert len(batches) == before + 1
    assert batches[-1] == {"received": 2, "parents": 1, "writes": 1}


def batches_in(log):
    """The figures of each batch in a log."""
    return [figures for line in log.splitlines() if (figures := batch_figures(line)) is not None]


def test_a_request_is_answered(aws, likes_api, post_id):
    """A like through the API's function is in the table."""
    event = {
        "version": "2.0",
        "routeKey": "PUT /posts/{postId}/likes/{userId}",
        "pathParameters": {"postId": post_id, "userId": "u1"},
    }
    first, again = likes_api.invoke(event).payload, likes_api.invoke(event).payload
    assert (first["statusCode"], again["statusCode"]) == (201, 200)
    assert json.loads(first["body"]) == {"postId": post_id, "userId": "u1", "liked": True}
    assert aws.liked(post_id, "u1")


def test_a_function_that_runs_out_of_time_has_failed(handler):
    """As on AWS it is stopped, and the answer says so."""
    with runtime(handler("time.sleep(30)", timeout_s=1)) as running:
        began = time.monotonic()
        answer = running.invoke({})
        assert time.monotonic() - began < 10
    assert answer.failed
    assert "timed out" in answer.payload["errorMessage"].lower()


def test_nothing_runs_on_after_the_block(handler):
    """Neither the emulator nor the function's own process."""
    with runtime(handler("return os.getpid()")) as running:
        process = running.invoke({}).payload
        assert Path(f"/proc/{process}").exists()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{process}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{process}").exists()


def test_a_function_sees_nothing_of_the_callers_environment(handler, monkeypatch):
    """Its own variables, and Lambda's."""
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("MY_SECRET", "x")
    with runtime(handler("return dict(os.environ)")) as running:
        seen = running.invoke({}).payload
    assert not {"AWS_PROFILE", "MY_SECRET", "HOME"} & seen.keys()
    assert (seen["AWS_LAMBDA_FUNCTION_NAME"], seen["AWS_REGION"]) == ("sample", "us-east-1")
    assert os.environ["MY_SECRET"] == "x"


def test_a_missing_bundle_is_one_clear_line(tmp_path):
    """The line says how to build it."""
    with pytest.raises(TallyctlError, match="run `make build`"), runtime(Function(tmp_path / "none", "a.handler", {})):
        pass
