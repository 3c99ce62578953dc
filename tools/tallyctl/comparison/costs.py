"""What DynamoDB, Lambda and API Gateway charge: units by AWS's rules, dollars by the price lists of us-east-1.

Pure functions and constants. Sizes are in bytes, times in seconds, dollars in US dollars without tax and free tier.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

WRITE_UNIT_BYTES = 1024
READ_UNIT_BYTES = 4096
TRANSACTION_FACTOR = 2
"""A transaction prepares and commits each item, and is charged for both.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-capacity-handling"""

PARTITION_WRITE_UNITS = 1000
"""What one partition takes a second; of reads it takes the next.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html"""

PARTITION_READ_UNITS = 3000

LARGEST_ITEM_BYTES = 400 * 1024
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html#limits-items"""

_COLLECTION_OVERHEAD = 3
_ELEMENT_OVERHEAD = 1


class Price(NamedTuple):
    """A price of the Region us-east-1: dollars a unit, who publishes it, and since when it holds."""

    usd: float
    unit: str
    source: str
    since: str


# Taken from the project's design, section 8. Nobody reads the price lists when this runs: check them before you decide.
_DYNAMODB, _LAMBDA, _API = (
    "https://aws.amazon.com/dynamodb/pricing/on-demand/",
    "https://aws.amazon.com/lambda/pricing/",
    "https://aws.amazon.com/api-gateway/pricing/",
)
PRICES = {
    "write": Price(0.625e-6, "write unit", _DYNAMODB, "2024-11"),
    "read": Price(0.125e-6, "read unit", _DYNAMODB, "2024-11"),
    "invocation": Price(0.20e-6, "Lambda request", _LAMBDA, "2024-11"),
    "gb_s": Price(0.0000133334, "GB-second of Lambda on arm64", _LAMBDA, "2024-11"),
    "http": Price(1.00e-6, "HTTP API request", _API, "2024-11"),
}
"""Stream reads by Lambda cost nothing: https://aws.amazon.com/dynamodb/pricing/on-demand/."""

API_GB = 512 / 1024
AGGREGATOR_GB = 1769 / 1024
"""The functions' memory, as the template has it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What one like uses, on average."""

    write_units: float
    read_units: float
    """The like's own reads, and those of the people who look at the count."""
    requests: float
    """How many HTTP requests; more than one where some are told to come again."""
    api_s: float
    """How long the API function runs."""
    invocations: float
    """How many invocations of the function that reads the stream; one for many likes is a small fraction."""
    aggregator_s: float
    """How long that function runs."""


def item_size(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Return an item's size in bytes, attribute names included.

    By https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html, which calls the
    size of a number approximate.

    Raises:
        ValueError: an attribute is a set, whose size the rules do not give.
    """
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: Mapping[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return _number_size(content)
        case "B":
            return len(content)
        case "BOOL" | "NULL":
            return 1
        case "M":
            return _COLLECTION_OVERHEAD + item_size(content) + _ELEMENT_OVERHEAD * len(content)
        case "L":
            return _COLLECTION_OVERHEAD + sum(_value_size(element) + _ELEMENT_OVERHEAD for element in content)
    raise ValueError(f"the size of a {kind} is not in DynamoDB's rules")


@functools.lru_cache(65_536)
def _number_size(text: str) -> int:
    """Return the size of a number: a byte for two significant digits, and one; a sign takes one more."""
    number = Decimal(text).normalize()
    sign, digits, _ = number.as_tuple()
    return math.ceil(len(digits) / 2) + 1 + sign


def write_units(size: float) -> int:
    """Return the write units of `size` bytes that are written outside of a transaction: one a KB, rounded up.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#write-operation-consumption
    """
    return max(1, math.ceil(size / WRITE_UNIT_BYTES))


def units_of_write(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> int:
    """Return the write units of a write that is no transaction: by the larger of the item before and after it.

    A write that leaves no item (`after` is None) is charged by the item that was there; one of nothing takes a unit. A
    failed condition is charged by the item that it met: pass that as both.
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#write-operation-consumption
    """
    return write_units(max(item_size(before or {}), item_size(after or {})))


def read_units(size: float, *, consistent: bool) -> float:
    """Return the read units of `size` bytes: an item, or all that one page of a `Query` goes through.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html#read-operation-consumption
    """
    return max(1, math.ceil(size / READ_UNIT_BYTES)) * (1 if consistent else 0.5)


def usd_per_million(usage: Usage) -> dict[str, float]:
    """Return the dollars of a million likes, part by part; their sum is the price.

    Left out, since every path has them alike: the HTTP requests and invocations of those who read; storage; the logs.
    """
    million = 1_000_000
    return {
        "dynamodb_writes": usage.write_units * PRICES["write"].usd * million,
        "dynamodb_reads": usage.read_units * PRICES["read"].usd * million,
        "http_api": usage.requests * PRICES["http"].usd * million,
        "api_requests": usage.requests * PRICES["invocation"].usd * million,
        "api_gb_s": usage.api_s * API_GB * PRICES["gb_s"].usd * million,
        "aggregator_requests": usage.invocations * PRICES["invocation"].usd * million,
        "aggregator_gb_s": usage.aggregator_s * AGGREGATOR_GB * PRICES["gb_s"].usd * million,
    }
