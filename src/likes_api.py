"""The HTTP API: `handler(event, context)` turns events of API Gateway (payload format 2.0) into answers.

Thin on purpose: requests are read in `tallystream.requests`, and what they do is in `tallystream.likes` and
`tallystream.posts`. Every route needs AWS_IAM: the app's own back end calls, signed, and the path says which user
acts. No browser calls, so there is no CORS and no OPTIONS route; a token of a user is read nowhere.
"""

import json
import os
import random
import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import boto3
from aws_lambda_powertools import Logger
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tallystream import requests
from tallystream.faults import Kind, kind_of
from tallystream.likes import Backoff, BusyError, StreamPath, TransactionPath
from tallystream.posts import PostExistsError, PostNotFoundError, Posts
from tallystream.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Response = dict[str, object]
Route = Callable[[requests.Event], Response]

PAYLOAD_VERSION = "2.0"
RETRY_AFTER_S = "1"
# DynamoDB answers within milliseconds; API Gateway gives up after 30 s, and the caller much sooner.
CONFIG = Config(connect_timeout=1, read_timeout=3, retries={"mode": "standard", "total_max_attempts": 3})
# 503 and not 409 for conflicts too: other requests were in the way, and nothing in this one needs a change.
BUSY = {
    Kind.THROTTLED: ("throttled", "too many requests just now; repeat this one"),
    Kind.UNAVAILABLE: ("unavailable", "no answer from the table, so a write may have happened; repeat the request"),
    Kind.CONFLICT: ("conflict", "too many simultaneous writes to this post; repeat the request"),
}


def _path(settings: Settings, client: "DynamoDBClient") -> StreamPath | TransactionPath:
    """Return the counting path that the stack was deployed with."""
    backoff = Backoff(sleep=time.sleep, random=random.random)
    if settings.counting_path == "stream":
        return StreamPath(client, settings.table_name, backoff)
    return TransactionPath(client, settings.table_name, backoff, settings.rules, new_token=lambda: str(uuid.uuid4()))


logger = Logger()
_settings = Settings.from_environment(os.environ)
_client = boto3.client("dynamodb", config=CONFIG)
_likes = _path(_settings, _client)
_posts = Posts(_client, _settings.table_name, _settings.rules)


def handler(event: requests.Event, context: object) -> Response:  # noqa: ARG001 - Lambda passes it to every handler
    """Answer one request; what is answered, and when, is in the table of routes in the README.

    An unexpected error is raised: API Gateway answers 500, and Lambda's metric Errors and its alarm see it.
    """
    response = _respond(event)
    logger.info("answered", route=event.get("routeKey"), status=response["statusCode"])
    return response


def _respond(event: requests.Event) -> Response:
    if event.get("version") != PAYLOAD_VERSION:
        return _error(
            500,
            "unsupported_payload_version",
            f"this function reads payload format {PAYLOAD_VERSION}, not {event.get('version')!r}: set "
            f"PayloadFormatVersion {PAYLOAD_VERSION} on the integration",
        )
    route = ROUTES.get(event.get("routeKey", ""))
    if route is None:
        return _error(404, "route_not_found", f"there is no route {event.get('routeKey')!r}")
    return _answer(route, event)


def _answer(route: Route, event: requests.Event) -> Response:
    try:
        return route(event)
    except requests.BadRequestError as error:
        return _error(400, error.code, str(error))
    except PostNotFoundError as error:
        return _error(404, "post_not_found", str(error))
    except PostExistsError as error:
        return _error(409, "post_exists", str(error))
    except (BusyError, BotoCoreError, ClientError) as error:
        kind = error.kind if isinstance(error, BusyError) else kind_of(error)
        if kind not in BUSY:
            raise
        return _error(503, *BUSY[kind], {"retry-after": RETRY_AFTER_S})


def _put_like(event: requests.Event) -> Response:
    post_id, user_id = requests.path_id(event, "postId"), requests.path_id(event, "userId")
    new = _likes.like(post_id, user_id, int(time.time()))
    return _response(201 if new else 200, {"postId": post_id, "userId": user_id, "liked": True})


def _delete_like(event: requests.Event) -> Response:
    post_id, user_id = requests.path_id(event, "postId"), requests.path_id(event, "userId")
    _likes.unlike(post_id, user_id)
    return _response(200, {"postId": post_id, "userId": user_id, "liked": False})


def _create_post(event: requests.Event) -> Response:
    post = requests.new_post(event)
    post_id = post.post_id or uuid.uuid4().hex
    return _response(201, _posts.create(post_id, post.author_id, post.body, int(time.time())))


def _read_post(event: requests.Event) -> Response:
    return _response(200, _posts.read(requests.path_id(event, "postId")))


def _list_likes(event: requests.Event) -> Response:
    post_id = requests.path_id(event, "postId")
    page = requests.page(event, post_id)
    likes, last = _posts.likes(post_id, limit=page.limit, after=page.after)
    cursor = None if last is None else requests.cursor_after(post_id, last)
    return _response(200, {"likes": likes, "cursor": cursor})


ROUTES: Mapping[str, Route] = {
    "PUT /posts/{postId}/likes/{userId}": _put_like,
    "DELETE /posts/{postId}/likes/{userId}": _delete_like,
    "POST /posts": _create_post,
    "GET /posts/{postId}": _read_post,
    "GET /posts/{postId}/likes": _list_likes,
}


def _error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return _response(status, {"error": {"code": code, "message": message}}, headers)


def _response(status: int, body: Mapping[str, object], headers: Mapping[str, str] | None = None) -> Response:
    return {
        "statusCode": status,
        "headers": {"content-type": "application/json", **(headers or {})},
        "body": json.dumps(body),
    }
