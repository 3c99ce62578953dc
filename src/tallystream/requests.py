"""What a caller may send: reading HTTP API events (payload format 2.0) into checked values.

Nothing here talks to DynamoDB. Whatever a caller gets wrong is a `BadRequestError` whose message names the field.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from tallystream.keys import InvalidId, check_id

Event = Mapping[str, Any]

MAX_JSON_BYTES = 128 * 1024
MAX_TEXT_BYTES = 64 * 1024
DEFAULT_LIMIT = 25
MAX_LIMIT = 100

_POST_FIELDS = ("postId", "authorId", "body")
# Not int() alone: it also takes "1_0", " 5 " and digits of other scripts.
_LIMIT = re.compile(r"[0-9]{1,9}")
# A caller's own text goes back in a message only in part: the answer stays small whatever was sent.
_SHOWN = 64


class BadRequestError(Exception):
    """A request that its sender must change; `code` is for programs, the message names the field."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class NewPost:
    """A post that somebody wants to create; `post_id` is None where the caller leaves the choice to us."""

    post_id: str | None
    author_id: str
    body: str


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is wanted: at most `limit` likes, those after the user `after` (None: from the first)."""

    limit: int
    after: str | None


def path_id(event: Event, name: str) -> str:
    """Return the id that the path names, as DynamoDB is to hold it.

    API Gateway has decoded `pathParameters` already: `100%25` in the URL is `100%` here. It is not decoded again, for
    then `a%2523b` would become `a#b`.

    Raises:
        BadRequestError: the path has no such id, or it may not become part of a key.
    """
    parameters = event.get("pathParameters") or {}
    if name not in parameters:
        raise BadRequestError("invalid_id", f"{name} is missing from the path")
    return _id(name, parameters[name])


def new_post(event: Event) -> NewPost:
    """Return the post that the request's JSON describes: `{postId?, authorId, body}`, and nothing else.

    Raises:
        BadRequestError: the JSON is missing, too large, not UTF-8, not JSON or not an object, or a field is missing,
            unknown, of the wrong type or out of its bounds.
    """
    fields = _json_object(event)
    for name in fields:
        if name not in _POST_FIELDS:
            raise BadRequestError(
                "unknown_field", f"{name[:_SHOWN]!r} is unknown; a post has {', '.join(_POST_FIELDS)}"
            )
    for name in ("authorId", "body"):
        if name not in fields:
            raise BadRequestError("missing_field", f"{name} is missing")
    return NewPost(
        post_id=_id("postId", fields["postId"]) if "postId" in fields else None,
        author_id=_id("authorId", fields["authorId"]),
        body=_text("body", fields["body"]),
    )


def page(event: Event, post_id: str) -> Page:
    """Return which likes of `post_id` the query string (`limit`, `cursor`) asks for.

    Raises:
        BadRequestError: `limit` is not an integer from 1 to 100, or `cursor` is not one that `cursor_after` made for
            this post.
    """
    query = event.get("queryStringParameters") or {}
    limit = query.get("limit", str(DEFAULT_LIMIT))
    if not _LIMIT.fullmatch(limit) or not 1 <= int(limit) <= MAX_LIMIT:
        raise BadRequestError(
            "invalid_limit", f"limit must be an integer from 1 to {MAX_LIMIT}, not {limit[:_SHOWN]!r}"
        )
    cursor = query.get("cursor")
    return Page(int(limit), None if cursor is None else _user_of(cursor, post_id))


def cursor_after(post_id: str, user_id: str) -> str:
    """Return the opaque cursor of the page that begins after this user's like of this post.

    Its checksum finds cursors that were cut, changed or taken from another post. It is no signature: the partition
    key comes from the path, so a forged cursor can do no more than choose where in that post's likes to begin.
    """
    checksum = hashlib.sha256(json.dumps([post_id, user_id]).encode()).hexdigest()[:16]
    return base64.urlsafe_b64encode(json.dumps([user_id, checksum]).encode()).decode().rstrip("=")


def _user_of(cursor: str, post_id: str) -> str:
    """Return the user id inside a cursor that `cursor_after` made for this post."""
    problem = BadRequestError("invalid_cursor", "cursor is not one that a list of this post's likes returned")
    padding = "=" * (-len(cursor) % 4)
    try:
        content = json.loads(base64.b64decode(cursor + padding, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):  # not base64url, not UTF-8, not JSON
        raise problem from None
    match content:
        # Compared as a whole: base64 and JSON both have several spellings of one content.
        case [str(user_id), str()] if cursor == cursor_after(post_id, user_id):
            return user_id
    raise problem


def _json_object(event: Event) -> dict[str, Any]:
    """Return the JSON object in the request's body."""
    raw = _raw_body(event)
    if len(raw) > MAX_JSON_BYTES:
        raise BadRequestError(
            "invalid_body", f"the request's body must be at most {MAX_JSON_BYTES} bytes long, not {len(raw)}"
        )
    try:
        content = json.loads(raw.decode(), object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except UnicodeDecodeError:
        raise BadRequestError("invalid_body", "the request's body must be UTF-8") from None
    except RecursionError:
        raise BadRequestError("invalid_body", "the request's body is nested too deeply") from None
    except ValueError as error:  # not JSON, or an integer of more than 4,300 digits
        raise BadRequestError("invalid_body", f"the request's body must be JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadRequestError("invalid_body", "the request's body must be a JSON object")
    return content


def _raw_body(event: Event) -> bytes:
    """Return the request's body as it came, which API Gateway hands over as base64 if it takes it for binary."""
    text = event.get("body")
    if not isinstance(text, str) or not text:
        raise BadRequestError("invalid_body", "the request has no body: it must be a JSON object")
    try:
        return base64.b64decode(text, validate=True) if event.get("isBase64Encoded") else text.encode()
    except ValueError:
        raise BadRequestError("invalid_body", "the request's body must be UTF-8, or base64 of it") from None


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object's fields; which of two values of one name was meant, nobody can tell."""
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise BadRequestError("invalid_body", f"{name[:_SHOWN]!r} is there twice")
        fields[name] = value
    return fields


def _refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and the infinities: Python's reader takes them, but JSON has none."""
    raise BadRequestError("invalid_body", f"the request's body must be JSON, which has no {name}")


def _id(name: str, value: object) -> str:
    """Return an id that has passed `check_id`."""
    try:
        return check_id(name, value)
    except InvalidId as error:
        raise BadRequestError("invalid_id", str(error)) from error


def _text(name: str, value: object) -> str:
    """Return a text that DynamoDB can hold."""
    if not isinstance(value, str):
        raise BadRequestError("invalid_field", f"{name} must be a string, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise BadRequestError(
            "invalid_field", f"{name} must be valid Unicode: it holds half of a surrogate pair"
        ) from None
    if size > MAX_TEXT_BYTES:
        raise BadRequestError(
            "invalid_field", f"{name} must be at most {MAX_TEXT_BYTES} bytes long in UTF-8, not {size}"
        )
    return value
