"""The deployed functions behind a proxy that loses answers, throttles, breaks connections and delays: no drift."""

import itertools
import json
import random
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from fault_proxy import DENIED, LOST_ANSWER, RESET, THROTTLED, fault_proxy, late
from tallyctl.demo import log_group
from tallyctl.stack import resource
from tallystream.keys import post_key

pytestmark = pytest.mark.e2e
POSTS = 4
USERS = 45
SETTLED_WITHIN_S = 60
STAYS_S = 2
"""For so long a settled tally is looked at: counting twice would show only then."""

COUNTING_FAULTS = (
    {**DENIED, "times": 2, "sequence": {"fail": 1, "pass": 20}},
    {**LOST_ANSWER, "sequence": {"fail": 1, "pass": 4}},
    {**THROTTLED, "sequence": {"fail": 1, "pass": 9}},
    {**RESET, "sequence": {"fail": 1, "pass": 7}},
    {**late(1200), "sequence": {"fail": 1, "pass": 12}},
)
"""Of the aggregator, every second or third request. It gives up on a late answer after 1 s, and asks again."""
LIKING_FAULTS = (
    {**LOST_ANSWER, "sequence": {"fail": 1, "pass": 14}},
    {**THROTTLED, "sequence": {"fail": 1, "pass": 19}},
    {**RESET, "sequence": {"fail": 1, "pass": 24}},
    {**late(500), "sequence": {"fail": 1, "pass": 29}},
)
# Each rule strikes the first request that reaches it, so that a few requests are enough to meet all of them.
KINDS_OF_FAULT = {"response:abort", "error:ThrottlingException", "reset", "latency"}


def faults():
    """All faults, for each operation with counters of their own."""
    counting = [{"operation": "UpdateItem", **fault} for fault in COUNTING_FAULTS]
    return counting + [{"operation": name, **fault} for name in ("PutItem", "DeleteItem") for fault in LIKING_FAULTS]


@pytest.fixture(scope="module")
def proxy(stream_app, tmp_path_factory):
    """A fault proxy in front of the embedded AWS."""
    with fault_proxy(stream_app.place.endpoint_url, tmp_path_factory.mktemp("proxy") / "log") as running:
        yield running


@pytest.fixture(autouse=True)
def calm_again(proxy):
    """No test leaves its faults to the next one."""
    yield
    proxy.inject()


@pytest.fixture
def app(stream_app, proxy):
    """The stack that counts by the stream, with both functions behind the proxy; afterwards they are as before."""
    client = stream_app.place.session.client("lambda")
    names = (stream_app.stack.aggregator, resource(stream_app.place, stream_app.stack, "LikesApiFunction"))
    before = {name: client.get_function_configuration(FunctionName=name)["Environment"] for name in names}
    for name, environment in before.items():
        variables = {**environment["Variables"], "AWS_ENDPOINT_URL": proxy.url}
        client.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
    yield stream_app
    for name, environment in before.items():
        client.update_function_configuration(FunctionName=name, Environment=environment)


def batches(app, since):
    """The figures of the batches in the aggregator's log since then, in epoch seconds, summed."""
    pages = app.place.session.client("logs").get_paginator("filter_log_events")
    total = Counter()
    group = log_group(app.place, app.stack)
    for page in pages.paginate(logGroupName=group, startTime=int(since * 1000), filterPattern='"received"'):
        for event in page["events"]:
            if event["message"].startswith("{") and (line := json.loads(event["message"])).get("message") == "batch":
                total += Counter({name: figure for name, figure in line.items() if isinstance(figure, int)})
    return total


def test_no_fault_makes_a_tally_drift(app, proxy):
    """Hundreds of likes and unlikes with every kind of fault, on both sides, and each tally is what is stored."""
    posts = [f"chaos-{uuid.uuid4().hex[:8]}" for _ in range(POSTS)]
    for post_id in posts:
        app.create(post_id)
    likes = [("PUT", post_id, user) for post_id, user in itertools.product(posts, range(USERS))]
    unlikes = [("DELETE", post_id, user) for post_id, user in itertools.product(posts, range(0, USERS, 3))]
    requests = random.Random(1).sample(likes + unlikes, len(likes + unlikes))
    since, struck_before = time.time(), proxy.struck()
    proxy.inject(*faults())
    with ThreadPoolExecutor(4) as threads:
        answers = threads.map(lambda it: app.api.call(it[0], "posts", it[1], "likes", f"u{it[2]}"), requests)
        statuses = Counter(answer.status_code for answer in answers)
    # 503: the API's own retries were used up; what was stored is what counts.
    assert statuses.keys() <= {200, 201, 503}
    stored = {post_id: len(app.children(post_id)) for post_id in posts}
    assert sum(stored.values()) > len(likes) / 2

    deadline = time.monotonic() + SETTLED_WITHIN_S
    while {post_id: app.tally(post_id) for post_id in posts} != stored and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(STAYS_S)
    assert {post_id: app.tally(post_id) for post_id in posts} == stored
    struck = proxy.struck() - struck_before
    for operation in ("PutItem", "DeleteItem", "UpdateItem"):
        assert {kind for name, kind in struck if name == operation} >= KINDS_OF_FAULT
    assert struck["UpdateItem", "error:AccessDeniedException"] > 0  # so the aggregator failed, and got a batch again
    assert batches(app, since)["duplicates"] > 0  # so there was something to be exact about


def test_the_same_faults_make_a_blind_add_drift(stream_app, proxy):
    """Without the mark, a counter behind this proxy ends up above the truth: the proxy tells right from wrong."""
    post_id = f"blind-{uuid.uuid4().hex[:8]}"
    stream_app.create(post_id)
    config = Config(connect_timeout=1, read_timeout=1, retries={"mode": "standard", "total_max_attempts": 3})
    client = boto3.client(
        "dynamodb",
        "us-east-1",
        endpoint_url=proxy.url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=config,
    )

    def add(_):
        """Add one until an answer says that it is in, as a redelivery would."""
        while True:
            try:
                return client.update_item(
                    TableName=stream_app.stack.table_name,
                    Key={name: {"S": value} for name, value in post_key(post_id).items()},
                    UpdateExpression="ADD likeTally :one",
                    ExpressionAttributeValues={":one": {"N": "1"}},
                )
            except (ClientError, BotoCoreError):
                continue

    struck_before = proxy.struck()
    proxy.inject(*faults())
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(40)))
    assert (proxy.struck() - struck_before)["UpdateItem", "response:abort"] > 0
    assert stream_app.tally(post_id) > 40
