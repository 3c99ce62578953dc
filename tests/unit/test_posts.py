"""Posts and the lists of their likes, against moto's DynamoDB."""

import pytest
from botocore.exceptions import ClientError

from http_builders import TABLE, client_error, item, items, lose_first_answer, plant, social_table
from tallystream.posts import PostExistsError, PostNotFoundError, Posts
from tallystream.rules import DEFAULT_COUNTERS, Rules

NOW = 1_767_225_600
POST = {"postId": "p1", "authorId": "ann", "body": "hello", "createdAt": NOW, "likeTally": 0}


@pytest.fixture
def client():
    """Give a client with the table."""
    with social_table() as client:
        yield client


@pytest.fixture
def posts(client):
    """Give the posts of the table, counted by the default rule."""
    return Posts(client, TABLE, Rules.parse(DEFAULT_COUNTERS))


def put(client, sort_key, **attributes):
    """Put an item of post p1 into the table, past the API."""
    client.put_item(TableName=TABLE, Item={"PK": {"S": "POST#p1"}, "SK": {"S": sort_key}, **attributes})


class TestCreate:
    """Creating posts."""

    def test_a_post_is_stored_with_a_tally_of_zero(self, client, posts):
        """What is stored and what is answered are the same post."""
        assert posts.create("p1", "ann", "hello", NOW) == POST
        assert item(client, "POST#p1", "META") == {
            "PK": {"S": "POST#p1"},
            "SK": {"S": "META"},
            "authorId": {"S": "ann"},
            "body": {"S": "hello"},
            "createdAt": {"N": str(NOW)},
            "likeTally": {"N": "0"},
        }

    def test_an_existing_post_is_left_alone(self, client, posts):
        """A second post of the same id is refused, and the first keeps its body and its tally."""
        put(client, "META", body={"S": "first"}, likeTally={"N": "5"})
        with pytest.raises(PostExistsError, match="p1"):
            posts.create("p1", "bob", "second", NOW)
        assert item(client, "POST#p1", "META")["body"] == {"S": "first"}
        assert item(client, "POST#p1", "META")["likeTally"] == {"N": "5"}

    def test_the_same_post_sent_twice_is_refused(self, posts):
        """Two requests of one content are two requests, even within one second."""
        posts.create("p1", "ann", "hello", NOW)
        with pytest.raises(PostExistsError):
            posts.create("p1", "ann", "hello", NOW)

    def test_a_post_whose_first_answer_was_lost_is_the_callers_own(self, client, posts):
        """boto3 repeats the write and meets its own post: that is a success, though the condition failed."""
        lose_first_answer(client, "PutItem")
        assert posts.create("p1", "ann", "hello", NOW) == POST

    def test_a_repeated_write_that_meets_another_post_is_refused(self, client, posts):
        """A repetition alone does not make a stranger's post one's own."""
        put(client, "META", body={"S": "first"})
        lose_first_answer(client, "PutItem")
        with pytest.raises(PostExistsError):
            posts.create("p1", "ann", "hello", NOW)

    @pytest.mark.parametrize("code", ["ThrottlingException", "ValidationException", "AccessDeniedException"])
    def test_other_errors_go_through(self, client, posts, code):
        """What is no failed condition is not taken for one."""
        plant(client, "PutItem", client_error(code))
        with pytest.raises(ClientError, match=code):
            posts.create("p1", "ann", "hello", NOW)
        assert items(client) == []


