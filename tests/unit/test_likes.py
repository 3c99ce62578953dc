"""Liking and unliking on both counting paths, against moto's DynamoDB and against planted errors."""

import itertools
import random

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError
from hypothesis import given, settings
from hypothesis import strategies as st

from http_builders import TABLE, cancelled, client_error, item, items, lose_first_answer, plant, social_table
from tallystream.faults import Kind
from tallystream.likes import CONFLICT_RETRIES, Backoff, BusyError, StreamPath, TransactionPath
from tallystream.posts import PostNotFoundError
from tallystream.rules import DEFAULT_COUNTERS, Rules

NOW = 1_767_225_600
TWO_PARENTS = """[{"child": "LIKE#USER#", "parent": "META", "attribute": "likeTally"},
                  {"child": "LIKE#USER#", "parent": "TALLY", "attribute": "likes"},
                  {"child": "LIKE#", "parent": "META", "attribute": "actions"}]"""


@pytest.fixture
def client():
    """Give a client with the table, in which post p1 is."""
    with social_table() as client:
        put_post(client)
        yield client


@pytest.fixture
def waits():
    """Give the list of the waits of the paths made by `stream` and `transaction`, in seconds."""
    return []


@pytest.fixture
def backoff(waits):
    """Give a backoff that waits as long as it can, but only on paper."""
    return Backoff(sleep=waits.append, random=lambda: 1.0)


@pytest.fixture
def stream(client, backoff):
    """Give the stream path."""
    return StreamPath(client, TABLE, backoff)


@pytest.fixture
def transaction(client, backoff):
    """Give the transaction path; its tokens are token-1, token-2 and so on."""
    return transaction_path(client, backoff)


@pytest.fixture(params=["stream", "transaction"])
def path(request):
    """Give each path in turn."""
    return request.getfixturevalue(request.param)


def transaction_path(client, backoff, rules=DEFAULT_COUNTERS):
    """Return a transaction path with numbered tokens."""
    numbers = itertools.count(1)
    return TransactionPath(client, TABLE, backoff, Rules.parse(rules), lambda: f"token-{next(numbers)}")


def put_post(client, sort_key="META"):
    """Put post p1, or another parent in its item collection, into the table."""
    client.put_item(TableName=TABLE, Item={"PK": {"S": "POST#p1"}, "SK": {"S": sort_key}})


def tally(client, sort_key="META", attribute="likeTally"):
    """Return a tally of post p1 as an integer."""
    return int(item(client, "POST#p1", sort_key).get(attribute, {"N": "0"})["N"])


