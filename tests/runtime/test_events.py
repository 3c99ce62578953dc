"""Every sample event runs in AWS's own Lambda runtime, and does what its name says."""

import json
import shutil
import subprocess
import sys

import pytest
import yaml

from tallyctl import bundle
from tallyctl.emulator import ROOT
from tallystream.settings import Settings

pytestmark = pytest.mark.runtime
EVENTS = ROOT / "events"
DONE = {"batchItemFailures": [], "state": {}}
TALLIES = {
    "like-burst": {"sample-burst": 200},
    "likes-and-unlikes": {"sample-mixed-1": 5, "sample-mixed-2": 10, "sample-mixed-3": 15, "sample-mixed-4": 20},
    "like-and-unlike-of-one-user": {"sample-cancelled": 0},
    "ttl-expiry": {"sample-expired": 1},
    "modify": {"sample-modified": 1},
    "foreign-item": {"sample-foreign": 2},
    "poison-record": {"sample-poisoned": 4},
    "windowed-batch": {"sample-window-1": 3, "sample-window-2": 1},
    "final-window": {},
}
"""What each stream event leaves on its posts, if they had nothing before."""
NO_DONE = {"ttl-expiry": {"batchItemFailures": []}}


def sample(name):
    """The event in a file."""
    return json.loads((EVENTS / f"{name}.json").read_text())


def contents(aws):
    """All that is in the table."""
    pages = aws.dynamodb.get_paginator("scan").paginate(TableName=aws.environment["TABLE_NAME"], ConsistentRead=True)
    found = [item for page in pages for item in page["Items"]]
    return sorted(found, key=lambda item: (item["PK"]["S"], item["SK"]["S"]))


def test_the_files_are_what_their_script_makes():
    """Nobody has edited one, and each has a test below."""
    subprocess.run([sys.executable, EVENTS / "build.py", "--check"], check=True, timeout=60)
    names = {path.stem for path in EVENTS.glob("*.json")}
    assert names == {*TALLIES, "api-put-like", "api-get-post", "env"}


def test_a_file_that_was_edited_is_found(tmp_path):
    """The check fails, and names the edited, the missing and the unknown file."""
    for path in EVENTS.iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    edited = tmp_path / "modify.json"
    edited.write_text(edited.read_text().replace("user-1", "user-2"))
    (tmp_path / "env.json").rename(tmp_path / "new.json")
    checked = subprocess.run(
        [sys.executable, tmp_path / "build.py", "--check"], capture_output=True, text=True, check=False, timeout=60
    )
    assert checked.returncode == 1
    assert checked.stderr.strip() == "not what `make events` makes: env.json, modify.json, new.json"


@pytest.mark.parametrize("name", TALLIES)
def test_a_stream_event_is_counted_once(aws, aggregator, name):
    """It is answered as it should be, its posts show what its name says, and the second time nothing changes."""
    tallies, answer = TALLIES[name], NO_DONE.get(name, DONE)
    for post_id in tallies:
        aws.create(post_id)
    for invocation in ("first", "second"):
        answered = aggregator.invoke(sample(name)).payload
        assert {member: answered.get(member) for member in answer} == answer, invocation
        assert {post_id: aws.tally(post_id) for post_id in tallies} == tallies, invocation
        if invocation == "first":
            before = contents(aws)
    assert contents(aws) == before


def test_only_one_stream_event_has_no_window():
    """The template's default is a window; one sample is of a mapping without."""
    assert [name for name in TALLIES if "window" not in sample(name)] == ["ttl-expiry"]
    assert all(sample(name)["shardId"] for name in TALLIES if name != "ttl-expiry")


def test_no_post_is_in_two_stream_events():
    """Samples may be run in any order, on a table that has seen others of them."""
    posts = [post_id for tallies in TALLIES.values() for post_id in tallies]
    assert len(posts) == len(set(posts))
    for name, tallies in TALLIES.items():
        keys = [record["dynamodb"]["Keys"] for record in sample(name)["Records"]]
        assert {key["PK"]["S"] for key in keys if "PK" in key} == {f"POST#{post_id}" for post_id in tallies}


def test_the_put_event_likes_once(aws, likes_api):
    """201 and a like in the table; the second time 200, and nothing changes."""
    first = likes_api.invoke(sample("api-put-like")).payload
    before = contents(aws)
    again = likes_api.invoke(sample("api-put-like")).payload
    assert (first["statusCode"], again["statusCode"]) == (201, 200)
    assert json.loads(first["body"]) == {"postId": "sample-api", "userId": "user-1", "liked": True}
    assert aws.liked("sample-api", "user-1")
    assert contents(aws) == before


def test_the_get_event_shows_the_post(aws, likes_api):
    """The post, with its tally; reading changes nothing, however often."""
    aws.create("sample-api")
    before = contents(aws)
    answers = [likes_api.invoke(sample("api-get-post")).payload for _ in range(2)]
    assert [answer["statusCode"] for answer in answers] == [200, 200]
    assert answers[0]["body"] == answers[1]["body"]
    assert json.loads(answers[0]["body"])["likeTally"] == 0
    assert contents(aws) == before


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("function", ["AggregatorFunction", "LikesApiFunction"])
def test_the_variables_are_those_of_the_function(function):
    """`sam local` passes on what the template declares and nothing else; the functions can read what the file says."""
    template = yaml.safe_load(bundle.TEMPLATE.read_text())
    scopes = (template["Globals"]["Function"], template["Resources"][function]["Properties"])
    declared = {name for scope in scopes for name in scope["Environment"]["Variables"]}
    variables = sample("env")[function]
    assert variables.keys() == {name for name in declared if not name.startswith("POWERTOOLS_")}
    settings = Settings.from_environment(variables)
    assert (settings.counting_path, settings.table_name) == ("stream", "Social")