class TestRead:
    """Reading one post."""

    def test_a_post_is_read_as_it_was_created(self, posts):
        """The two answers have one shape."""
        posts.create("p1", "ann", "hello", NOW)
        assert posts.read("p1") == POST

    @pytest.mark.parametrize(
        ("stored", "shown"), [("5", 5), ("0", 0), ("-1", -1), ("1E+2", 100), ("10000000000000000001", 10**19 + 1)]
    )
    def test_b26_a_tally_is_an_integer(self, client, posts, stored, shown):
        """A tally is exact at any size, and a negative one is not hidden."""
        put(client, "META", likeTally={"N": stored})
        tally = posts.read("p1")["likeTally"]
        assert tally == shown
        assert type(tally) is int

    def test_what_the_item_lacks_is_null_and_its_tally_zero(self, client, posts):
        """An item of the keys alone, as another program may have written it, is a post all the same."""
        put(client, "META")
        assert posts.read("p1") == {"postId": "p1", "authorId": None, "body": None, "createdAt": None, "likeTally": 0}

    def test_marks_and_other_attributes_are_neither_fetched_nor_shown(self, client, posts):
        """The projection names what is wanted, so that the marks stay in the table."""
        put(client, "META", likeTally={"N": "1"}, secret={"S": "x"}, **{"mark#1": {"M": {"seq": {"S": "1"}}}})
        calls = plant(client, "GetItem")
        assert posts.read("p1") == {"postId": "p1", "authorId": None, "body": None, "createdAt": None, "likeTally": 1}
        assert set(calls[0]["ExpressionAttributeNames"].values()) == {
            "PK",
            "authorId",
            "body",
            "createdAt",
            "likeTally",
        }
        assert not calls[0].get("ConsistentRead", False)

    def test_a_tally_that_is_no_number_is_an_error(self, client, posts):
        """Such a post is broken, and must not be shown with a 0."""
        put(client, "META", likeTally={"S": "five"})
        with pytest.raises(TypeError, match="a number was expected"):
            posts.read("p1")

    def test_a_missing_post_is_not_found(self, client, posts):
        """A like without its post makes no post."""
        put(client, "LIKE#USER#u1")
        with pytest.raises(PostNotFoundError, match="p1"):
            posts.read("p1")

    def test_the_tallies_of_other_rules_on_the_post_are_shown(self, client):
        """Each attribute that a rule counts on the post itself is a tally; those of other parents are not."""
        rules = Rules.parse(
            """[{"child": "LIKE#USER#", "parent": "META", "attribute": "likeTally"},
                {"child": "SAVE#USER#", "parent": "META", "attribute": "saveTally"},
                {"child": "REPLY#{commentId}#", "parent": "COMMENT#{commentId}", "attribute": "replyTally"}]"""
        )
        posts = Posts(client, TABLE, rules)
        assert posts.create("p1", "ann", "hello", NOW) == POST | {"saveTally": 0}
        put(client, "META", saveTally={"N": "3"})
        assert posts.read("p1") == {
            "postId": "p1", "authorId": None, "body": None, "createdAt": None, "likeTally": 0, "saveTally": 3,
        }  # fmt: skip


class TestLikes:
    """Listing the likes of a post."""

    def test_likes_come_in_the_order_of_user_ids(self, client, posts):
        """Only this post's likes are listed: not the post, not what other rules count."""
        put(client, "META")
        for user, at in (("b", 2), ("a", 1), ("글", 3)):
            put(client, f"LIKE#USER#{user}", likedAt={"N": str(at)})
        put(client, "REPLY#c1#r1")
        client.put_item(TableName=TABLE, Item={"PK": {"S": "POST#p10"}, "SK": {"S": "LIKE#USER#z"}})
        expected = [{"userId": "a", "likedAt": 1}, {"userId": "b", "likedAt": 2}, {"userId": "글", "likedAt": 3}]
        assert posts.likes("p1", limit=25, after=None) == (expected, None)

    @pytest.mark.parametrize("limit", [1, 2, 3, 5, 7])
    def test_pages_hold_every_like_once(self, client, posts, limit):
        """Whatever the page size, going on after the last user id visits each like once."""
        users = [f"u{number}" for number in range(6)]
        for user in users:
            put(client, f"LIKE#USER#{user}", likedAt={"N": "1"})
        seen, after, pages = [], None, 0
        while pages == 0 or after is not None:
            likes, after = posts.likes("p1", limit=limit, after=after)
            assert len(likes) <= limit
            seen += [like["userId"] for like in likes]
            pages += 1
            assert pages <= 7
        assert seen == users

    def test_a_page_goes_on_after_a_user_who_has_gone(self, client, posts):
        """The user after whom a page begins may have taken the like back."""
        for user in ("a", "c"):
            put(client, f"LIKE#USER#{user}")
        assert posts.likes("p1", limit=25, after="b") == ([{"userId": "c", "likedAt": None}], None)

    def test_a_post_without_likes_has_an_empty_list(self, posts):
        """So has a post that does not exist."""
        assert posts.likes("p1", limit=25, after=None) == ([], None)

    def test_b12_an_expired_like_is_listed_until_it_is_deleted(self, client, posts):
        """The list follows the items, as the tally does."""
        put(client, "LIKE#USER#a", likedAt={"N": "1"}, ttl={"N": "2"})
        assert posts.likes("p1", limit=25, after=None) == ([{"userId": "a", "likedAt": 1}], None)