class TestBothPaths:
    """What the paths agree in."""

    def test_b11_a_like_is_new_once(self, client, path):
        """The second like rewrites nothing, so that the stream has no record of it: the first keeps time and note."""
        assert path.like("p1", "u1", NOW)
        noted = {**item(client, "POST#p1", "LIKE#USER#u1"), "note": {"S": "by another program"}}
        client.put_item(TableName=TABLE, Item=noted)
        counted = tally(client)
        assert not path.like("p1", "u1", NOW + 60)
        assert item(client, "POST#p1", "LIKE#USER#u1") == noted
        assert tally(client) == counted

    def test_b12_an_expired_like_is_a_like_until_it_is_deleted(self, client, path):
        """Time to live is DynamoDB's business: what it has not deleted yet cannot be liked again, but taken back."""
        path.like("p1", "u1", NOW)
        past = {**item(client, "POST#p1", "LIKE#USER#u1"), "ttl": {"N": str(NOW - 60)}}
        client.put_item(TableName=TABLE, Item=past)
        assert not path.like("p1", "u1", NOW)
        assert path.unlike("p1", "u1")
        assert items(client) == [("POST#p1", "META")]

    def test_an_unlike_takes_a_like_back_once(self, client, path):
        """The second unlike, and that of someone who never liked, change nothing."""
        path.like("p1", "u1", NOW)
        assert path.unlike("p1", "u1")
        assert not path.unlike("p1", "u1")
        assert not path.unlike("p1", "u9")
        assert items(client) == [("POST#p1", "META")]

    def test_a_user_may_like_again(self, client, path):
        """Like, unlike, like ends as a like."""
        assert [path.like("p1", "u1", NOW), path.unlike("p1", "u1"), path.like("p1", "u1", NOW)] == [True] * 3
        assert item(client, "POST#p1", "LIKE#USER#u1") is not None

    @pytest.mark.parametrize(
        "error", [ReadTimeoutError(endpoint_url="x"), ConnectionClosedError(endpoint_url="x")], ids=type
    )
    def test_a_lost_connection_is_unavailable(self, client, path, error, waits):
        """The SDK has tried again already, so that nothing is tried here."""
        plant(client, "PutItem", error)
        plant(client, "TransactWriteItems", error)
        with pytest.raises(BusyError) as caught:
            path.like("p1", "u1", NOW)
        assert caught.value.kind is Kind.UNAVAILABLE
        assert caught.value.__cause__ is error
        assert waits == []

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("ThrottlingException", Kind.THROTTLED),
            ("ProvisionedThroughputExceededException", Kind.THROTTLED),
            ("RequestLimitExceeded", Kind.THROTTLED),
            ("InternalServerError", Kind.UNAVAILABLE),
        ],
    )
    def test_a_throttle_is_not_tried_again(self, client, path, code, kind, waits):
        """A throttled table gets no more requests than the SDK's own."""
        deletes = plant(client, "DeleteItem", client_error(code))
        transactions = plant(client, "TransactWriteItems", client_error(code))
        with pytest.raises(BusyError) as caught:
            path.unlike("p1", "u1")
        assert caught.value.kind is kind
        assert len(deletes + transactions) == 1
        assert waits == []

    @pytest.mark.parametrize(
        "code", ["ValidationException", "IdempotentParameterMismatchException", "AccessDeniedException", "Surprise"]
    )
    def test_b34_a_bug_such_as_a_token_s_mismatch_is_raised_and_not_tried_again(self, client, path, code, waits):
        """What no repetition mends is never repeated, and never becomes an answer."""
        puts = plant(client, "PutItem", client_error(code))
        transactions = plant(client, "TransactWriteItems", client_error(code))
        with pytest.raises(ClientError, match=code):
            path.like("p1", "u1", NOW)
        assert len(puts + transactions) == 1
        assert waits == []
        assert items(client) == [("POST#p1", "META")]


