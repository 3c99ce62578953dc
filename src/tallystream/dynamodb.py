"""The port to the parents' table, on boto3's low-level client: requests out, answers and errors read."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from tallystream.counters import Answer, Retryable, Uncountable
from tallystream.faults import Kind, kind_of

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDbTable:
    """One table behind `counters.Table`. Safe to use from several threads, as the low-level client is."""

    def __init__(self, client: "DynamoDBClient", table_name: str) -> None:
        self._client = client
        self._table_name = table_name

    def update(self, request: Mapping[str, Any]) -> Answer:
        """Send one `UpdateItem` and read what came of it.

        Raises:
            Retryable: throttled, in conflict with a transaction, or no answer; the client's own retries are used up.
            Uncountable: DynamoDB refused the request for what it would do to this item.
            ClientError: anything else, such as missing rights or a missing table: no retry and no queue mends that.
        """
        try:
            answer = self._client.update_item(TableName=self._table_name, **request)
        except (ClientError, BotoCoreError) as error:
            kind = kind_of(error)
            if kind is Kind.CONDITION and isinstance(error, ClientError):
                return Answer(written=False, item=error.response.get("Item"))  # type: ignore[arg-type]
            if kind in (Kind.THROTTLED, Kind.UNAVAILABLE, Kind.CONFLICT):
                raise Retryable(str(error)) from error
            if kind is Kind.POISON:
                raise Uncountable(str(error)) from error
            raise
        return Answer(written=True, item=answer.get("Attributes"))
