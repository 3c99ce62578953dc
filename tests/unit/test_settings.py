"""The environment: read once, and what is wrong is named."""

import dataclasses

import pytest

from tallystream.rules import DEFAULT_COUNTERS, Rules
from tallystream.settings import Settings, SettingsError

QUEUE = "https://sqs.eu-west-1.amazonaws.com/111122223333/failed"
GOOD = {
    "TABLE_NAME": "Social",
    "COUNTERS": '[{"child": "REPLY#", "parent": "META", "attribute": "replies"}]',
    "COUNTING_PATH": "transaction",
    "FAILED_BATCHES_URL": QUEUE,
    "RECORD_AGE_SECONDS": "21600",
    "WINDOW_SECONDS": "60",
}


def test_every_variable_is_read():
    """What the template sets is what the settings hold."""
    settings = Settings.from_environment({**GOOD, "AWS_REGION": "eu-west-1"})
    assert (settings.table_name, settings.counting_path) == ("Social", "transaction")
    assert (settings.failed_batches_url, settings.record_age_s, settings.window_s) == (QUEUE, 21600, 60)
    assert settings.rules.parents_of("REPLY#r1") == (("META", "replies"),)


def test_the_table_alone_is_enough():
    """Likes are counted by the stream unless said otherwise; the rest is for the function that needs it to ask."""
    settings = Settings.from_environment({"TABLE_NAME": "T-1_a.b"})
    assert (settings.table_name, settings.counting_path) == ("T-1_a.b", "stream")
    assert (settings.failed_batches_url, settings.record_age_s, settings.window_s) == (None, None, None)
    assert settings.rules.all == Rules.parse(DEFAULT_COUNTERS).all


@pytest.mark.parametrize("name", GOOD)
def test_white_space_around_a_value_does_not_matter(name):
    """A line break at the end of a value is how environments are set by hand."""
    padded = Settings.from_environment({**GOOD, name: f" {GOOD[name]}\n"})
    plain = Settings.from_environment(GOOD)
    assert dataclasses.replace(padded, rules=plain.rules) == plain
    assert padded.rules.all == plain.rules.all


def test_a_missing_table_name_is_named():
    """There is no default table."""
    with pytest.raises(SettingsError, match=r"TABLE_NAME must be the name of a DynamoDB table .*, not ''"):
        Settings.from_environment({name: value for name, value in GOOD.items() if name != "TABLE_NAME"})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TABLE_NAME", "", "TABLE_NAME must"),
        ("TABLE_NAME", "  ", "TABLE_NAME must"),
        ("TABLE_NAME", "ab", "not 'ab'"),
        ("TABLE_NAME", "a" * 256, "TABLE_NAME must"),
        ("TABLE_NAME", "my table", "not 'my table'"),
        ("TABLE_NAME", "Tablé", "TABLE_NAME must"),
        ("TABLE_NAME", "arn:aws:dynamodb:eu-west-1:111122223333:table/T", "TABLE_NAME must"),
        ("COUNTERS", "", "COUNTERS: not JSON"),
        ("COUNTERS", "LIKE#USER#", "COUNTERS: not JSON"),
        ("COUNTERS", "[]", "COUNTERS: at least one rule"),
        ("COUNTERS", '[{"child": "LIKE#"}]', 'COUNTERS: rule 1 {"child": "LIKE#"} needs parent'),
        ("COUNTING_PATH", "", "COUNTING_PATH must be stream or transaction, not ''"),
        ("COUNTING_PATH", "Stream", "not 'Stream'"),
        ("COUNTING_PATH", "both", "not 'both'"),
        ("FAILED_BATCHES_URL", "", "FAILED_BATCHES_URL must be the URL of an SQS queue, not ''"),
        ("FAILED_BATCHES_URL", "failed", "not 'failed'"),
        ("FAILED_BATCHES_URL", "arn:aws:sqs:eu-west-1:111122223333:failed", "FAILED_BATCHES_URL must"),
        ("FAILED_BATCHES_URL", "https://sqs.eu-west-1.amazonaws.com", "FAILED_BATCHES_URL must"),
        ("FAILED_BATCHES_URL", "https://sqs/a b", "FAILED_BATCHES_URL must"),
        ("RECORD_AGE_SECONDS", "", "RECORD_AGE_SECONDS must be 60 to 86400, as the stream mapping has it, not ''"),
        ("RECORD_AGE_SECONDS", "59", "not '59'"),
        ("RECORD_AGE_SECONDS", "86401", "not '86401'"),
        ("RECORD_AGE_SECONDS", "-1", "not '-1'"),
        ("RECORD_AGE_SECONDS", "6 hours", "RECORD_AGE_SECONDS must"),
        ("WINDOW_SECONDS", "", "WINDOW_SECONDS must be 0 to 900, as the stream mapping has it, not ''"),
        ("WINDOW_SECONDS", "901", "not '901'"),
        ("WINDOW_SECONDS", "off", "not 'off'"),
    ],
)
def test_an_empty_or_malformed_variable_is_named_with_what_it_should_be(name, value, said):
    """A wrong value is never taken for a missing one, and never for another."""
    with pytest.raises(SettingsError) as refused:
        Settings.from_environment({**GOOD, name: value})
    assert said in str(refused.value)
    assert str(refused.value).startswith(name)


def test_the_embedded_aws_has_queues_too():
    """A queue URL of the local stack, with http and a port, is one."""
    url = "http://sqs.eu-west-1.localhost:4566/000000000000/failed"
    assert Settings.from_environment({**GOOD, "FAILED_BATCHES_URL": url}).failed_batches_url == url


def test_settings_are_frozen():
    """What the first invocation saw, the last one sees."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings.from_environment(GOOD).table_name = "Other"
