"""Liking and unliking on the two counting paths, which differ in what they write and agree in what they answer.

`StreamPath` writes the like alone, 1 write unit; the aggregator counts it from the table's stream a little later.
`TransactionPath` writes the like and its parents' tallies together, 4 write units with one parent.
On both a failed condition on the like is the answer "already so", not an error.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from botocore.exceptions import BotoCoreError, ClientError

from tallystream.faults import Kind, kind_of, kind_of_reason
from tallystream.keys import like_key
from tallystream.posts import PostNotFoundError
from tallystream.rules import Rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

CONFLICT_RETRIES = 5
FIRST_WAIT_S = 0.05

_RETRYABLE = {Kind.THROTTLED, Kind.UNAVAILABLE, Kind.CONFLICT}


class BusyError(Exception):
    """DynamoDB could not take the write now; the same request may succeed later, and repeating it is safe.

    `kind` says why: throttled, unavailable, or in conflict with other transactions for too long.
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind.value)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Backoff:
    """How to wait before a write is tried again that lost against another transaction.

    The SDK does not retry these conflicts. Waits are full jitter, up to 0.05, 0.1, ... 0.8 s and 1.55 s in all.

    Attributes:
        sleep: waits for so many seconds.
        random: returns a number from 0 (included) to 1 (excluded).
    """

    sleep: Callable[[float], None]
    random: Callable[[], float]

    def settle(self, write: Callable[[], object], kind: Callable[[Exception], Kind]) -> bool:
        """Write, again where another transaction was in the way, and return whether the write changed something.

        False means that the condition failed: what was asked for is so already. `kind` reads an error of `write`.

        Raises:
            BusyError: throttled, no answer, or still in conflict after the last try.
            ClientError: anything else, a bug among it; never tried again.
        """
        for wait in (*(FIRST_WAIT_S * 2**n for n in range(CONFLICT_RETRIES)), None):
            try:
                write()
            except (ClientError, BotoCoreError) as error:
                what = kind(error)
                if what is Kind.CONDITION:
                    return False
                if what not in _RETRYABLE:
                    raise
                if what is not Kind.CONFLICT or wait is None:
                    raise BusyError(what) from error
                self.sleep(wait * self.random())
            else:
                return True
        raise AssertionError("the last try returns or raises")


@dataclass(frozen=True, slots=True)
class StreamPath:
    """One conditional write a like; it does not see whether the post exists."""

    client: "DynamoDBClient"
    table_name: str
    backoff: Backoff

    def like(self, post_id: str, user_id: str, now: int) -> bool:
        """Store the like unless it is there; return whether it is new. `now` is in epoch seconds.

        False can also mean that the SDK repeated a write whose answer was lost: the like is stored once either way.

        Raises:
            BusyError: repeat the request later.
        """
        return self.backoff.settle(
            lambda: self.client.put_item(
                TableName=self.table_name,
                Item=_like(post_id, user_id, now),
                ConditionExpression="attribute_not_exists(PK)",
            ),
            kind_of,
        )

    def unlike(self, post_id: str, user_id: str) -> bool:
        """Delete the like if it is there; return whether it was.

        Raises:
            BusyError: repeat the request later.
        """
        return self.backoff.settle(
            lambda: self.client.delete_item(
                TableName=self.table_name,
                Key=_key(post_id, user_id),
                ConditionExpression="attribute_exists(PK)",
            ),
            kind_of,
        )


