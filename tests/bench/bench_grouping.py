"""Grouping a batch: plain dicts against Powertools' data classes and against its batch processor."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord, DynamoDBStreamEvent

from bench.measuring import SIZES, busy_batch, side_by_side
from tallystream.changes import SEQUENCE_DIGITS, Change, ParentKey, group
from tallystream.rules import DEFAULT_COUNTERS, Rules

RULES = Rules.parse(DEFAULT_COUNTERS)
ROUNDS = 9

Parents = dict[ParentKey, list[Change]]


def by_group(event: dict[str, Any]) -> Parents:
    """Group as the product does."""
    return group(event["Records"], RULES).parents


def by_data_classes(event: dict[str, Any]) -> Parents:
    """Do the same job on the records of `DynamoDBStreamEvent`."""
    parents: Parents = {}
    for position, record in enumerate(DynamoDBStreamEvent(event).records):
        _add(parents, record, position)
    return parents


def by_batch_processor(event: dict[str, Any]) -> Parents:
    """Do the same job in the record handler of Powertools' `BatchProcessor`."""
    parents: Parents = {}
    position = 0

    def handle(record: DynamoDBRecord) -> None:
        nonlocal position
        _add(parents, record, position)
        position += 1

    processor = BatchProcessor(event_type=EventType.DynamoDBStreams)
    answer = process_partial_response(event, handle, processor)
    assert answer == {"batchItemFailures": []}
    return parents


def _add(parents: Parents, record: DynamoDBRecord, position: int) -> None:
    assert record.event_name
    delta = {"INSERT": 1, "REMOVE": -1, "MODIFY": 0}[record.event_name.name]
    data = record.dynamodb
    assert data
    keys = data.keys
    assert keys
    targets = RULES.parents_of(keys["SK"])
    if not targets or not delta:
        return
    number = (data.sequence_number or "").zfill(SEQUENCE_DIGITS)
    for sort_key, attribute in targets:
        parents.setdefault((keys["PK"], sort_key), []).append((number, attribute, delta, position))


def measure() -> list[dict[str, Any]]:
    """Return the medians for each size of batch, in milliseconds."""
    results = []
    for size in SIZES:
        event = busy_batch(size)
        assert by_group(event) == by_data_classes(event) == by_batch_processor(event), "they must do the same job"
        times = side_by_side(
            {
                "group": lambda event=event: by_group(event),
                "data_classes": lambda event=event: by_data_classes(event),
                "batch_processor": lambda event=event: by_batch_processor(event),
            },
            ROUNDS,
        )
        results.append(
            {
                "records": size,
                **{f"{name}_ms": taken.median_s * 1000 for name, taken in times.items()},
                "group_cpu_ms": times["group"].median_cpu_s * 1000,
                "data_classes_ratio": times["data_classes"].median_cpu_s / times["group"].median_cpu_s,
                "batch_processor_ratio": times["batch_processor"].median_cpu_s / times["group"].median_cpu_s,
            }
        )
    return results
