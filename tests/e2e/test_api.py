"""The HTTP API on the embedded AWS: who may call it, and what becomes of ids in the path."""

import json
import uuid

import httpx
import pytest
from botocore.credentials import Credentials

from tallyctl.signing import path_of, signed_headers
from tallystream.keys import like_key

pytestmark = pytest.mark.e2e
REGION = "us-east-1"


@pytest.fixture
def post_id(stream_app):
    """A new post."""
    name = f"post-{uuid.uuid4().hex[:8]}"
    stream_app.create(name)
    return name


def test_a_signed_request_of_the_back_end_is_answered(stream_app, back_end, post_id):
    """A signature with the key of a user who may call the API is accepted."""
    url = stream_app.api.url + path_of("posts", post_id)
    answer = httpx.get(url, headers=signed_headers("GET", url, b"", back_end, REGION))
    assert (answer.status_code, answer.json()["likeTally"]) == (200, 0)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
def test_b38_an_unsigned_request_is_refused(stream_app, post_id, method):
    """No route answers a request without a signature, and none of them writes."""
    path = {
        "GET": ("posts", post_id),
        "POST": ("posts",),
        "PUT": ("posts", post_id, "likes", "u1"),
        "DELETE": ("posts", post_id, "likes", "u1"),
    }[method]
    answer = httpx.request(method, stream_app.api.url + path_of(*path))
    assert answer.status_code == 403
    assert stream_app.children(post_id) == set()


def test_a_signature_with_a_wrong_secret_is_refused(stream_app, back_end, post_id):
    """Knowing the access key id is not enough."""
    url = stream_app.api.url + path_of("posts", post_id)
    forged = Credentials(back_end.access_key, "guessed")
    assert httpx.get(url, headers=signed_headers("GET", url, b"", forged, REGION)).status_code == 403


def test_a_signature_is_good_for_one_path_only(stream_app, back_end, post_id):
    """What was signed for one user's like does not like for another user."""
    signed = stream_app.api.url + path_of("posts", post_id, "likes", "u1")
    other = stream_app.api.url + path_of("posts", post_id, "likes", "u2")
    answer = httpx.put(other, headers=signed_headers("PUT", signed, b"", back_end, REGION))
    assert answer.status_code == 403
    assert stream_app.children(post_id) == set()


def test_a_signature_is_good_for_one_body_only(stream_app, back_end):
    """A body that was changed on the way is refused."""
    url = stream_app.api.url + path_of("posts")
    headers = signed_headers("POST", url, b'{"authorId": "a1", "body": "mine"}', back_end, REGION)
    answer = httpx.post(url, content=b'{"authorId": "a1", "body": "not mine"}', headers=headers)
    assert answer.status_code == 403


def test_a_user_without_rights_is_refused(stream_app, stranger, post_id):
    """A good signature is not enough either: the user needs execute-api:Invoke."""
    url = stream_app.api.url + path_of("posts", post_id)
    assert httpx.get(url, headers=signed_headers("GET", url, b"", stranger, REGION)).status_code == 403


@pytest.mark.parametrize("user_id", ["a?b", "a b", "😀", 'a"b', "a==", "auth0|a:b", "사용자", "a+b", ".", ".."])
def test_b36_an_id_arrives_as_the_client_meant_it(stream_app, back_end, post_id, user_id):
    """Percent-encoded once in a signed path, an id is the same in the answer and in the table."""
    url = stream_app.api.url + path_of("posts", post_id, "likes", user_id)
    answer = httpx.put(url, headers=signed_headers("PUT", url, b"", back_end, REGION))
    assert (answer.status_code, answer.json()["userId"]) == (201, user_id)
    key = like_key(post_id, user_id)
    stored = stream_app.dynamodb.get_item(
        TableName=stream_app.stack.table_name, Key={name: {"S": value} for name, value in key.items()}
    )
    assert "Item" in stored


def test_b36_an_id_with_a_percent_sign_is_one_id(stream_app, post_id):
    """`100%` and `100%25` are two users, each liked and unliked by itself: nothing is decoded twice.

    The embedded AWS hands the percent sign over as `%25`, and says that an HTTP API does; so the key may hold that.
    """
    for user_id in ("100%", "100%25"):
        assert stream_app.api.call("PUT", "posts", post_id, "likes", user_id).status_code == 201
    assert len(stream_app.children(post_id)) == 2
    assert stream_app.api.call("PUT", "posts", post_id, "likes", "100%").status_code == 200
    stream_app.api.call("DELETE", "posts", post_id, "likes", "100%")
    stream_app.api.call("DELETE", "posts", post_id, "likes", "100%25")
    assert stream_app.children(post_id) == set()


@pytest.mark.parametrize(
    ("segments", "status"),
    [(("likes", "a#b"), 400), (("likes", "a/b"), 404), (("likes", "u1", ""), 404), (("likes", "a" * 257), 400)],
)
def test_b36_an_id_that_no_key_may_hold_writes_nothing(stream_app, post_id, segments, status):
    """`#` and over-long ids are a 400; a slash, encoded or at the end, meets no route."""
    answer = stream_app.api.call("PUT", "posts", post_id, *segments)
    assert answer.status_code == status
    assert stream_app.children(post_id) == set()


def test_a_body_travels_unchanged(stream_app):
    """A post's text comes back as it was sent, whatever script it is in."""
    text = json.dumps({"quote": "“좋아요” 👍"}, ensure_ascii=False)
    created = stream_app.api.call("POST", "posts", body={"authorId": "a1", "body": text})
    assert stream_app.api.call("GET", "posts", created.json()["postId"]).json()["body"] == text