@dataclass(frozen=True, slots=True)
class TransactionPath:
    """The like and the tallies of its parents in one transaction; the post must exist.

    Attributes:
        new_token: returns a new `ClientRequestToken`. A token belongs to one request: it makes the SDK's and our own
            repetitions of that request harmless. Made from the ids instead, it would swallow the second like of a
            like, unlike, like within the ten minutes for which DynamoDB remembers tokens.
    """

    client: "DynamoDBClient"
    table_name: str
    backoff: Backoff
    rules: Rules
    new_token: Callable[[], str]

    def like(self, post_id: str, user_id: str, now: int) -> bool:
        """Store the like and count it, unless it is there; return whether it is new. `now` is in epoch seconds.

        Raises:
            PostNotFoundError: nothing was written.
            BusyError: repeat the request later.
        """
        put = {
            "TableName": self.table_name,
            "Item": _like(post_id, user_id, now),
            "ConditionExpression": "attribute_not_exists(PK)",
        }
        return self._transact({"Put": put}, post_id, user_id, 1)

    def unlike(self, post_id: str, user_id: str) -> bool:
        """Delete the like and uncount it, if it is there; return whether it was.

        Raises:
            PostNotFoundError: nothing was written, even if a like without its post is there.
            BusyError: repeat the request later.
        """
        delete = {
            "TableName": self.table_name,
            "Key": _key(post_id, user_id),
            "ConditionExpression": "attribute_exists(PK)",
        }
        return self._transact({"Delete": delete}, post_id, user_id, -1)

    def _transact(self, child: dict[str, Any], post_id: str, user_id: str, delta: int) -> bool:
        items = [child, *self._updates(post_id, user_id, delta)]
        token = self.new_token()
        return self.backoff.settle(
            lambda: self.client.transact_write_items(TransactItems=cast("Any", items), ClientRequestToken=token),
            functools.partial(_kind_of_transaction, post_id=post_id, size=len(items)),
        )

    def _updates(self, post_id: str, user_id: str, delta: int) -> list[dict[str, Any]]:
        """Return one Update for each parent: a transaction may name an item only once."""
        key = like_key(post_id, user_id)
        parents: dict[str, list[str]] = {}
        for parent, attribute in self.rules.parents_of(key["SK"]):
            parents.setdefault(parent, []).append(attribute)
        return [
            {
                "Update": {
                    "TableName": self.table_name,
                    "Key": {"PK": {"S": key["PK"]}, "SK": {"S": parent}},
                    "UpdateExpression": "ADD " + ", ".join(f"#{n} :delta" for n in range(len(attributes))),
                    # Without this ADD would create the missing parent as an item with a tally and nothing else.
                    "ConditionExpression": "attribute_exists(PK)",
                    "ExpressionAttributeNames": {f"#{n}": name for n, name in enumerate(attributes)},
                    "ExpressionAttributeValues": {":delta": {"N": str(delta)}},
                }
            }
            for parent, attributes in parents.items()
        ]


def _kind_of_transaction(error: Exception, *, post_id: str, size: int) -> Kind:
    """Return what an error of a transaction means whose first item is the like and whose others are its parents.

    CancellationReasons hold one entry for each of the `size` items, in their order; several can have failed at once.
    What no repetition can mend comes first, then a missing parent, which no repetition mends either. With a throttle
    or a conflict beside it, the like's own condition proves nothing about the parents: that is tried again.

    Raises:
        PostNotFoundError: a parent is not there.
    """
    kind = kind_of(error)
    if kind is not Kind.CANCELLED:
        return kind
    response = cast("dict[str, Any]", cast("ClientError", error).response)
    reasons = [kind_of_reason(reason.get("Code", "")) for reason in response.get("CancellationReasons", [])]
    if len(reasons) != size:
        return Kind.BUG
    for hopeless in (Kind.BUG, Kind.POISON):
        if hopeless in reasons:
            return hopeless
    if Kind.CONDITION in reasons[1:]:
        raise PostNotFoundError(post_id) from error
    for likely in (Kind.THROTTLED, Kind.CONFLICT, Kind.CONDITION):
        if likely in reasons:
            return likely
    return Kind.BUG


def _like(post_id: str, user_id: str, now: int) -> dict[str, Any]:
    """Return a like's item."""
    return {**_key(post_id, user_id), "likedAt": {"N": str(now)}}


def _key(post_id: str, user_id: str) -> dict[str, Any]:
    """Return a like's key in DynamoDB's notation."""
    return {name: {"S": value} for name, value in like_key(post_id, user_id).items()}
