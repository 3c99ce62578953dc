"""The stream's event source mapping: each setting is one that the exact counting relies on."""

import json

import pytest

# Design, section 4: what the handler counts anyway, so that a filtered stream gives the same tallies.
FILTER = {
    "eventName": ["INSERT", "REMOVE"],
    "dynamodb": {"Keys": {"SK": {"S": [{"anything-but": ["META"]}]}}},
}
BATCH_SETTINGS = {
    "FunctionName": {"Ref": "AggregatorFunction"},
    "BatchSize": 10_000,
    "BisectBatchOnFunctionError": True,
    "FunctionResponseTypes": ["ReportBatchItemFailures"],
    "DestinationConfig": {"OnFailure": {"Destination": {"Fn::GetAtt": ["FailedBatches", "Arn"]}}},
    "MetricsConfig": {"Metrics": ["EventCount"]},
}


@pytest.fixture
def mapping(deployed):
    """Properties of the mapping for given parameters."""
    return lambda **parameters: deployed(**parameters)["StreamMapping"]["Properties"]


@pytest.mark.parametrize(("setting", "value"), BATCH_SETTINGS.items())
def test_each_batch_setting_is_spelled_out(mapping, setting, value):
    """Lambda's defaults would drop records, block shards or retry batches that are done."""
    assert mapping()[setting] == value


def test_there_is_one_mapping_and_no_hidden_one(template):
    """A second mapping of the same stream, or a SAM event, would count every like twice."""
    resources = template["Resources"].values()
    assert [r["Type"] for r in resources].count("AWS::Lambda::EventSourceMapping") == 1
    assert not [r for r in resources if "Events" in r.get("Properties", {})]


@pytest.mark.parametrize("counting_path", ["stream", "transaction"])
@pytest.mark.parametrize("window", [0, 60])
def test_b32_the_parallelisation_factor_is_always_one(mapping, counting_path, window):
    """Above one, Lambda keeps order per item only, and a mark would hide records that it has not counted."""
    assert mapping(CountingPath=counting_path, WindowSeconds=window)["ParallelizationFactor"] == 1


def test_b23_the_stream_is_found_through_the_table(mapping):
    """A stream that is replaced gets another ARN, and a written-out one would hear nothing."""
    assert mapping()["EventSourceArn"] == {"Fn::GetAtt": ["SocialTable", "StreamArn"]}


def test_b24_reading_starts_at_the_first_record(mapping):
    """LATEST loses what is written while the mapping is being created."""
    assert mapping()["StartingPosition"] == "TRIM_HORIZON"


def test_b14_retries_end_while_the_stream_still_has_the_records(mapping):
    """Finite retries and an age well below the stream's 24 hours leave time to redrive."""
    properties = mapping()
    assert 0 < properties["MaximumRetryAttempts"] <= 10_000
    assert 3600 <= properties["MaximumRecordAgeInSeconds"] <= 12 * 3600


def test_the_window_is_on_by_default_and_has_no_filter(mapping):
    """The window brings the shard id, and Lambda refuses a filter beside it."""
    properties = mapping()
    assert properties["TumblingWindowInSeconds"] == 60
    assert "FilterCriteria" not in properties


def test_every_allowed_window_is_one_that_lambda_accepts(template):
    """AWS::Lambda::EventSourceMapping takes 0 (off) to 900 seconds."""
    allowed = template["Parameters"]["WindowSeconds"]["AllowedValues"]
    assert 0 in allowed
    assert all(0 <= seconds <= 900 for seconds in allowed)


def test_every_allowed_batch_window_is_one_that_lambda_accepts(template):
    """AWS::Lambda::EventSourceMapping takes 0 to 300 seconds."""
    assert all(0 <= s <= 300 for s in template["Parameters"]["BatchWindowSeconds"]["AllowedValues"])


def test_without_a_window_the_stream_is_filtered(mapping):
    """The filter lets through inserts and removals of everything but posts, and nothing more."""
    properties = mapping(WindowSeconds=0)
    assert properties["TumblingWindowInSeconds"] == 0
    (pattern,) = properties["FilterCriteria"]["Filters"]
    assert json.loads(pattern["Pattern"]) == FILTER


@pytest.mark.parametrize("window", [10, 60, 900])
def test_any_window_excludes_the_filter(mapping, window):
    """It is the window being off that brings the filter, not the default being changed."""
    assert "FilterCriteria" not in mapping(WindowSeconds=window)


def test_b21_no_filter_compares_numbers(template, values):
    """In a stream record an N is a string, so a numeric rule under it lets nothing through."""
    patterns = [json.loads(value) for key, value in values(template) if key == "Pattern"]
    assert patterns
    for pattern in patterns:
        assert not [rule for key, rule in values(pattern) if key in {"N", "numeric"}]


def test_the_batch_window_is_the_parameter(mapping):
    """Staleness is the deployer's choice."""
    assert mapping()["MaximumBatchingWindowInSeconds"] == 2
    assert mapping(BatchWindowSeconds=30)["MaximumBatchingWindowInSeconds"] == 30


def test_the_stream_is_not_counted_in_transaction_mode(mapping):
    """Both paths at once would count every like twice."""
    assert mapping(CountingPath="stream")["Enabled"] is True
    assert mapping(CountingPath="transaction")["Enabled"] is False
