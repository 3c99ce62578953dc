"""What the items' keys look like, and which ids may become part of a key.

One table, string keys: a post is `POST#<postId>` / `META`, a like is `POST#<postId>` / `LIKE#USER#<userId>`.
"""

import unicodedata

META = "META"
POST_PREFIX = "POST#"
LIKE_PREFIX = "LIKE#USER#"
MAX_ID_BYTES = 256


class InvalidId(ValueError):
    """An id that must not become part of a key; the message names the field and the rule."""


def check_id(name: str, value: object) -> str:
    """Return `value` if it may become part of a key.

    After it: a string of 1 to 256 UTF-8 bytes, without `#` (it separates the parts of a key, so `a#b` and `a` could
    be taken for each other) and without control characters (Unicode category Cc). Everything else is allowed:
    identity providers' subjects hold `|`, `:`, `=` and letters of any script.

    Raises:
        InvalidId: for anything else; `name` stands in the message.
    """
    if not isinstance(value, str):
        raise InvalidId(f"{name} must be a string, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidId(f"{name} must be valid Unicode: it holds half of a surrogate pair") from None
    if not 1 <= size <= MAX_ID_BYTES:
        raise InvalidId(f"{name} must be 1 to {MAX_ID_BYTES} bytes long in UTF-8, not {size}")
    if "#" in value:
        raise InvalidId(f"{name} must not contain '#': it separates the parts of a key")
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise InvalidId(f"{name} must not contain control characters")
    return value


def post_key(post_id: str) -> dict[str, str]:
    """Return the key of a post's item; `post_id` has passed `check_id`."""
    return {"PK": POST_PREFIX + post_id, "SK": META}


def like_key(post_id: str, user_id: str) -> dict[str, str]:
    """Return the key of a like's item; both ids have passed `check_id`."""
    return {"PK": POST_PREFIX + post_id, "SK": LIKE_PREFIX + user_id}
