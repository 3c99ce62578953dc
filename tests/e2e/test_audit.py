"""Audit, repair and backfill on the embedded AWS, while a writer runs at full speed."""

import csv
import io
import json
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tallyctl import local
from tallystream.keys import POST_PREFIX, like_key, post_key

pytestmark = pytest.mark.e2e

TTL = "expiresAt"
REAPED_WITHIN_S = 130
"""MiniStack looks for expired items once a minute."""

INTERRUPTED = 128 + signal.SIGINT
"""As a shell reports it."""

BACKFILLED_POSTS, LIKES_A_POST = 1000, 20


def typed(key):
    """Return a key in DynamoDB's notation."""
    return {name: {"S": value} for name, value in key.items()}


def like(app, post_id, user_id, **attributes):
    """Store a like."""
    item = {**typed(like_key(post_id, user_id)), "likedAt": {"N": "1"}, **attributes}
    app.dynamodb.put_item(TableName=app.stack.table_name, Item=item)


def tamper(app, post_id, more):
    """Add to a tally, as only a fault does."""
    app.dynamodb.update_item(
        TableName=app.stack.table_name,
        Key=typed(post_key(post_id)),
        UpdateExpression="ADD likeTally :more",
        ExpressionAttributeValues={":more": {"N": str(more)}},
    )


def stored(app, post_id):
    """Return the tally as it is in the table."""
    item = app.dynamodb.get_item(TableName=app.stack.table_name, Key=typed(post_key(post_id)), ConsistentRead=True)
    return int(item["Item"]["likeTally"]["N"])


@contextmanager
def writing(app, posts):
    """Like and unlike posts as fast as it goes, for as long as the block runs; yield the numbers of writes."""
    ended, written = threading.Event(), [0, 0, 0]

    def write(number):
        dice = random.Random(number)
        while not ended.is_set():
            post_id, user_id = dice.choice(posts), f"w{number}-{dice.randrange(40)}"
            if dice.random() < 0.6:
                like(app, post_id, user_id)
            else:
                app.dynamodb.delete_item(TableName=app.stack.table_name, Key=typed(like_key(post_id, user_id)))
            written[number] += 1

    with ThreadPoolExecutor(len(written)) as threads:
        writers = [threads.submit(write, number) for number in range(len(written))]
        try:
            yield written
        finally:
            ended.set()
        for writer in writers:
            writer.result()
    assert sum(written) > 100


def audit_of(app, tallyctl):
    """Return a function that audits a stack and returns the exit code and the JSON object."""

    def run(*options):
        place = ["--endpoint-url", app.place.endpoint_url, "--stack-name", app.stack.name]
        done = tallyctl(["audit", *place, "--json", *options])
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.fixture
def audit(audited_app, tallyctl):
    """Give what audits the stack that the tests of this file share."""
    return audit_of(audited_app, tallyctl)


def test_exactly_the_planted_drifts_are_found_and_repaired_while_likes_flow(audited_app, audit):
    """One too high, one too low, one whose like was removed without a record; the writer never stops."""
    app = audited_app
    posts = [f"post-{uuid.uuid4().hex[:8]}" for _ in range(6)]
    for post_id in posts:
        app.create(post_id)
    high, low, expired, *_ = posts
    app.dynamodb.update_time_to_live(
        TableName=app.stack.table_name, TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL}
    )
    like(app, expired, "gone", **{TTL: {"N": "1"}})
    assert app.settled(expired, 1) == 1
    deadline = time.monotonic() + REAPED_WITHIN_S
    with writing(app, posts):
        while "gone" in app.children(expired) and time.monotonic() < deadline:
            time.sleep(0.5)
        tamper(app, high, 3)
        tamper(app, low, -2)
        code, found = audit()
        planted = {(post_key(high)["PK"], 3), (post_key(low)["PK"], -2), (post_key(expired)["PK"], 1)}
        assert {(drift["parent"]["PK"], drift["drift"]) for drift in found["drifting"]} == planted
        assert (code, found["unjudged"], found["repaired"]) == (1, [], 0)
        assert all(drift["tally"] - drift["truth"] == drift["drift"] for drift in found["drifting"])
        code, found = audit("--repair")
        assert (code, found["repaired"], len(found["drifting"])) == (0, 3, 3)
        code, found = audit()
        assert (code, found["drifting"], found["unjudged"]) == (0, [], [])
        assert found["judged"] >= len(posts)  # the writer was at all of them
    for post_id in posts:
        likes = len(app.children(post_id))
        assert app.settled(post_id, likes) == likes


