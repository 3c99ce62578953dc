"""The stream's Lambda: batches of the table's stream in, tallies out. Wiring only; `tallystream.batches` does it."""

import os
import random
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from botocore.config import Config

from tallystream.batches import Batches
from tallystream.dynamodb import DynamoDbTable
from tallystream.failures import SqsFailures
from tallystream.settings import Settings, SettingsError

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

THREADS = 32
LONGEST_INVOCATION_MS = 900_000

_settings = Settings.from_environment(os.environ)
if _settings.failed_batches_url is None:
    raise SettingsError("FAILED_BATCHES_URL is missing: a change that cannot be counted would have no place to go")

# The service is the metrics' dimension; the template makes it the stack's own.
_service = os.environ.get("POWERTOOLS_SERVICE_NAME", "aggregator")
_logger = Logger(service=_service)
_metrics = Metrics(namespace="Tallystream", service=_service)
_pool = ThreadPoolExecutor(THREADS)
# One client for all threads: https://docs.aws.amazon.com/boto3/latest/guide/clients.html#multithreading-or-multiprocessing
_config = Config(
    connect_timeout=1,
    read_timeout=1,
    retries={"mode": "standard", "total_max_attempts": 3},
    max_pool_connections=THREADS,
    parameter_validation=False,
)
_batches = Batches(
    table=DynamoDbTable(boto3.client("dynamodb", config=_config), _settings.table_name),
    failures=SqsFailures(boto3.client("sqs", config=_config), _settings.failed_batches_url),
    rules=_settings.rules,
    concurrently=_pool.map,
    now=time.time,
    sleep=time.sleep,
    jitter=random.random,
)


def handler(event: Mapping[str, Any], context: "LambdaContext | None") -> dict[str, Any]:
    """Bring one batch into the tallies; the answer is a partial batch response.

    Lambda gives a `context`; without one (called by hand), no time limit is known.

    Raises:
        Exception: whatever `Batches.apply` raises: Lambda then delivers the batch again, in halves.
    """
    remaining_ms = context.get_remaining_time_in_millis if context else lambda: LONGEST_INVOCATION_MS
    report = _batches.apply(event, remaining_ms)
    for note in report.notes:
        _logger.warning(note.pop("note"), extra=note)
    _logger.info("batch", extra={"shard": event.get("shardId"), **report.figures})
    for name, figure in report.figures.items():
        _metrics.add_metric(name.capitalize(), MetricUnit.Count, figure)
    _metrics.flush_metrics()
    return report.answer
