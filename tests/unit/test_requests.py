"""What callers may send, and what they are told when it is something else."""

import base64
import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from http_builders import http_event
from tallystream import requests
from tallystream.requests import BadRequestError, NewPost, Page

GOOD = {"authorId": "ann", "body": "hello"}
LIKES = "GET /posts/{postId}/likes"


def refusal(read, *arguments):
    """Return (code, message) of the refusal that `read` raises."""
    with pytest.raises(BadRequestError) as caught:
        read(*arguments)
    return caught.value.code, str(caught.value)


def post_event(body, **changes):
    """Return an event of POST /posts."""
    return http_event("POST /posts", body=body, **changes)


def path_event(**parameters):
    """Return an event whose path holds these ids."""
    return http_event("GET /posts/{postId}", path_parameters=parameters)


class TestPathId:
    """Ids that come from the path."""

    @pytest.mark.parametrize(
        "post_id",
        [
            "p1", "a/b", "a?b", "a b", "\U0001f600", "100%", "100%25", 'a"b', "a==", "auth0|5f:1", "글쓴이",
            "a%23b", "a%2Fb", "%25", "a&b=c", "x" * 256, "é" * 128, " ", "..", "LIKE", "a\u00a0b", "a\u200db",
        ],
    )  # fmt: skip
    def test_b36_an_id_is_taken_as_it_is(self, post_id):
        """Whatever API Gateway decoded is the id: it is not decoded again."""
        assert requests.path_id(path_event(postId=post_id), "postId") == post_id

    @pytest.mark.parametrize(
        "post_id",
        ["", "a#b", "#x", "LIKE#USER#x", "a\nb", "\x00", "\x7f", "\x85", "x" * 257, "é" * 129, "\ud800", 5, None],
    )
    def test_b27_an_id_that_must_not_be_a_key_is_refused(self, post_id):
        """What is empty, too long, no text, or holds `#` or control characters never becomes a key."""
        code, message = refusal(requests.path_id, path_event(postId=post_id), "postId")
        assert code == "invalid_id"
        assert "postId" in message

    @pytest.mark.parametrize("parameters", [None, {}, {"userId": "u1"}])
    def test_a_missing_id_is_refused(self, parameters):
        """A path without the id is the caller's fault or the integration's, and is no KeyError."""
        event = http_event("GET /posts/{postId}") | {"pathParameters": parameters}
        assert refusal(requests.path_id, event, "postId") == ("invalid_id", "postId is missing from the path")

    def test_an_event_without_path_parameters_is_refused(self):
        """API Gateway leaves pathParameters out where a route has none."""
        assert refusal(requests.path_id, http_event("POST /posts"), "postId")[0] == "invalid_id"

    @given(st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="#"), min_size=1, max_size=64))
    def test_every_script_may_be_in_an_id(self, post_id):
        """An id of up to 64 characters without `#` and control characters is allowed, whatever the script."""
        assert requests.path_id(path_event(postId=post_id), "postId") == post_id


