"""The HTTP API from event to answer, against moto's DynamoDB: every route, both counting paths, every error."""

import json
import sys

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError

from http_builders import REGION, TABLE, cancelled, client_error, http_event, item, items, plant, social_table

PUT = "PUT /posts/{postId}/likes/{userId}"
DELETE = "DELETE /posts/{postId}/likes/{userId}"
CREATE = "POST /posts"
READ = "GET /posts/{postId}"
LIST = "GET /posts/{postId}/likes"
P1 = {"postId": "p1"}
P1_U1 = {"postId": "p1", "userId": "u1"}


class Api:
    """The handler as API Gateway calls it, and the client it uses."""

    def __init__(self, module):
        self.module = module
        self.client = module._client

    def answer(self, route_key, **event):
        """Return (status, headers, body as a JSON value) of the answer to a request."""
        return self.answer_to(http_event(route_key, **event))

    def answer_to(self, event):
        """Return (status, headers, body as a JSON value) of the answer to an event."""
        response = self.module.handler(event, None)
        assert set(response) == {"statusCode", "headers", "body"}
        assert response["headers"]["content-type"] == "application/json"
        return response["statusCode"], response["headers"], json.loads(response["body"])

    def call(self, route_key, **event):
        """Return (status, body) of the answer to a request."""
        status, _, body = self.answer(route_key, **event)
        return status, body

    def error(self, route_key, **event):
        """Return (status, code, message) of the answer to a request that fails."""
        status, body = self.call(route_key, **event)
        assert set(body) == {"error"}
        assert set(body["error"]) == {"code", "message"}
        return status, body["error"]["code"], body["error"]["message"]


@pytest.fixture
def table():
    """Give a client with the table."""
    with social_table() as client:
        yield client


@pytest.fixture
def deploy(table, monkeypatch):
    """Give a function that imports the handler anew for a counting path, as a cold start does."""
    assert table

    def start(counting_path="stream"):
        monkeypatch.setenv("TABLE_NAME", TABLE)
        monkeypatch.setenv("COUNTING_PATH", counting_path)
        monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
        monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "likes-api")
        monkeypatch.delenv("COUNTERS", raising=False)
        monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
        monkeypatch.setattr("time.sleep", lambda _: None)
        monkeypatch.delitem(sys.modules, "likes_api", raising=False)
        import likes_api  # noqa: PLC0415 - the module reads its environment when it is imported

        return Api(likes_api)

    return start


@pytest.fixture
def stream(deploy):
    """Give the API of a stack whose tallies come from the stream."""
    return deploy()


@pytest.fixture
def transaction(deploy):
    """Give the API of a stack whose tallies are kept in transactions."""
    return deploy("transaction")


@pytest.fixture(params=["stream", "transaction"])
def api(request):
    """Give the API on each counting path, with post p1."""
    api = request.getfixturevalue(request.param)
    assert api.call(CREATE, body={"postId": "p1", "authorId": "ann", "body": "hello"})[0] == 201
    return api


