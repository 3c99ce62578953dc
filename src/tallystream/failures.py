"""Where a change goes that can never be counted: a message with all that is needed to repair it."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from tallystream.counters import Retryable

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class SqsFailures:
    """The failure queue: the queue that the event source mapping sends its discarded batches to as well."""

    def __init__(self, client: "SQSClient", queue_url: str) -> None:
        self._client = client
        self._queue_url = queue_url

    def send(self, message: Mapping[str, Any]) -> None:
        """Put one message on the queue.

        Raises:
            Retryable: the queue did not take it, for whatever reason; the change is not safe yet.
        """
        try:
            self._client.send_message(QueueUrl=self._queue_url, MessageBody=json.dumps(message, ensure_ascii=False))
        except (ClientError, BotoCoreError) as error:
            raise Retryable(f"the failure queue did not take a message: {error}") from error