class TestNewPost:
    """The JSON of POST /posts."""

    def test_all_fields_are_read(self):
        """Each field arrives where it belongs."""
        assert requests.new_post(post_event({**GOOD, "postId": "p1"})) == NewPost("p1", "ann", "hello")

    def test_the_post_id_may_be_left_out(self):
        """Without postId the choice is ours."""
        assert requests.new_post(post_event(GOOD)).post_id is None

    def test_a_base64_body_is_decoded(self):
        """API Gateway sends what it takes for binary as base64."""
        body = base64.b64encode(json.dumps(GOOD | {"body": "é"}, ensure_ascii=False).encode()).decode()
        assert requests.new_post(post_event(body, isBase64Encoded=True)).body == "é"

    @pytest.mark.parametrize(
        ("body", "hint"),
        [
            (None, "no body"),
            ("", "no body"),
            ("{", "must be JSON"),
            ("hello", "must be JSON"),
            ("\ufeff{}", "must be JSON"),
            ("[]", "JSON object"),
            ("null", "JSON object"),
            ('"text"', "JSON object"),
            ("\ud800", "UTF-8"),
            ('{"authorId": NaN, "body": ""}', "NaN"),
            ('{"authorId": -Infinity, "body": ""}', "-Infinity"),
            ('{"authorId": ' + "9" * 5000 + "}", "must be JSON"),
            ("[" * 100_000, "nested too deeply"),
            ('{"body": "a", "body": "b", "authorId": "ann"}', "'body' is there twice"),
        ],
    )
    def test_a_body_that_is_no_json_object_is_refused(self, body, hint):
        """The message says what is wrong with the body."""
        code, message = refusal(requests.new_post, post_event(body))
        assert code == "invalid_body"
        assert hint in message

    @pytest.mark.parametrize("raw", [b"\xff\xfe", b'{"body": "\xe9"}', json.dumps(GOOD).encode("utf-16")])
    def test_a_body_that_is_not_utf_8_is_refused(self, raw):
        """JSON between systems is UTF-8, and nothing is guessed."""
        event = post_event(base64.b64encode(raw).decode(), isBase64Encoded=True)
        assert refusal(requests.new_post, event) == ("invalid_body", "the request's body must be UTF-8")

    def test_broken_base64_is_refused(self):
        """A body that claims to be base64 and is not is told so."""
        assert "base64" in refusal(requests.new_post, post_event("{}", isBase64Encoded=True))[1]

    @pytest.mark.parametrize(("extra", "fits"), [(0, True), (1, False)])
    @pytest.mark.parametrize("binary", [False, True])
    def test_the_whole_body_has_a_limit(self, extra, fits, binary):
        """128 KiB of JSON are read, a byte more is refused, and the message names the limit."""
        text = json.dumps(GOOD)
        text += " " * (requests.MAX_JSON_BYTES + extra - len(text))
        event = post_event(base64.b64encode(text.encode()).decode() if binary else text, isBase64Encoded=binary)
        if fits:
            assert requests.new_post(event).author_id == "ann"
        else:
            code, message = refusal(requests.new_post, event)
            assert code == "invalid_body"
            assert "131072" in message

    @pytest.mark.parametrize("field", ["authorId", "body"])
    def test_a_missing_field_is_named(self, field):
        """Both authorId and body are required."""
        body = {name: value for name, value in GOOD.items() if name != field}
        assert refusal(requests.new_post, post_event(body)) == ("missing_field", f"{field} is missing")

    def test_an_unknown_field_is_named(self):
        """A misspelt field is told, not ignored."""
        code, message = refusal(requests.new_post, post_event(GOOD | {"postID": "p1"}))
        assert code == "unknown_field"
        assert "'postID'" in message

    def test_a_message_stays_short_whatever_was_sent(self):
        """A field name of 100 KB does not come back in full."""
        assert len(refusal(requests.new_post, post_event(GOOD | {"x" * 100_000: 1}))[1]) < 200

    @pytest.mark.parametrize("value", [None, 5, 1.5, True, [], {}])
    @pytest.mark.parametrize(
        ("field", "expected"), [("postId", "invalid_id"), ("authorId", "invalid_id"), ("body", "invalid_field")]
    )
    def test_a_field_of_the_wrong_type_is_named(self, field, expected, value):
        """Every field is a string."""
        code, message = refusal(requests.new_post, post_event(GOOD | {field: value}))
        assert code == expected
        assert field in message
        assert "string" in message

    @pytest.mark.parametrize("field", ["postId", "authorId"])
    def test_ids_in_the_body_obey_the_rules_of_ids(self, field):
        """An id is checked wherever it comes from."""
        code, message = refusal(requests.new_post, post_event(GOOD | {field: "a#b"}))
        assert code == "invalid_id"
        assert field in message

    @pytest.mark.parametrize("text", ["", "é" * 32_768, "\U0001f600" * 16_384, "a\x00b", "line\nline"])
    def test_a_text_of_up_to_64_kib_is_taken(self, text):
        """The limit counts UTF-8 bytes, and control characters are part of texts."""
        body = json.dumps(GOOD | {"body": text}, ensure_ascii=False)
        assert requests.new_post(post_event(body)).body == text

    @pytest.mark.parametrize("text", ["x" * 65_537, "é" * 32_769])
    def test_a_longer_text_is_refused(self, text):
        """One byte too many is refused by name."""
        code, message = refusal(requests.new_post, post_event(json.dumps(GOOD | {"body": text}, ensure_ascii=False)))
        assert code == "invalid_field"
        assert "body must be at most 65536 bytes" in message

    def test_half_of_a_surrogate_pair_is_refused(self):
        """JSON can spell it, but DynamoDB cannot hold it."""
        code, message = refusal(requests.new_post, post_event('{"authorId": "ann", "body": "\\ud83d"}'))
        assert code == "invalid_field"
        assert "body" in message

    @given(st.text() | st.binary())
    def test_no_body_at_all_breaks_the_reader(self, body):
        """Any text or bytes are a post or a refusal, never another error."""
        event = (
            post_event(body)
            if isinstance(body, str)
            else post_event(base64.b64encode(body).decode(), isBase64Encoded=True)
        )
        assert refusal(requests.new_post, event)[0] in {"invalid_body", "missing_field", "unknown_field"}


