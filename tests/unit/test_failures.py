"""The failure queue's port."""

import json

import pytest
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from fakes import client_error
from tallystream.counters import Retryable
from tallystream.failures import SqsFailures

URL = "https://sqs.eu-west-1.amazonaws.com/111122223333/failed"


class Sqs:
    """A client that keeps what is sent, or raises."""

    def __init__(self, error=None):
        self.sent = []
        self._error = error

    def send_message(self, **request):
        """Keep the request, or raise."""
        if self._error:
            raise self._error
        self.sent.append(request)


def test_a_message_is_sent_as_json_to_the_queue():
    """Any script is readable in the queue's console, and nothing is lost on the way."""
    client = Sqs()
    message = {"parent": {"PK": "POST#한국", "SK": "META"}, "deltas": {"likeTally": -2}, "reason": None}
    SqsFailures(client, URL).send(message)
    (request,) = client.sent
    assert set(request) == {"QueueUrl", "MessageBody"}
    assert request["QueueUrl"] == URL
    assert json.loads(request["MessageBody"]) == message
    assert "한국" in request["MessageBody"]


@pytest.mark.parametrize(
    "error",
    [
        client_error("ServiceUnavailable", operation="SendMessage"),
        client_error("AccessDenied", operation="SendMessage"),
        client_error("AWS.SimpleQueueService.NonExistentQueue", operation="SendMessage"),
        ReadTimeoutError(endpoint_url=URL),
        EndpointConnectionError(endpoint_url=URL),
    ],
    ids=["down", "denied", "missing", "no answer", "no connection"],
)
def test_a_queue_that_does_not_take_a_message_leaves_the_change_unsettled(error):
    """For whatever reason: the change is not safe yet, and must be delivered again."""
    with pytest.raises(Retryable, match="the failure queue did not take a message"):
        SqsFailures(Sqs(error), URL).send({})


def test_a_bug_is_raised():
    """What boto3 does not raise is nothing that a retry mends."""
    with pytest.raises(TypeError):
        SqsFailures(Sqs(), URL).send({"deltas": {1, 2}})