class TestLikes:
    """PUT and DELETE of likes."""

    def test_b11_a_like_is_created_once(self, api, table):
        """PUT twice is 201, then 200, and the second writes nothing: no record of it could be counted."""
        liked = {"postId": "p1", "userId": "u1", "liked": True}
        assert api.call(PUT, path_parameters=P1_U1) == (201, liked)
        before = table.scan(TableName=TABLE)["Items"]
        assert api.call(PUT, path_parameters=P1_U1) == (200, liked)
        assert table.scan(TableName=TABLE)["Items"] == before

    def test_b12_an_expired_like_is_shown_until_it_is_deleted(self, api, table):
        """The list follows the items, as tally and audit do: what DynamoDB has not deleted yet is still a like."""
        key = {"PK": {"S": "POST#p1"}, "SK": {"S": "LIKE#USER#u1"}}
        table.put_item(TableName=TABLE, Item={**key, "likedAt": {"N": "1"}, "ttl": {"N": "2"}})
        assert api.call(LIST, path_parameters=P1)[1]["likes"] == [{"userId": "u1", "likedAt": 1}]
        assert api.call(PUT, path_parameters=P1_U1)[0] == 200

    def test_b05_an_unlike_is_200_whether_or_not_there_was_a_like(self, api):
        """DELETE twice is 200 both times, and so is that of a user who never liked; the tally ends at 0."""
        api.call(PUT, path_parameters=P1_U1)
        for user in ("u1", "u1", "u9"):
            unliked = {"postId": "p1", "userId": user, "liked": False}
            assert api.call(DELETE, path_parameters={"postId": "p1", "userId": user}) == (200, unliked)
        assert api.call(READ, path_parameters=P1)[1]["likeTally"] == 0

    @pytest.mark.parametrize(("path", "tally"), [("stream", 0), ("transaction", 1)])
    def test_the_tally_is_the_aggregators_or_the_transactions(self, deploy, path, tally):
        """With the stream path the API itself never touches the post."""
        api = deploy(path)
        api.call(CREATE, body={"postId": "p1", "authorId": "ann", "body": "hello"})
        api.call(PUT, path_parameters=P1_U1)
        assert api.call(READ, path_parameters=P1)[1]["likeTally"] == tally

    def test_a_like_of_a_missing_post_is_stored_on_the_stream_path(self, stream):
        """One conditional write cannot see the post."""
        assert stream.call(PUT, path_parameters=P1_U1)[0] == 201

    @pytest.mark.parametrize("route", [PUT, DELETE])
    def test_a_like_of_a_missing_post_is_404_on_the_transaction_path(self, transaction, table, route):
        """The transaction finds that the post is missing and writes nothing."""
        status, code, message = transaction.error(route, path_parameters=P1_U1)
        assert (status, code) == (404, "post_not_found")
        assert "p1" in message
        assert items(table) == []

    @pytest.mark.parametrize(
        "user_id",
        ["a/b", "a?b", "a b", "\U0001f600", "100%", "100%25", "a%23b", 'a"b', "a==", "a+b", "b/", "auth0|1:2", "글"],
    )
    def test_b36_the_id_in_the_table_is_the_one_in_the_path(self, api, table, user_id):
        """An id of any script comes back in the answer and lies in the key as it was sent: nothing decodes it again."""
        status, body = api.call(PUT, path_parameters={"postId": "p1", "userId": user_id})
        assert (status, body["userId"]) == (201, user_id)
        assert item(table, "POST#p1", f"LIKE#USER#{user_id}") is not None
        assert api.call(LIST, path_parameters=P1)[1]["likes"][0]["userId"] == user_id

    @pytest.mark.parametrize("raw_path", ["/posts/p1/likes/a b", "/posts/p1/likes/a%20b", "/posts/x/likes/y/"])
    def test_b36_the_raw_path_is_never_read(self, api, table, raw_path):
        """Whether rawPath is still encoded depends on what stands in front; the ids come from pathParameters."""
        event = http_event(PUT, path_parameters={"postId": "p1", "userId": "a b"})
        assert api.answer_to(event | {"rawPath": raw_path})[0] == 201
        assert items(table) == [("POST#p1", "LIKE#USER#a b"), ("POST#p1", "META")]

    @pytest.mark.parametrize("user_id", ["a#b", "#x", "LIKE#USER#x", "", "a\tb", "x" * 257])
    @pytest.mark.parametrize("route", [PUT, DELETE])
    def test_b27_an_id_that_must_not_be_a_key_is_400(self, api, route, user_id):
        """The answer names the parameter."""
        status, code, message = api.error(route, path_parameters={"postId": "p1", "userId": user_id})
        assert (status, code) == (400, "invalid_id")
        assert "userId" in message

    @pytest.mark.parametrize("route", [PUT, DELETE, READ, LIST])
    def test_a_path_without_ids_is_400(self, api, route):
        """Missing path parameters are a clear answer, not a crash."""
        assert api.error(route)[:2] == (400, "invalid_id")
        assert api.answer_to(http_event(route) | {"pathParameters": None})[0] == 400


