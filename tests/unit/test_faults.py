"""Which error means what, code by code."""

import pytest
from botocore import exceptions

from fakes import client_error
from tallystream.faults import Kind, kind_of, kind_of_reason

CODES = {
    "ConditionalCheckFailedException": Kind.CONDITION,
    "ProvisionedThroughputExceededException": Kind.THROTTLED,
    "ThrottlingException": Kind.THROTTLED,
    "Throttling": Kind.THROTTLED,
    "RequestLimitExceeded": Kind.THROTTLED,
    "LimitExceededException": Kind.THROTTLED,
    "TooManyRequestsException": Kind.THROTTLED,
    "InternalServerError": Kind.UNAVAILABLE,
    "InternalFailure": Kind.UNAVAILABLE,
    "ServiceUnavailable": Kind.UNAVAILABLE,
    "ServiceUnavailableException": Kind.UNAVAILABLE,
    "RequestTimeout": Kind.UNAVAILABLE,
    "RequestTimeoutException": Kind.UNAVAILABLE,
    "ReplicatedWriteConflictException": Kind.CONFLICT,
    "TransactionConflictException": Kind.CONFLICT,
    "TransactionInProgressException": Kind.CONFLICT,
    "TransactionCanceledException": Kind.CANCELLED,
    "ValidationException": Kind.POISON,
    "ItemCollectionSizeLimitExceededException": Kind.POISON,
    "AccessDeniedException": Kind.BUG,
    "ResourceNotFoundException": Kind.BUG,
    "UnrecognizedClientException": Kind.BUG,
    "ExpiredTokenException": Kind.BUG,
    "IdempotentParameterMismatchException": Kind.BUG,
    "SerializationException": Kind.BUG,
}
URL = {"endpoint_url": "https://dynamodb.eu-west-1.amazonaws.com"}
NO_ANSWER = [
    exceptions.ConnectTimeoutError(**URL),
    exceptions.ReadTimeoutError(**URL),
    exceptions.ConnectionClosedError(**URL),
    exceptions.EndpointConnectionError(**URL),
    exceptions.ProxyConnectionError(proxy_url="https://proxy"),
    exceptions.SSLError(**URL, error="handshake"),
    exceptions.ResponseStreamingError(error="cut"),
    exceptions.HTTPClientError(error="cut"),
]


@pytest.mark.parametrize(("code", "kind"), CODES.items())
def test_each_code_of_an_error_has_one_meaning(code, kind):
    """Every code that DynamoDB answers with is known by name; what is not known is a bug."""
    assert kind_of(client_error(code)) is kind


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_an_unknown_code_with_a_server_s_status_is_the_server_s_fault(status):
    """A load balancer answers with its own codes, or with the status for a code."""
    error = client_error(str(status))
    error.response["ResponseMetadata"]["HTTPStatusCode"] = status
    assert kind_of(error) is Kind.UNAVAILABLE


@pytest.mark.parametrize("error", NO_ANSWER, ids=lambda error: type(error).__name__)
def test_no_answer_says_nothing_about_what_was_applied(error):
    """Time-outs, refused and lost connections are worth another try, at whatever step they broke."""
    assert kind_of(error) is Kind.UNAVAILABLE


@pytest.mark.parametrize(
    "error",
    [
        exceptions.NoCredentialsError(),
        exceptions.ParamValidationError(report="Missing Key"),
        KeyError("PK"),
        TimeoutError("not botocore's"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_no_service_answered_is_a_bug(error):
    """Errors of the caller's side are never retried."""
    assert kind_of(error) is Kind.BUG


def test_an_error_without_metadata_is_read_by_its_code():
    """A stub's error may have no ResponseMetadata."""
    assert kind_of(exceptions.ClientError({"Error": {"Code": "Odd"}}, "UpdateItem")) is Kind.BUG


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("None", None),
        ("ConditionalCheckFailed", Kind.CONDITION),
        ("TransactionConflict", Kind.CONFLICT),
        ("ProvisionedThroughputExceeded", Kind.THROTTLED),
        ("ThrottlingError", Kind.THROTTLED),
        ("RequestLimitExceeded", Kind.THROTTLED),
        ("ItemCollectionSizeLimitExceeded", Kind.POISON),
        ("ValidationError", Kind.POISON),
        ("Whatever", Kind.BUG),
        ("", Kind.BUG),
    ],
)
def test_each_reason_of_a_cancelled_transaction_has_one_meaning(code, kind):
    """None had no part in it; what is not known is a bug."""
    assert kind_of_reason(code) is kind