def test_of_two_repairs_at_once_one_is_applied(audited_app, audit):
    """Either alone would take the drift out, and both together take it out once, with a writer on the post."""
    app = audited_app
    post_id = f"post-{uuid.uuid4().hex[:8]}"
    app.create(post_id)
    tamper(app, post_id, 7)
    with writing(app, [post_id]), ThreadPoolExecutor(2) as threads:
        both = [threads.submit(audit, "--post", post_id, "--repair") for _ in range(2)]
        codes, reports = zip(*(one.result() for one in both), strict=True)
        assert codes == (0, 0)
        assert sum(report["repaired"] for report in reports) >= 1
    likes = len(app.children(post_id))
    assert app.settled(post_id, likes) == likes


def test_likes_that_came_before_their_post_count_once_they_are_overdue(audited_app, audit):
    """The aggregator has passed them over, which nothing says; a repair counts them, and nobody counts them twice."""
    app, post_id = audited_app, f"post-{uuid.uuid4().hex[:8]}"
    for user_id in ("u1", "u2", "u3"):
        like(app, post_id, user_id)
    marker = f"post-{uuid.uuid4().hex[:8]}"
    app.create(marker)
    like(app, marker, "u1")
    assert app.settled(marker, 1) == 1  # so the stream has been read past the likes
    app.create(post_id)
    code, found = audit("--post", post_id, "--repair")
    assert (code, found["drifting"], found["waiting"], stored(app, post_id)) == (0, [], 3, 0)
    code, found = audit("--post", post_id, "--repair", "--overdue", "0")
    assert (code, found["repaired"], stored(app, post_id)) == (0, 1, 3)
    like(app, post_id, "u4")
    assert app.settled(post_id, 4) == 4


def test_findings_go_to_csv_and_a_missing_post_is_named(audited_app, audit, tallyctl):
    """A row a finding; a post that is not there cannot be told, so the exit code is 2, or 1 beside a drift."""
    app = audited_app
    post_id, orphan = (f"post-{uuid.uuid4().hex[:8]}" for _ in range(2))
    app.create(post_id)
    tamper(app, post_id, 5)
    like(app, orphan, "u1")
    place = ["--endpoint-url", app.place.endpoint_url, "--table-name", app.stack.table_name]
    done = tallyctl(["audit", *place, "--post", post_id, "--post", "nobody", "--post", orphan, "--csv", "-"])
    assert done.returncode == 1
    assert list(csv.reader(io.StringIO(done.stdout)))[1:] == [
        ["drifting", POST_PREFIX + post_id, "META", "likeTally", "5", "0", "5", "no", "", ""],
        ["unjudged", POST_PREFIX + "nobody", "META", *[""] * 6, "there is no such post, and nothing counts on it"],
        ["orphaned", POST_PREFIX + orphan, "META", *[""] * 5, "1", "the parent does not exist"],
    ]
    code, found = audit("--post", "nobody", "--post", orphan)
    assert [entry["parent"]["PK"] for entry in found["unjudged"]] == ["POST#nobody"]
    assert (code, found["orphans"]) == (2, 1)
    app.dynamodb.delete_item(TableName=app.stack.table_name, Key=typed(like_key(orphan, "u1")))
    assert audit("--post", post_id, "--repair")[0] == 0


def test_a_stack_is_moved_from_one_counting_path_to_the_other_with_one_repair(moved_app, tallyctl):
    """As docs/runbook.md says: the mapping counts what transactions have counted, or leaves what it had not read."""
    app, audit = moved_app, audit_of(moved_app, tallyctl)
    port = local.port_of(app.place.endpoint_url)
    mappings = app.place.session.client("lambda")
    [mapping] = mappings.list_event_source_mappings(FunctionName=app.stack.aggregator)["EventSourceMappings"]
    app.create("p1")
    for number in range(20):
        assert app.api.call("PUT", "posts", "p1", "likes", f"u{number}").status_code == 201
    assert app.tally("p1") == 20
    local.up(port, app.stack.name, {"CountingPath": "stream"})
    assert app.settled("p1", 40) == 40
    code, found = audit("--repair")
    assert (code, found["repaired"], app.tally("p1")) == (0, 1, 20)
    assert app.api.call("DELETE", "posts", "p1", "likes", "u0").status_code == 200
    assert app.settled("p1", 19) == 19

    mappings.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    for number in range(20, 25):
        assert app.api.call("PUT", "posts", "p1", "likes", f"u{number}").status_code == 201
    local.up(port, app.stack.name, {"CountingPath": "transaction"})
    assert app.settled("p1", 19) == 19
    code, found = audit("--repair")
    assert (code, found["repaired"], app.tally("p1")) == (0, 1, 24)
    assert app.api.call("PUT", "posts", "p1", "likes", "u0").status_code == 201
    assert app.tally("p1") == 25