class TestPage:
    """limit and cursor of GET /posts/{postId}/likes."""

    def page(self, **query):
        """Return the page that this query asks for, of the likes of p1."""
        return requests.page(http_event(LIKES, path_parameters={"postId": "p1"}, query=query), "p1")

    def test_without_a_query_it_is_the_first_25(self):
        """API Gateway leaves queryStringParameters out where there is no query."""
        event = http_event(LIKES, path_parameters={"postId": "p1"})
        assert requests.page(event, "p1") == Page(25, None)

    @pytest.mark.parametrize(("limit", "expected"), [("1", 1), ("100", 100), ("007", 7)])
    def test_the_limit_may_be_1_to_100(self, limit, expected):
        """Both ends are included."""
        assert self.page(limit=limit).limit == expected

    @pytest.mark.parametrize(
        "limit",
        [
            "0",
            "101",
            "-1",
            "+1",
            "1.0",
            "1e1",
            "ten",
            "",
            " 5",
            "1_0",
            "\N{ARABIC-INDIC DIGIT FIVE}",
            "1,2",
            "9" * 5000,
        ],
    )
    def test_any_other_limit_is_refused(self, limit):
        """What int() would let through, such as 1_0 and digits of other scripts, is refused as well."""
        code, message = refusal(lambda: self.page(limit=limit))
        assert code == "invalid_limit"
        assert message.startswith("limit must be an integer from 1 to 100")

    @given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
    def test_a_cursor_leads_back_to_its_user(self, user_id):
        """Whatever the user's id, the cursor is safe in a URL and leads back to it."""
        cursor = requests.cursor_after("p1", user_id)
        assert set(cursor) <= set(string.ascii_letters + string.digits + "-_")
        assert self.page(cursor=cursor).after == user_id

    @pytest.mark.parametrize(
        "cursor",
        [
            "", "x", "????", "é", "u1", "a" * 5000, "W10", "bnVsbA", "eyJhIjoxfQ", "WzEsMl0", "//+/", "gIA",
            base64.urlsafe_b64encode(b"[" * 100_000).decode(),
        ],
    )  # fmt: skip
    def test_what_is_no_cursor_is_refused(self, cursor):
        """An empty text, other JSON, other bytes and other alphabets are no cursors."""
        code, message = refusal(lambda: self.page(cursor=cursor))
        assert code == "invalid_cursor"
        assert "cursor" in message

    def test_a_cursor_of_another_post_is_refused(self):
        """The checksum binds a cursor to its post."""
        assert refusal(lambda: self.page(cursor=requests.cursor_after("p2", "u1")))[0] == "invalid_cursor"

    @given(st.data())
    def test_a_cursor_with_another_character_anywhere_is_refused(self, data):
        """No character of a cursor can be changed, added or removed unnoticed."""
        cursor = requests.cursor_after("p1", "user-1")
        place = data.draw(st.integers(0, len(cursor) - 1))
        other = data.draw(
            st.sampled_from(string.ascii_letters + string.digits + "-_=").filter(lambda c: c != cursor[place])
        )
        changed = data.draw(
            st.sampled_from(
                [
                    cursor[:place] + other + cursor[place + 1 :],
                    cursor[:place] + cursor[place + 1 :],
                    cursor + other,
                ]
            )
        )
        assert refusal(lambda: self.page(cursor=changed))[0] == "invalid_cursor"