class TestPosts:
    """POST and GET of posts, and the list of likes."""

    def test_a_post_is_created_and_read(self, stream, monkeypatch):
        """The two answers are the same post."""
        monkeypatch.setattr(stream.module.time, "time", lambda: 1_767_225_600.9)
        post = {"postId": "p1", "authorId": "ann", "body": "héllo", "createdAt": 1_767_225_600, "likeTally": 0}
        assert stream.call(CREATE, body={"postId": "p1", "authorId": "ann", "body": "héllo"}) == (201, post)
        assert stream.call(READ, path_parameters=P1) == (200, post)

    def test_a_post_without_an_id_gets_one(self, stream):
        """Each gets another, which leads to it."""
        first, second = (stream.call(CREATE, body={"authorId": "ann", "body": "hello"})[1] for _ in range(2))
        assert first["postId"] != second["postId"]
        assert stream.call(READ, path_parameters={"postId": first["postId"]}) == (200, first)

    def test_an_id_that_is_taken_is_409(self, api):
        """The answer names the post."""
        status, code, message = api.error(CREATE, body={"postId": "p1", "authorId": "bob", "body": "mine"})
        assert (status, code) == (409, "post_exists")
        assert "p1" in message

    @pytest.mark.parametrize(
        ("body", "code"),
        [
            (None, "invalid_body"),
            ("{", "invalid_body"),
            ([], "invalid_body"),
            ({"body": "x"}, "missing_field"),
            ({"authorId": "ann", "body": 5}, "invalid_field"),
            ({"authorId": "a#b", "body": "x"}, "invalid_id"),
            ({"authorId": "ann", "body": "x", "likeTally": 5}, "unknown_field"),
        ],
    )
    def test_a_bad_body_is_400(self, stream, table, body, code):
        """Nothing is stored, and the tally is not the caller's to set."""
        assert stream.error(CREATE, body=body)[:2] == (400, code)
        assert items(table) == []

    def test_a_missing_post_is_404(self, stream):
        """The answer names the post."""
        status, code, message = stream.error(READ, path_parameters=P1)
        assert (status, code) == (404, "post_not_found")
        assert "p1" in message

    @pytest.mark.parametrize(
        ("stored", "shown"), [({"likeTally": {"N": "5"}}, "5"), ({}, "0"), ({"likeTally": {"N": "-1"}}, "-1")]
    )
    def test_b26_a_tally_is_a_json_integer(self, stream, table, stored, shown):
        """Neither a string nor a float; a negative one is shown as it is, for it tells of a fault."""
        table.put_item(TableName=TABLE, Item={"PK": {"S": "POST#p1"}, "SK": {"S": "META"}, **stored})
        response = stream.module.handler(http_event(READ, path_parameters=P1), None)
        assert f'"likeTally": {shown}}}' in response["body"]

    def test_marks_are_left_out(self, stream, table):
        """They are the aggregator's business."""
        mark = {"M": {"seq": {"S": "1"}, "at": {"N": "1"}}}
        table.put_item(TableName=TABLE, Item={"PK": {"S": "POST#p1"}, "SK": {"S": "META"}, "mark#1": mark})
        assert "mark" not in stream.module.handler(http_event(READ, path_parameters=P1), None)["body"]

    def test_likes_are_listed_page_by_page(self, api):
        """The cursor of one page leads to the next, and the last page has none."""
        for user in ("a", "b", "c"):
            api.call(PUT, path_parameters={"postId": "p1", "userId": user})
        status, first = api.call(LIST, path_parameters=P1, query={"limit": "2"})
        assert status == 200
        assert [like["userId"] for like in first["likes"]] == ["a", "b"]
        assert all(type(like["likedAt"]) is int for like in first["likes"])
        second = api.call(LIST, path_parameters=P1, query={"limit": "2", "cursor": first["cursor"]})[1]
        assert [like["userId"] for like in second["likes"]] == ["c"]
        assert second["cursor"] is None

    def test_a_cursor_of_another_post_is_400(self, api):
        """A cursor is good for the list that returned it."""
        for user in ("a", "b"):
            api.call(PUT, path_parameters={"postId": "p1", "userId": user})
        cursor = api.call(LIST, path_parameters=P1, query={"limit": "1"})[1]["cursor"]
        status, code, _ = api.error(LIST, path_parameters={"postId": "p2"}, query={"cursor": cursor})
        assert (status, code) == (400, "invalid_cursor")

    def test_a_bad_limit_is_400(self, stream):
        """The answer names the limit."""
        status, code, message = stream.error(LIST, path_parameters=P1, query={"limit": "101"})
        assert (status, code) == (400, "invalid_limit")
        assert "limit" in message


