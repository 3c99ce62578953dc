"""The scheduled Lambda that looks for drift: a random sample of the parents, audited and reported. It never writes.

Wiring only: `tallystream.sampling` draws the sample, `tallystream.auditor` judges it.
"""

import itertools
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from botocore.config import Config

from tallystream.audit import Unjudged
from tallystream.auditor import Auditor, Group, Report, overdue_after
from tallystream.dynamodb import DynamoDbItems, DynamoDbTable
from tallystream.sampling import sample, segments_of
from tallystream.settings import Settings, SettingsError
from tallystream.streams import TableStream

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

THREADS = 16
LONGEST_INVOCATION_MS = 900_000

MOST_PARENTS = 1000
"""With so many parents the sample is large enough."""

MOST_READ_UNITS = 10_000.0
"""So many read units end the sample, too: at most 40 MB of items, and about a tenth of a cent. Parents that have to be
judged exactly are read again, up to `auditor.READINGS` times."""

SAMPLING_MS = 120_000
"""So much time ends the sample as well. The stream takes most of the rest."""

RESERVE_MS = 60_000
"""With less time left nothing more is read: what is not judged by then is reported so. A read under way may take a few
seconds, with the SDK's retries."""

MOST_NOTES = 20
"""So many lines of one kind are logged at most, but for drift, which is logged whole."""

_A = TypeVar("_A")
_B = TypeVar("_B")

_settings = Settings.from_environment(os.environ)
if _settings.record_age_s is None or _settings.window_s is None:
    raise SettingsError("RECORD_AGE_SECONDS or WINDOW_SECONDS is missing: they tell what the aggregator is given")
_record_age_s, _names_shards = _settings.record_age_s, _settings.window_s > 0

# The service is the metrics' dimension; the template makes it the stack's own.
_service = os.environ.get("POWERTOOLS_SERVICE_NAME", "drift-watch")
_logger = Logger(service=_service)
_metrics = Metrics(namespace="Tallystream", service=_service)
_pool = ThreadPoolExecutor(THREADS)
_config = Config(
    connect_timeout=1,
    read_timeout=5,
    retries={"mode": "standard", "total_max_attempts": 5},
    max_pool_connections=THREADS,
)
_dynamodb = boto3.client("dynamodb", config=_config)
_streams = boto3.client("dynamodbstreams", config=_config)


class NoStream(Exception):
    """The table has no stream, so nothing can be judged."""


class _InTime:
    """Reads for as long as there is time, and then says so."""

    def __init__(self, remaining_ms: Callable[[], int]) -> None:
        self._remaining_ms = remaining_ms

    def check(self) -> None:
        """Raise Unjudged if there is no time left."""
        if self._remaining_ms() < RESERVE_MS:
            raise Unjudged("there was no time left to read it, or the stream to its end")

    def concurrently(self, function: Callable[[_A], _B], items: Iterable[_A], /) -> Iterable[_B]:
        """Apply a function to several things at a time."""
        self.check()
        return _pool.map(function, items)


class _Items(DynamoDbItems):
    """The table, read while there is time: one parent may have millions of children."""

    def __init__(self, in_time: _InTime) -> None:
        super().__init__(_dynamodb, _settings.table_name, time.time)
        self._in_time = in_time

    def children(self, partition_key: str, prefix: str) -> Iterator[list[str]]:
        """Yield the sort keys page by page; raise Unjudged when there is no time left."""
        for page in super().children(partition_key, prefix):
            self._in_time.check()
            yield page


