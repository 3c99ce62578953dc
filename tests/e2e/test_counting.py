"""Likes become tallies on the embedded AWS, on both counting paths."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from botocore.exceptions import ClientError

from tallyctl.stack import resource
from tallystream.likes import Backoff, TransactionPath
from tallystream.rules import DEFAULT_COUNTERS, Rules

pytestmark = pytest.mark.e2e


@pytest.fixture
def post_id(app):
    """A new post."""
    name = f"post-{uuid.uuid4().hex[:8]}"
    app.create(name)
    return name


def test_a_burst_of_likes_and_unlikes_is_counted_exactly(app, post_id):
    """After 120 likes, some of them twice, and 30 unlikes at the same time as others, the tally is what is stored."""
    requests = [("PUT", user) for user in range(120)] + [("PUT", user) for user in range(0, 120, 4)]
    requests += [("DELETE", user) for user in range(0, 120, 4)]
    with ThreadPoolExecutor(8) as threads:
        statuses = set(
            threads.map(lambda it: app.api.call(it[0], "posts", post_id, "likes", f"u{it[1]}").status_code, requests)
        )
    assert statuses <= {200, 201}
    likes = len(app.children(post_id))
    assert 90 <= likes <= 120
    assert app.settled(post_id, likes) == likes


def test_b05_only_one_of_fifty_unlikes_subtracts(app, post_id):
    """50 DELETEs at once of one like, and those of a user who never liked, take the tally from 1 to 0."""
    app.api.call("PUT", "posts", post_id, "likes", "u1")
    assert app.settled(post_id, 1) == 1
    users = ["u1"] * 50 + ["u9"] * 5
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda user: app.api.call("DELETE", "posts", post_id, "likes", user), users))
    assert {answer.status_code for answer in answers} == {200}
    assert app.settled(post_id, 0) == 0


def test_a_like_of_a_missing_post_is_an_orphan_on_the_stream_path(stream_app):
    """It is stored, since one PutItem cannot look; and no ghost of a post appears for it."""
    name = f"missing-{uuid.uuid4().hex[:8]}"
    assert stream_app.api.call("PUT", "posts", name, "likes", "u1").status_code == 201
    marker = f"post-{uuid.uuid4().hex[:8]}"
    stream_app.create(marker)
    stream_app.api.call("PUT", "posts", marker, "likes", "u1")
    assert stream_app.settled(marker, 1) == 1  # so the stream has been read past the orphan
    assert stream_app.api.call("GET", "posts", name).status_code == 404


def test_a_like_of_a_missing_post_is_refused_on_the_transaction_path(transaction_app):
    """Like and tally are written together or not at all."""
    name = f"missing-{uuid.uuid4().hex[:8]}"
    assert transaction_app.api.call("PUT", "posts", name, "likes", "u1").status_code == 404
    assert transaction_app.children(name) == set()


def test_b34_a_token_and_body_sent_twice_count_once(transaction_app):
    """The second is answered like the first and adds nothing; the token with another delta is a mismatch, and raised.

    A token made of post and user would so swallow the third of like, unlike, like, which counts with one of its own.
    """
    name, tokens, waits = f"post-{uuid.uuid4().hex[:8]}", ["a", "a", "a", "b", "a", "c"], []
    transaction_app.create(name)
    path = TransactionPath(
        transaction_app.dynamodb,
        transaction_app.stack.table_name,
        Backoff(waits.append, lambda: 0.0),
        Rules.parse(DEFAULT_COUNTERS),
        lambda: f"{name}-{tokens.pop(0)}",
    )
    assert [path.like(name, "u1", 1), path.like(name, "u1", 1)] == [True, True]
    assert transaction_app.tally(name) == 1
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        path.unlike(name, "u1")
    assert (path.unlike(name, "u1"), transaction_app.tally(name)) == (True, 0)
    assert (path.like(name, "u1", 1), transaction_app.tally(name)) == (True, 0)  # swallowed: the first like's token
    assert (path.like(name, "u1", 1), transaction_app.tally(name)) == (True, 1)
    assert (waits, tokens) == ([], [])


def test_the_aggregator_may_not_write_likes(stream_app):
    """The rights in the template are enough for its work, as every other test here shows, and for nothing more."""
    name = resource(stream_app.place, stream_app.stack, "AggregatorRole")
    account = stream_app.place.session.client("sts")
    role = f"arn:aws:iam::000000000000:role/{name}"
    taken = account.assume_role(RoleArn=role, RoleSessionName="test")["Credentials"]
    session = boto3.Session(taken["AccessKeyId"], taken["SecretAccessKey"], taken["SessionToken"], "us-east-1")
    aggregator = session.client("dynamodb", endpoint_url=stream_app.place.endpoint_url)
    item = {"PK": {"S": "POST#p1"}, "SK": {"S": "LIKE#USER#u1"}}
    with pytest.raises(aggregator.exceptions.ClientError, match="AccessDenied"):
        aggregator.put_item(TableName=stream_app.stack.table_name, Item=item)