class TestFaults:
    """What the caller is told when it is not the caller's fault."""

    OPERATIONS = (
        (PUT, "PutItem", {"path_parameters": P1_U1}),
        (DELETE, "DeleteItem", {"path_parameters": P1_U1}),
        (CREATE, "PutItem", {"body": {"authorId": "ann", "body": "hello"}}),
        (READ, "GetItem", {"path_parameters": P1}),
        (LIST, "Query", {"path_parameters": P1}),
    )

    @pytest.mark.parametrize(("route", "operation", "event"), OPERATIONS)
    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (client_error("ThrottlingException"), "throttled"),
            (client_error("ProvisionedThroughputExceededException"), "throttled"),
            (client_error("InternalServerError", status=500), "unavailable"),
            (ReadTimeoutError(endpoint_url="x"), "unavailable"),
            (ConnectTimeoutError(endpoint_url="x"), "unavailable"),
            (EndpointConnectionError(endpoint_url="x"), "unavailable"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
    )
    def test_a_busy_table_is_503_with_retry_after(self, stream, route, operation, event, error, code):
        """Every route says when to come again."""
        plant(stream.client, operation, error)
        status, headers, body = stream.answer(route, **event)
        assert (status, headers["retry-after"], body["error"]["code"]) == (503, "1", code)

    @pytest.mark.parametrize("route", [PUT, DELETE])
    @pytest.mark.parametrize(
        ("reason", "code"), [("ThrottlingError", "throttled"), ("TransactionConflict", "conflict")]
    )
    @pytest.mark.parametrize("position", [0, 1], ids=["the like", "the post"])
    def test_b31_a_transaction_that_is_cancelled_for_load_is_503(self, transaction, route, reason, code, position):
        """A throttle at once, a conflict after its retries, wherever it is."""
        reasons = ["None", "None"]
        reasons[position] = reason
        plant(transaction.client, "TransactWriteItems", *[cancelled(*reasons)] * 6)
        status, headers, body = transaction.answer(route, path_parameters=P1_U1)
        assert (status, headers["retry-after"], body["error"]["code"]) == (503, "1", code)

    def test_b31_a_lasting_conflict_of_a_plain_write_is_503(self, stream):
        """A transaction elsewhere can hold the item for too long."""
        plant(stream.client, "PutItem", *[client_error("TransactionConflictException")] * 6)
        assert stream.error(PUT, path_parameters=P1_U1)[:2] == (503, "conflict")

    @pytest.mark.parametrize(("route", "operation", "event"), OPERATIONS)
    @pytest.mark.parametrize("code", ["AccessDeniedException", "ResourceNotFoundException", "ValidationException"])
    def test_an_unexpected_error_is_raised(self, stream, route, operation, event, code):
        """Lambda counts it as an error, and API Gateway answers 500."""
        plant(stream.client, operation, client_error(code))
        with pytest.raises(ClientError, match=code):
            stream.call(route, **event)

    def test_b34_requests_use_tokens_of_their_own(self, transaction):
        """The tokens that DynamoDB gets are unique and as long as it allows."""
        transaction.call(CREATE, body={"postId": "p1", "authorId": "ann", "body": "hello"})
        calls = plant(transaction.client, "TransactWriteItems")
        for route in (PUT, DELETE, PUT):
            transaction.call(route, path_parameters=P1_U1)
        tokens = {call["ClientRequestToken"] for call in calls}
        assert len(tokens) == 3
        assert all(1 <= len(token) <= 36 for token in tokens)
        assert transaction.call(READ, path_parameters=P1)[1]["likeTally"] == 1


class TestDispatch:
    """Which events the handler takes."""

    @pytest.mark.parametrize("version", ["1.0", "3.0", None, 2.0])
    def test_another_payload_version_is_told_what_to_set(self, stream, version):
        """An integration of the wrong version answers every request with the way out."""
        event = http_event(READ, path_parameters=P1) | {"version": version}
        status, _, body = stream.answer_to(event)
        assert (status, body["error"]["code"]) == (500, "unsupported_payload_version")
        assert "PayloadFormatVersion 2.0" in body["error"]["message"]

    def test_an_event_without_a_version_is_told_what_to_set(self, stream):
        """So is an event of a REST API or of a test in the console."""
        assert stream.answer_to({"resource": "/posts/{postId}"})[2]["error"]["code"] == "unsupported_payload_version"

    @pytest.mark.parametrize("route", ["$default", "GET /posts", "OPTIONS /posts/{postId}", "put /posts/{postId}"])
    def test_an_unknown_route_is_404(self, stream, route):
        """There is no OPTIONS route either: no browser calls this API."""
        assert stream.error(route)[:2] == (404, "route_not_found")

    def test_a_line_is_logged_for_each_request(self, stream, caplog):
        """Route and status are logged, and no user's id."""
        stream.call(PUT, path_parameters={"postId": "p1", "userId": "secret-user"})
        lines = [vars(record) for record in caplog.records if record.name == "likes-api"]
        assert [(line["route"], line["status"]) for line in lines] == [(PUT, 201)]
        assert "secret-user" not in str(lines)

    def test_a_bad_setting_stops_the_start(self, deploy):
        """A counting path that does not exist is found before the first request."""
        with pytest.raises(ValueError, match="COUNTING_PATH"):
            deploy("blind")

    def test_the_client_gives_up_before_its_caller_does(self, stream):
        """Time-outs and tries of the SDK are set, not left to their defaults of 60 seconds."""
        config = stream.client.meta.config
        assert (config.connect_timeout, config.read_timeout) == (1, 3)
        assert config.retries == {"mode": "standard", "total_max_attempts": 3}