def handler(event: Mapping[str, Any], context: "LambdaContext | None") -> dict[str, float]:  # noqa: ARG001 - a schedule says nothing
    """Audit a random sample of the table's parents; log each finding and emit the metrics. Nothing is written.

    Lambda gives a `context`; without one (called by hand), there are 15 minutes.

    Returns:
        The figures of the run, as they are logged.

    Raises:
        NoStream: the table has none.
        Exception: whatever the table and the stream raise. Nothing is known then; the next run begins anew.
    """
    began = time.monotonic()
    remaining_ms = context.get_remaining_time_in_millis if context else lambda: LONGEST_INVOCATION_MS
    in_time = _InTime(remaining_ms)
    table = _dynamodb.describe_table(TableName=_settings.table_name)["Table"]
    if "LatestStreamArn" not in table:
        raise NoStream(f"the table {_settings.table_name} has no stream: without one, nothing can be judged exactly")
    items = _Items(in_time)
    until_ms = remaining_ms() - SAMPLING_MS

    def enough(found: Sequence[Group]) -> bool:
        parents = sum(len(group.parents) for group in found)
        return parents >= MOST_PARENTS or items.units >= MOST_READ_UNITS or remaining_ms() <= until_ms

    groups = sample(items, segments_of(table["ItemCount"]), _settings.rules, random.sample, enough)
    sampled = {group.partition_key for group in groups}
    stream = TableStream(
        _streams,
        table["LatestStreamArn"],
        _settings.rules,
        now=time.time,
        sleep=time.sleep,
        concurrently=in_time.concurrently,
        wanted=sampled.__contains__,
    )
    auditor = Auditor(
        items,
        stream,
        DynamoDbTable(_dynamodb, _settings.table_name),
        _settings.rules,
        _settings.counting_path,
        overdue_after(_record_age_s),
        in_time.concurrently,
        time.time,
        new_name=str,  # of repairs, and there are none
        names_shards=_names_shards,
    )
    report = Report()
    if groups:
        auditor.audit(groups, report, mend=False)
    figures = _figures(groups, report) | {"read_units": items.units, "seconds": round(time.monotonic() - began, 1)}
    _tell(report, figures)
    return figures


def _figures(groups: Sequence[Group], report: Report) -> dict[str, float]:
    """Return what a run has found. Of the parents that exist, `audited` are those that could be judged."""
    parents = {(group.partition_key, sort_key) for group in groups for sort_key in group.parents}
    drifts = [abs(tally.drift) for tallies in report.drifting.values() for tally in tallies]
    return {
        "parents": len(parents),
        "children": sum(group.children for group in groups),
        "audited": len(parents - report.unjudged.keys()),
        "drifting": len(report.drifting),
        "drift": sum(drifts),
        "unjudged": len(report.unjudged),
        "unjudged_percent": round(100 * len(report.unjudged) / max(1, len(parents | report.unjudged.keys())), 1),
        "orphans": sum(report.orphans.values()),
        "waiting": report.waiting,
    }


def _tell(report: Report, figures: Mapping[str, float]) -> None:
    """Log the findings, a line each, and the figures; emit the metrics."""
    for parent, tallies in report.drifting.items():
        for tally in tallies:
            _logger.warning("tally drifts", extra={"parent": parent, **tally._asdict(), "drift": tally.drift})
    for parent, reason in itertools.islice(report.unjudged.items(), MOST_NOTES):
        _logger.warning("unjudged", extra={"parent": parent, "reason": reason})
    for parent, children in itertools.islice(report.orphans.items(), MOST_NOTES):
        _logger.warning("orphaned: the parent does not exist", extra={"parent": parent, "children": children})
    _logger.info("audit", extra=dict(figures))
    for name, unit, figure in (
        ("TallyDrift", MetricUnit.Count, "drift"),
        ("DriftingParents", MetricUnit.Count, "drifting"),
        ("AuditedParents", MetricUnit.Count, "audited"),
        ("UnjudgedParents", MetricUnit.Count, "unjudged"),
        ("UnjudgedPercent", MetricUnit.Percent, "unjudged_percent"),
        ("OrphanedChildren", MetricUnit.Count, "orphans"),
    ):
        _metrics.add_metric(name, unit, figures[figure])
    _metrics.flush_metrics()