class TestStreamPath:
    """What only the stream path does."""

    def test_the_tally_is_left_to_the_aggregator(self, client, stream):
        """A like is one conditional PutItem, 1 write unit, and the post is not touched."""
        calls = plant(client, "PutItem")
        stream.like("p1", "u1", NOW)
        assert [call["ConditionExpression"] for call in calls] == ["attribute_not_exists(PK)"]
        assert item(client, "POST#p1", "META") == {"PK": {"S": "POST#p1"}, "SK": {"S": "META"}}

    def test_a_post_that_is_missing_is_not_noticed(self, client, stream):
        """The like is stored, and the aggregator calls it orphaned."""
        assert stream.like("gone", "u1", NOW)
        assert ("POST#gone", "LIKE#USER#u1") in items(client)

    def test_b05_fifty_unlikes_delete_one_like(self, client, stream):
        """One of fifty deletes one like; the others, and one who never liked, are told that nothing was there."""
        stream.like("p1", "u1", NOW)
        assert sum(stream.unlike("p1", user) for user in ["u1"] * 50 + ["u9"]) == 1
        assert items(client) == [("POST#p1", "META")]

    def test_b03_a_like_whose_first_answer_was_lost_is_there_once(self, client, stream):
        """boto3's repetition meets the like that its first try stored: already so."""
        lose_first_answer(client, "PutItem")
        assert not stream.like("p1", "u1", NOW)
        assert items(client) == [("POST#p1", "LIKE#USER#u1"), ("POST#p1", "META")]

    def test_b31_a_conflict_is_tried_again(self, client, stream, waits):
        """A plain write can meet a running transaction; the SDK does not repeat it, so we do."""
        plant(client, "PutItem", *[client_error("TransactionConflictException")] * 2)
        assert stream.like("p1", "u1", NOW)
        assert waits == [0.05, 0.1]

    def test_b31_a_lasting_conflict_is_busy(self, client, stream, waits):
        """After six tries and 1.55 s the caller is told to come again."""
        calls = plant(client, "DeleteItem", *[client_error("TransactionConflictException")] * 6)
        with pytest.raises(BusyError) as caught:
            stream.unlike("p1", "u1")
        assert caught.value.kind is Kind.CONFLICT
        assert len(calls) == CONFLICT_RETRIES + 1
        assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8])

    def test_waits_are_jittered(self, client):
        """Requests that met once do not meet again: each waits for a random part of its time."""
        waits, parts = [], iter([0.0, 0.5])
        path = StreamPath(client, TABLE, Backoff(sleep=waits.append, random=lambda: next(parts)))
        plant(client, "PutItem", *[client_error("TransactionConflictException")] * 2)
        assert path.like("p1", "u1", NOW)
        assert waits == [0.0, 0.05]

    def test_a_like_lands_under_the_very_id(self, client, stream):
        """No id of any script is cut, folded or decoded on its way into the key."""

        @settings(max_examples=50, deadline=None)
        @given(st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="#"), min_size=1, max_size=64))
        def check(some_id):
            stream.like(some_id, some_id, NOW)
            assert item(client, f"POST#{some_id}", f"LIKE#USER#{some_id}") is not None

        check()


