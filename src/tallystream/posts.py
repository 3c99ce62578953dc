"""Posts and the lists of their likes: what is written once and read often."""

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import ClientError

from tallystream.faults import Kind, kind_of
from tallystream.keys import LIKE_PREFIX, META, like_key, post_key
from tallystream.rules import Rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_LIKE_TALLY = "likeTally"


class PostNotFoundError(Exception):
    """There is no post with this id."""

    def __init__(self, post_id: str) -> None:
        super().__init__(f"there is no post {post_id!r}")


class PostExistsError(Exception):
    """A post with this id is there already, and it is somebody else's request that made it."""

    def __init__(self, post_id: str) -> None:
        super().__init__(f"there is a post {post_id!r} already")


class Posts:
    """The posts of one table, with the tallies that the rules keep on them.

    Errors of DynamoDB other than a failed condition go through as botocore raises them.
    """

    def __init__(self, client: "DynamoDBClient", table_name: str, rules: Rules) -> None:
        self._client = client
        self._table_name = table_name
        on_the_post = {rule.attribute for rule in rules.all if rule.parent == META}
        self._tallies = sorted({_LIKE_TALLY} | on_the_post)

    def create(self, post_id: str, author_id: str, body: str, now: int) -> dict[str, object]:
        """Store a new post, whose tallies are 0, and return it; `now` is in epoch seconds.

        boto3 itself repeats a write whose answer was lost, and the repetition then meets the post that the first
        try stored. Such a post is the caller's own: it is returned, not refused.

        Raises:
            PostExistsError: there is a post with this id.
        """
        written: dict[str, Any] = {
            "authorId": {"S": author_id},
            "body": {"S": body},
            "createdAt": {"N": str(now)},
        }
        item = _key(post_id) | {tally: {"N": "0"} for tally in self._tallies} | written
        try:
            self._client.put_item(
                TableName=self._table_name,
                Item=item,
                ConditionExpression="attribute_not_exists(PK)",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if kind_of(error) is not Kind.CONDITION:
                raise
            response = cast("Mapping[str, Any]", error.response)
            found = response.get("Item", {})
            repeated = response["ResponseMetadata"].get("RetryAttempts", 0) > 0
            if not (repeated and all(found.get(name) == value for name, value in written.items())):
                raise PostExistsError(post_id) from error
        return self._post(post_id, item)

    def read(self, post_id: str) -> dict[str, object]:
        """Return the post with its tallies as integers, at the price of an eventually consistent read.

        A tally that is not there yet is 0. A negative one is shown as it is: it tells of a fault (the aggregator has
        an alarm for it), and a 0 in its place would hide that. The marks beside the tallies are not fetched. An item
        that something else wrote may lack the other attributes: they are None then.

        A like whose time to live is over counts until DynamoDB deletes it, usually within a few days: the tally
        follows the items, as does the list of likes.

        Raises:
            PostNotFoundError: there is no such post.
        """
        # PK is asked for so that a post with none of the other attributes still is a post.
        names = {f"#{n}": name for n, name in enumerate(["PK", "authorId", "body", "createdAt", *self._tallies])}
        answer = self._client.get_item(
            TableName=self._table_name,
            Key=_key(post_id),
            ProjectionExpression=", ".join(names),
            ExpressionAttributeNames=names,
        )
        if "Item" not in answer:
            raise PostNotFoundError(post_id)
        return self._post(post_id, answer["Item"])

    def likes(self, post_id: str, *, limit: int, after: str | None) -> tuple[list[dict[str, object]], str | None]:
        """Return up to `limit` likes of a post in the order of their sort keys, and the user id to go on after.

        That user id is None on the last page. It can also lead to a page that is empty: DynamoDB does not look ahead.
        The list of a post that does not exist is empty, or holds likes without a post. A like whose time to live is
        over is listed, as it is counted, until DynamoDB deletes it.
        """
        start: dict[str, Any] = {} if after is None else {"ExclusiveStartKey": _typed(like_key(post_id, after))}
        answer = self._client.query(
            TableName=self._table_name,
            KeyConditionExpression="PK = :pk AND begins_with(SK, :likes)",
            ExpressionAttributeValues={":pk": {"S": post_key(post_id)["PK"]}, ":likes": {"S": LIKE_PREFIX}},
            ProjectionExpression="SK, likedAt",
            Limit=limit,
            **start,
        )
        likes: list[dict[str, object]] = [
            {
                "userId": item["SK"]["S"].removeprefix(LIKE_PREFIX),
                "likedAt": _integer(item["likedAt"]) if "likedAt" in item else None,
            }
            for item in answer["Items"]
        ]
        last = answer.get("LastEvaluatedKey")
        return likes, last["SK"]["S"].removeprefix(LIKE_PREFIX) if last else None

    def _post(self, post_id: str, item: Mapping[str, Any]) -> dict[str, object]:
        """Return a post as callers see it."""
        return {
            "postId": post_id,
            "authorId": item["authorId"]["S"] if "authorId" in item else None,
            "body": item["body"]["S"] if "body" in item else None,
            "createdAt": _integer(item["createdAt"]) if "createdAt" in item else None,
            **{tally: _integer(item[tally]) if tally in item else 0 for tally in self._tallies},
        }


def _key(post_id: str) -> dict[str, Any]:
    return _typed(post_key(post_id))


def _typed(key: Mapping[str, str]) -> dict[str, Any]:
    """Return a key of strings in DynamoDB's notation."""
    return {name: {"S": value} for name, value in key.items()}


def _integer(value: Mapping[str, Any]) -> int:
    """Return a number attribute as an integer: DynamoDB sends numbers as text, and may write 100 as 1E+2."""
    if "N" not in value:
        raise TypeError(f"a number was expected in the table, not {value}")
    return int(Decimal(value["N"]))
