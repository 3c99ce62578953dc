"""Lambda kills the aggregator in mid-batch, in its own runtime, and the next delivery comes out exact."""

import json
import time
import uuid

import pytest

from builders import like, windowed
from fault_proxy import fault_proxy, late, trickling
from tallyctl import bundle
from tallyctl.rie import Function, runtime

pytestmark = [pytest.mark.runtime, pytest.mark.usefixtures("built")]
TIMEOUT_S = 3
LANDED_WITHIN_S = 30
LIKES = 3
KINDS = {"quick": 40, "unanswered": 5, "held": 5}
"""How many posts are written as usual, written with an answer that does not end, and written only after the kill."""


@pytest.fixture
def proxy(aws, tmp_path):
    """A fault proxy in front of the embedded AWS."""
    with fault_proxy(aws.environment["AWS_ENDPOINT_URL"], tmp_path / "proxy.log") as running:
        yield running


@pytest.fixture
def killed(aws, proxy):
    """The aggregator behind the proxy, with so little time that slow answers get it killed."""
    environment = {**aws.environment, "AWS_ENDPOINT_URL": proxy.url}
    function = Function(bundle.folder("AggregatorFunction"), "aggregator.handler", environment, TIMEOUT_S)
    with runtime(function) as running:
        assert running.invoke(windowed()).payload == {"batchItemFailures": [], "state": {}}  # so that it is started
        yield running


def last_batch(log):
    """The figures of the last batch in a log."""
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("message") == "batch"][-1]


def test_a_time_out_in_mid_batch_loses_and_doubles_nothing(aws, proxy, killed):
    """Parents already applied, applied with the answer still out, and not reached yet are all counted once.

    The killed invocation's last requests arrive after the next delivery, and change nothing either.
    """
    run = uuid.uuid4().hex[:8]
    quick, unanswered, held = ([f"{kind}-{run}-{n}" for n in range(count)] for kind, count in KINDS.items())
    posts = [*quick, *unanswered, *held]
    for post_id in posts:
        aws.create(post_id)
    likes = [(post_id, f"u{user}") for user in range(LIKES) for post_id in posts]
    event = windowed(*(like(number, *who) for number, who in enumerate(likes, 10**27)))
    proxy.inject(
        {**late(6000), "body": f"starts_with(Key.PK.S, 'POST#held-{run}')"},
        {**trickling(0.01), "body": f"starts_with(Key.PK.S, 'POST#unanswered-{run}')"},
    )

    answer = killed.invoke(event)
    assert answer.failed
    assert "timed out" in answer.payload["errorMessage"].lower()
    counted = {post_id for post_id in posts if aws.tally(post_id) == LIKES}
    assert set(unanswered) <= counted
    assert counted & set(quick)
    assert {aws.tally(post_id) for post_id in held} == {0}
    assert proxy.held() >= len(held)

    proxy.inject()
    assert killed.invoke(event).payload == {"batchItemFailures": [], "state": {}}
    assert {aws.tally(post_id) for post_id in posts} == {LIKES}
    figures = last_batch(killed.log())
    assert figures["duplicates"] >= LIKES * len(counted)
    assert figures["counted"] + figures["duplicates"] == figures["received"] == len(likes)

    deadline = time.monotonic() + LANDED_WITHIN_S
    while proxy.held() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert proxy.held() == 0
    assert killed.invoke(event).payload == {"batchItemFailures": [], "state": {}}
    assert {aws.tally(post_id) for post_id in posts} == {LIKES}
    assert last_batch(killed.log())["duplicates"] == len(likes)