@pytest.fixture
def foreign_table(audited_app):
    """Give a table by another writer: posts without tallies, their likes, and a stream since just now."""
    client, name = audited_app.dynamodb, f"foreign-{uuid.uuid4().hex[:8]}"
    keys = {"PK": "HASH", "SK": "RANGE"}
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
        BillingMode="PAY_PER_REQUEST",
    )
    posts = [f"post-{number}" for number in range(BACKFILLED_POSTS)]
    items = [{**typed(post_key(post_id)), "title": {"S": "text"}} for post_id in posts]
    items += [typed(like_key(post_id, f"u{number}")) for post_id in posts for number in range(LIKES_A_POST)]
    puts = [{"PutRequest": {"Item": item}} for item in items]
    chunks = [puts[start : start + 25] for start in range(0, len(puts), 25)]
    with ThreadPoolExecutor(4) as threads:
        written = threads.map(lambda chunk: client.batch_write_item(RequestItems={name: chunk}), chunks)
        assert not any(answer["UnprocessedItems"] for answer in written)
    client.update_table(TableName=name, StreamSpecification={"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"})
    yield name
    client.delete_table(TableName=name)


def tallies(app, table):
    """Return the tallies of all posts that have one."""
    pages = app.dynamodb.get_paginator("scan").paginate(TableName=table, ProjectionExpression="PK, likeTally")
    return {
        item["PK"]["S"]: int(item["likeTally"]["N"]) for page in pages for item in page["Items"] if "likeTally" in item
    }


def test_a_backfill_that_is_interrupted_goes_on_where_it_was(audited_app, foreign_table, tmp_path):
    """20,000 likes of posts that never had a tally, in a table of no stack; nothing is lost by a SIGINT."""
    app, file = audited_app, tmp_path / "backfill"
    command = [Path(sys.executable).parent / "tallyctl", "audit", "--endpoint-url", app.place.endpoint_url]
    command += ["--table-name", foreign_table, "--repair", "--json", "--resume", file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as interrupted:
        # The first round has 256 posts: with more of them filled, it is kept.
        while len(tallies(app, foreign_table)) < 300 and interrupted.poll() is None:
            time.sleep(0.2)
        interrupted.send_signal(signal.SIGINT)
        _, said = interrupted.communicate(timeout=60)
    assert (interrupted.returncode, file.exists()) == (INTERRUPTED, True), said
    assert 256 < len(tallies(app, foreign_table)) < BACKFILLED_POSTS
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, file.exists()) == (0, False), done.stderr
    found = json.loads(done.stdout)
    assert (found["parents"], found["children"]) == (BACKFILLED_POSTS, BACKFILLED_POSTS * LIKES_A_POST)
    assert set(tallies(app, foreign_table).values()) == {LIKES_A_POST}
    assert len(tallies(app, foreign_table)) == BACKFILLED_POSTS


def test_a_table_without_a_stream_is_one_clear_line(audited_app, tallyctl):
    """Nothing would say what changes meanwhile; the line says what to do."""
    name = f"still-{uuid.uuid4().hex[:8]}"
    keys = {"PK": "HASH", "SK": "RANGE"}
    audited_app.dynamodb.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in keys],
        KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys.items()],
        BillingMode="PAY_PER_REQUEST",
    )
    done = tallyctl(["audit", "--endpoint-url", audited_app.place.endpoint_url, "--table-name", name])
    assert (done.returncode, "has no stream" in done.stderr, "Traceback" in done.stderr) == (2, True, False)
    audited_app.dynamodb.delete_table(TableName=name)
