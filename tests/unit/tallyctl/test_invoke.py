"""Which function an event is for, and whom it is about."""

import pytest

from builders import batch, foreign, like, modify, unlike, windowed
from tallyctl.errors import TallyctlError
from tallyctl.invoke import HTTP, STREAM, kind_of, parents_of, read_event, shown
from tallystream.rules import DEFAULT_COUNTERS, Rules

RULES = Rules.parse(DEFAULT_COUNTERS)


def test_an_event_goes_to_the_function_it_is_for():
    """Records or a window are the stream's, a route key is the API's."""
    assert kind_of(batch(like(1))) is STREAM
    assert kind_of({"window": {}, "isFinalInvokeForWindow": True}) is STREAM
    assert kind_of({"version": "2.0", "routeKey": "GET /posts/{postId}"}) is HTTP
    with pytest.raises(TallyctlError, match=r"neither a batch of a stream .* nor an HTTP API request"):
        kind_of({"version": "1.0", "resource": "/posts"})


def test_the_parents_of_a_batch_are_those_that_its_records_count_on():
    """Once each, in order; what counts on nothing has no parent."""
    event = windowed(like(1, "p2"), unlike(2, "p1"), modify(3, "p2"), foreign(4), {"eventName": "INSERT"})
    assert parents_of(event, RULES) == [("POST#p2", "META"), ("POST#p1", "META")]
    assert parents_of({"window": {}}, RULES) == []


def test_the_parent_of_a_request_is_its_post():
    """A request without one, such as the creation of a post, has none."""
    event = {"routeKey": "PUT /posts/{postId}/likes/{userId}", "pathParameters": {"postId": "p1", "userId": "u1"}}
    assert parents_of(event, RULES) == [("POST#p1", "META")]
    assert parents_of({"routeKey": "POST /posts"}, RULES) == []


@pytest.mark.parametrize("text", [None, "", "not JSON", "[]"])
def test_a_file_without_an_event_is_one_clear_line(tmp_path, text):
    """Missing, empty or no object: the line names the file."""
    path = tmp_path / "event.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(TallyctlError, match=r"no event in .*event\.json"):
        read_event(path)


def test_a_post_is_shown_by_its_id_and_anything_else_by_its_keys():
    """For people who know the post, not its keys."""
    assert shown(("POST#p1", "META")) == "p1"
    assert shown(("POST#p1", "COMMENT#c1")) == "POST#p1 / COMMENT#c1"