class TestTransactionPath:
    """What only the transaction path does."""

    def test_the_tally_changes_with_the_like(self, client, transaction):
        """What changed something counts, and nothing else does."""
        for user in ("u1", "u2", "u1"):
            transaction.like("p1", user, NOW)
        assert tally(client) == 2
        transaction.unlike("p1", "u1")
        transaction.unlike("p1", "u9")
        assert tally(client) == 1

    def test_b05_fifty_unlikes_subtract_one_like(self, client, transaction):
        """One of fifty deletes the like and subtracts it, one who never liked neither: from 1 to 0, never below."""
        transaction.like("p1", "u1", NOW)
        assert tally(client) == 1
        assert sum(transaction.unlike("p1", user) for user in ["u1"] * 50 + ["u9"]) == 1
        assert tally(client) == 0

    def test_a_post_that_is_missing_is_not_found(self, client, transaction):
        """Neither the like nor a ghost of the post appears."""
        with pytest.raises(PostNotFoundError, match="gone"):
            transaction.like("gone", "u1", NOW)
        assert items(client) == [("POST#p1", "META")]

    def test_an_unlike_on_a_missing_post_is_not_found(self, client, transaction):
        """A like without its post stays, and so does one that never was."""
        client.put_item(TableName=TABLE, Item={"PK": {"S": "POST#gone"}, "SK": {"S": "LIKE#USER#u1"}})
        for user in ("u1", "u2"):
            with pytest.raises(PostNotFoundError):
                transaction.unlike("gone", user)
        assert items(client) == [("POST#gone", "LIKE#USER#u1"), ("POST#p1", "META")]

    def test_each_parent_is_updated_once(self, client, backoff):
        """Two attributes of one parent are one Update, for a transaction may name an item only once."""
        put_post(client, "TALLY")
        path = transaction_path(client, backoff, TWO_PARENTS)
        calls = plant(client, "TransactWriteItems")
        assert path.like("p1", "u1", NOW)
        assert [tally(client), tally(client, "TALLY", "likes"), tally(client, attribute="actions")] == [1, 1, 1]
        assert len(calls[0]["TransactItems"]) == 3
        assert path.unlike("p1", "u1")
        assert [tally(client), tally(client, "TALLY", "likes"), tally(client, attribute="actions")] == [0, 0, 0]

    def test_a_second_parent_that_is_missing_is_not_found(self, client, backoff):
        """All parents must be there, and nothing is half counted."""
        path = transaction_path(client, backoff, TWO_PARENTS)
        with pytest.raises(PostNotFoundError):
            path.like("p1", "u1", NOW)
        assert tally(client) == 0

    def test_a_like_that_nothing_counts_is_stored_alone(self, client, backoff):
        """Without a parent the transaction holds the like and no more."""
        path = transaction_path(client, backoff, '[{"child": "SAVE#", "parent": "META", "attribute": "saves"}]')
        assert path.like("p1", "u1", NOW)
        assert not path.like("p1", "u1", NOW)
        assert item(client, "POST#p1", "LIKE#USER#u1") is not None

    def test_b34_a_token_belongs_to_one_request(self, client, transaction):
        """All tries of one request share its token, and the next request has another.

        So a try whose answer was lost is not counted again, and like, unlike, like within ten minutes counts thrice.
        """
        calls = plant(
            client,
            "TransactWriteItems",
            cancelled("None", "TransactionConflict"),
            client_error("TransactionInProgressException"),
        )
        tallies = []
        for act in (lambda: transaction.like("p1", "u1", NOW), lambda: transaction.unlike("p1", "u1")) * 2:
            assert act()
            tallies.append(tally(client))
        assert tallies == [1, 0, 1, 0]
        tokens = [call["ClientRequestToken"] for call in calls]
        assert tokens == ["token-1", "token-1", "token-1", "token-2", "token-3", "token-4"]
        assert calls[0] == calls[1] == calls[2]

    @pytest.mark.parametrize(
        "error",
        [cancelled("None", "TransactionConflict"), client_error("TransactionInProgressException")],
        ids=["conflict", "in progress"],
    )
    def test_b31_a_lasting_conflict_is_busy(self, client, transaction, error, waits):
        """After six tries the caller is told to come again, and nothing was written."""
        calls = plant(client, "TransactWriteItems", *[error] * 6)
        with pytest.raises(BusyError) as caught:
            transaction.like("p1", "u1", NOW)
        assert caught.value.kind is Kind.CONFLICT
        assert len(calls) == 6
        assert len(waits) == 5
        assert items(client) == [("POST#p1", "META")]

    @pytest.mark.parametrize("position", [0, 1, 2], ids=["the like", "first parent", "second parent"])
    def test_b31_a_conflict_in_any_position_is_tried_again(self, client, backoff, waits, position):
        """On the like or on any parent: five times it passes and the like counts once, six times it is busy."""
        put_post(client, "TALLY")
        path = transaction_path(client, backoff, TWO_PARENTS)
        conflict = cancelled(*("TransactionConflict" if place == position else "None" for place in range(3)))
        calls = plant(client, "TransactWriteItems", *[conflict] * CONFLICT_RETRIES)
        assert path.like("p1", "u1", NOW)
        assert waits == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8])
        plant(client, "TransactWriteItems", *[conflict] * (CONFLICT_RETRIES + 1))
        with pytest.raises(BusyError) as caught:
            path.like("p1", "u2", NOW)
        assert caught.value.kind is Kind.CONFLICT
        assert len(calls) == 2 * (CONFLICT_RETRIES + 1)
        assert [tally(client), tally(client, "TALLY", "likes")] == [1, 1]
        assert ("POST#p1", "LIKE#USER#u2") not in items(client)

    def test_b31_under_contention_a_like_is_counted_or_busy(self, client, transaction):
        """Of 50 likes that meet up to six conflicts each, none is lost or doubled: six conflicts are told."""
        chance, stored = random.Random(31), set()
        for user in (f"u{number}" for number in range(50)):
            conflicts = chance.randint(0, CONFLICT_RETRIES + 1)
            plant(client, "TransactWriteItems", *[cancelled("None", "TransactionConflict")] * conflicts)
            if conflicts > CONFLICT_RETRIES:
                with pytest.raises(BusyError):
                    transaction.like("p1", user, NOW)
            else:
                assert transaction.like("p1", user, NOW)
                stored.add(f"LIKE#USER#{user}")
        assert 10 < len(stored) < 50
        assert {sort_key for _, sort_key in items(client)} == stored | {"META"}
        assert tally(client) == len(stored)

    @pytest.mark.parametrize(
        ("codes", "outcome"),
        [
            (("ConditionalCheckFailed", "None"), False),
            (("None", "ConditionalCheckFailed"), PostNotFoundError),
            (("ConditionalCheckFailed", "ConditionalCheckFailed"), PostNotFoundError),
            (("TransactionConflict", "ConditionalCheckFailed"), PostNotFoundError),
            (("ThrottlingError", "ConditionalCheckFailed"), PostNotFoundError),
            (("TransactionConflict", "None"), True),
            (("None", "TransactionConflict"), True),
            (("TransactionConflict", "TransactionConflict"), True),
            (("ConditionalCheckFailed", "TransactionConflict"), True),
            (("None", "ThrottlingError"), BusyError),
            (("ProvisionedThroughputExceeded", "None"), BusyError),
            (("None", "RequestLimitExceeded"), BusyError),
            (("ConditionalCheckFailed", "ThrottlingError"), BusyError),
            (("TransactionConflict", "ThrottlingError"), BusyError),
            (("None", "ValidationError"), ClientError),
            (("ConditionalCheckFailed", "ValidationError"), ClientError),
            (("ValidationError", "ConditionalCheckFailed"), ClientError),
            (("ItemCollectionSizeLimitExceeded", "TransactionConflict"), ClientError),
            (("None", "SomethingNew"), ClientError),
            (("SomethingNew", "ConditionalCheckFailed"), ClientError),
            (("None", "None"), ClientError),
            (("ConditionalCheckFailed",), ClientError),
            (("ConditionalCheckFailed", "None", "None"), ClientError),
            ((), ClientError),
        ],
    )
    def test_reasons_are_read_by_position(self, client, transaction, codes, outcome):
        """The first reason is the like's, the others are the parents', and several may have failed at once.

        Here a conflict passes: True is the answer of the try after it.
        """
        plant(client, "TransactWriteItems", cancelled(*codes))
        if isinstance(outcome, bool):
            assert transaction.like("p1", "u1", NOW) is outcome
        else:
            with pytest.raises(outcome):
                transaction.like("p1", "u1", NOW)

    def test_a_cancellation_without_reasons_is_a_bug(self, client, transaction):
        """Without reasons nothing is known, so nothing is answered."""
        plant(client, "TransactWriteItems", client_error("TransactionCanceledException"))
        with pytest.raises(ClientError, match="TransactionCanceledException"):
            transaction.like("p1", "u1", NOW)

    @given(
        st.lists(
            st.sampled_from(
                [
                    "None", "ConditionalCheckFailed", "TransactionConflict", "ThrottlingError", "ValidationError",
                    "ProvisionedThroughputExceeded", "RequestLimitExceeded", "ItemCollectionSizeLimitExceeded", "New",
                ]
            ),
            max_size=4,
        )
    )  # fmt: skip
    def test_a_failed_parent_is_never_already_so(self, codes):
        """Whatever the reasons, "already so" is answered only if the like's condition was all that failed."""

        class Client:
            def transact_write_items(self, **_):
                raise cancelled(*codes)

        path = transaction_path(Client(), Backoff(sleep=lambda _: None, random=lambda: 0.0), TWO_PARENTS)
        if codes == ["ConditionalCheckFailed", "None", "None"]:
            assert not path.like("p1", "u1", NOW)
            return
        with pytest.raises((PostNotFoundError, BusyError, ClientError)) as caught:
            path.like("p1", "u1", NOW)
        assert not isinstance(caught.value, PostNotFoundError) or "ConditionalCheckFailed" in codes[1:]
