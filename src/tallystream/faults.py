"""Which errors of DynamoDB mean what: one reading of them for the aggregator, the API and the tools."""

import enum

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as ConnectingError


class Kind(enum.Enum):
    """What an error means for the one who called."""

    CONDITION = "the item did not meet the condition"
    THROTTLED = "more requests than the table, partition or account takes just now"
    UNAVAILABLE = "no answer, or the service's own fault: the request may or may not have been applied"
    CONFLICT = "another transaction holds the item"
    CANCELLED = "the transaction was cancelled; its reasons say why, item by item"
    POISON = "this request can never succeed on this item"
    BUG = "nothing that the caller can mend: wrong rights, a missing table, a request that was built wrong"


# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
_KINDS = {
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
}
# https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html, "Errors"
_REASONS = {
    "None": None,
    "ConditionalCheckFailed": Kind.CONDITION,
    "TransactionConflict": Kind.CONFLICT,
    "ProvisionedThroughputExceeded": Kind.THROTTLED,
    "ThrottlingError": Kind.THROTTLED,
    "RequestLimitExceeded": Kind.THROTTLED,
    "ItemCollectionSizeLimitExceeded": Kind.POISON,
    "ValidationError": Kind.POISON,
}
_SERVER_FAULT = 500


def kind_of(error: Exception) -> Kind:
    """Return what an exception of a DynamoDB call means; BUG for what is not known to be anything else."""
    if isinstance(error, ClientError):
        kind = _KINDS.get(error.response["Error"]["Code"])
        if kind is not None:
            return kind
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return Kind.UNAVAILABLE if status >= _SERVER_FAULT else Kind.BUG
    # Time-outs and lost connections; a wrong endpoint or an unknown host is among them, and a retry harms nothing.
    return Kind.UNAVAILABLE if isinstance(error, ConnectingError | HTTPClientError) else Kind.BUG


def kind_of_reason(code: str) -> Kind | None:
    """Return what one entry of CancellationReasons means; None for an item that had no part in the failure."""
    return _REASONS.get(code, Kind.BUG)
