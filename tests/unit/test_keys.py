"""Ids that may become part of a key, and the keys made of them."""

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tallystream.keys import MAX_ID_BYTES, InvalidId, check_id, like_key, post_key

VALID = [
    "p1",
    "auth0|5f7c8ec7c33c6c004bbafe82",
    "google-oauth2:1089",
    "a==",
    "100%",
    "a/b",
    "a?b",
    'a"b',
    " ",
    "한국어",
    "日本",
    "Ελλάδα",
    "عربى",
    "हिन्दी",
    "e\u0301",
    "😀",
    "👨‍👩‍👧",
    "\u2028",
    "a" * 256,
    "é" * 128,
    "한" * 85,
    "😀" * 64,
]
INVALID = [
    ("", "1 to 256 bytes"),
    ("a" * 257, "not 257"),
    ("é" * 129, "not 258"),
    ("한" * 86, "not 258"),
    ("😀" * 65, "not 260"),
    ("a#b", "'#'"),
    ("#", "'#'"),
    ("#x", "'#'"),
    ("LIKE#USER#x", "'#'"),
    ("a\x00", "control"),
    ("a\nb", "control"),
    ("\t", "control"),
    ("\x1f", "control"),
    ("\x7f", "control"),
    ("\x85", "control"),
    ("\x9f", "control"),
    ("\ud83d", "surrogate"),
    ("a\udc00b", "surrogate"),
    (None, "not NoneType"),
    (5, "not int"),
    (True, "not bool"),
    (b"p1", "not bytes"),
    (["p1"], "not list"),
]


@pytest.mark.parametrize("value", VALID)
def test_an_id_of_any_script_up_to_256_bytes_is_kept_as_it_is(value):
    """Every script, every punctuation but one and every length up to the limit is an id."""
    assert check_id("postId", value) is value


@pytest.mark.parametrize(("value", "reason"), INVALID)
def test_b27_what_is_no_id_is_refused_with_the_field_and_the_rule(value, reason):
    """A `#`, a control character, half a surrogate pair, a wrong length or type is named beside the field."""
    with pytest.raises(InvalidId, match=r"^userId must") as refused:
        check_id("userId", value)
    assert reason in str(refused.value)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=[]), max_size=300))
@example("\ud800#")
def test_any_text_is_either_a_safe_part_of_a_key_or_refused(text):
    """Whatever is accepted encodes to 1 to 256 bytes and holds neither `#` nor a control character, and only that."""
    try:
        encoded = check_id("postId", text).encode()
    except InvalidId:
        broken = any("\ud800" <= character <= "\udfff" for character in text)
        control = any(unicodedata.category(character) == "Cc" for character in text)
        assert broken or control or "#" in text or not 1 <= len(text.encode()) <= MAX_ID_BYTES
    else:
        assert 1 <= len(encoded) <= MAX_ID_BYTES
        assert b"#" not in encoded
        assert not any(unicodedata.category(character) == "Cc" for character in text)


def test_the_keys_are_the_table_s_contract():
    """Posts and likes have the keys that other programs read them by."""
    assert post_key("p1") == {"PK": "POST#p1", "SK": "META"}
    assert like_key("p1", "auth0|u1") == {"PK": "POST#p1", "SK": "LIKE#USER#auth0|u1"}
