"""Where a command looks, and how it names what it finds."""

import os
from types import SimpleNamespace

import pytest

from tallyctl import stack as stacks
from tallyctl.emulator import free_port
from tallyctl.errors import TallyctlError
from tallyctl.stack import (
    REAL_AWS,
    SECONDS_A_RECORD_LIVES,
    Place,
    Stack,
    api_url,
    connect,
    counting,
    counting_of,
    host_and_port,
    resolve,
    stack_of,
)

OUTPUTS = {"ApiUrl": "http://a1b2c3.execute-api.localhost:4572", "TableName": "T"}


def test_the_api_of_an_emulator_is_called_at_the_emulators_own_address():
    """The host name in the output resolves nowhere; the API's id moves into the path."""
    place = connect("http://127.0.0.1:4572", "us-east-1")
    assert api_url(place, Stack("s", OUTPUTS)) == "http://127.0.0.1:4572/_aws/execute-api/a1b2c3/$default"


def test_the_api_on_aws_is_called_as_its_output_says():
    """Only a slash at the end goes, so that paths can follow."""
    place = connect(REAL_AWS, "eu-west-1")
    outputs = {"ApiUrl": "https://a1b2c3.execute-api.eu-west-1.amazonaws.com/"}
    assert api_url(place, Stack("s", outputs)) == "https://a1b2c3.execute-api.eu-west-1.amazonaws.com"


def test_an_emulators_session_goes_to_the_given_endpoint_whatever_the_environment_says(monkeypatch):
    """localstack-client would follow AWS_ENDPOINT_URL instead; the variable itself stays as it was."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    client = connect("http://127.0.0.1:4572", "us-east-1").session.client("dynamodb")
    assert client.meta.endpoint_url == "http://127.0.0.1:4572"
    assert os.environ["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9"


def test_an_emulator_gets_no_real_credentials(monkeypatch):
    """Whatever the caller's own are."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAREAL")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "real")
    credentials = connect("http://127.0.0.1:4572", "us-east-1").session.get_credentials()
    assert (credentials.access_key, credentials.secret_key, credentials.token) == ("test", "test", None)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:4566", "http://127.0.0.1", "http://:4566", "ftp://h:1", "http://h:port", "AWS"]
)
def test_an_endpoint_without_host_and_port_is_one_clear_line(url):
    """The line says what it should be."""
    with pytest.raises(TallyctlError, match="must be http://HOST:PORT, or the word aws"):
        host_and_port(url)


def test_a_stack_without_the_expected_output_is_not_ours():
    """The line names the stack and the output."""
    with pytest.raises(TallyctlError, match="stack other has no output TableName"):
        _ = Stack("other", {}).table_name


def test_nothing_at_the_endpoint_is_one_clear_line():
    """The line names the endpoint and the way out; no request is repeated for long."""
    place: Place = connect(f"http://127.0.0.1:{free_port()}", "us-east-1")
    with pytest.raises(TallyctlError, match=r"no answer from http://127.0.0.1:\d+ .* `tallyctl local up` starts one"):
        resolve(place, "tallystream-local")


class Deployed:
    """An AWS with one stack, whose aggregator has some environment and some stream mappings."""

    environment = {"TABLE_NAME": "Social"}  # noqa: RUF012 - read only
    outputs = {"TableName": "Social", "AggregatorFunctionName": "count", "FailedBatchesUrl": "https://q/failed"}  # noqa: RUF012

    def __init__(self, *mappings, **environment):
        self.mappings = list(mappings)
        self.variables = {**self.environment, **environment}
        self.place = Place(None, "eu-west-1", self)

    def client(self, name):
        """Return a client: of the function, or of the stack."""
        assert name in {"lambda", "cloudformation"}
        return self

    def get_function_configuration(self, *, FunctionName):  # noqa: N803 - boto3's names
        """Return the function's environment."""
        assert FunctionName == "count"
        return {"Environment": {"Variables": self.variables}}

    def list_event_source_mappings(self, *, FunctionName):  # noqa: N803 - boto3's names
        """Return the mappings."""
        assert FunctionName == "count"
        return {"EventSourceMappings": self.mappings}

    def describe_stacks(self, *, StackName):  # noqa: N803 - boto3's names
        """Return the stack."""
        return {"Stacks": [self._stack(StackName)]}

    def get_paginator(self, _):
        """Return the stacks, a page each."""
        other = {"StackName": "other", "Outputs": []}
        return SimpleNamespace(paginate=lambda: [{"Stacks": [other]}, {"Stacks": [self._stack("app")]}])

    def _stack(self, name):
        outputs = [{"OutputKey": key, "OutputValue": value} for key, value in self.outputs.items()]
        return {"StackName": name, "Outputs": outputs}


STACK = Stack("app", Deployed.outputs)


@pytest.mark.parametrize(
    ("mappings", "record_age_s"),
    [
        ([{"MaximumRecordAgeInSeconds": 21600}], 21600),
        ([{"MaximumRecordAgeInSeconds": -1}], SECONDS_A_RECORD_LIVES),
        ([{}], SECONDS_A_RECORD_LIVES),
        ([{"MaximumRecordAgeInSeconds": 604800}], SECONDS_A_RECORD_LIVES),
        ([{"MaximumRecordAgeInSeconds": 60}, {"MaximumRecordAgeInSeconds": 3600}], 3600),
        ([{"MaximumRecordAgeInSeconds": 21600, "State": "Disabled"}], 0),
        ([{"MaximumRecordAgeInSeconds": 21600, "State": "Enabling"}], 21600),
        ([], 0),
    ],
)
def test_a_record_is_given_up_at_the_mappings_age(mappings, record_age_s):
    """No limit is a day, since a stream has nothing older; a mapping that is off delivers nothing."""
    deployed = Deployed(*mappings)
    assert counting(deployed.place, STACK).record_age_s == record_age_s


@pytest.mark.parametrize(("window", "names_shards"), [(60, True), (0, False)])
@pytest.mark.parametrize("ministack", [True, False])
def test_marks_name_shards_where_the_mapping_has_a_window(window, names_shards, ministack, monkeypatch):
    """MiniStack has the setting and tells no shard."""
    monkeypatch.setattr(stacks, "is_ministack", lambda _: ministack)
    deployed = Deployed({"TumblingWindowInSeconds": window})
    emulated = Place("http://127.0.0.1:4572", "eu-west-1", deployed)
    assert counting(deployed.place, STACK).names_shards is names_shards
    assert counting(emulated, STACK).names_shards is (names_shards and not ministack)


def test_rules_and_path_are_the_deployed_functions():
    """Not what the template says today."""
    rules = '[{"child": "REPLY#", "parent": "META", "attribute": "replies"}]'
    found = counting(Deployed({}, COUNTERS=rules, COUNTING_PATH="transaction").place, STACK)
    assert (found.table_name, found.path, found.rules.all[0].attribute) == ("Social", "transaction", "replies")


def test_a_function_that_is_no_aggregator_is_one_clear_line():
    """The line says what is wrong with it."""
    with pytest.raises(TallyctlError, match="count is not set as an aggregator: COUNTING_PATH must be"):
        counting(Deployed({}, COUNTING_PATH="both").place, STACK)


def test_a_table_is_counted_as_its_stack_says():
    """Found by its name among all stacks; rules beside the stack's own are refused."""
    deployed = Deployed({"TumblingWindowInSeconds": 60})
    assert stack_of(deployed.place, "Social") == Stack("app", Deployed.outputs)
    by_table = counting_of(deployed.place, "ignored", "Social", None)
    by_stack = counting_of(deployed.place, "app", None, None)
    assert by_table.record_age_s == by_stack.record_age_s == SECONDS_A_RECORD_LIVES
    with pytest.raises(TallyctlError, match="--counters is for a table that no stack has; app has rules of its own"):
        counting_of(deployed.place, "ignored", "Social", "[]")


def test_a_table_of_no_stack_is_counted_by_nobody():
    """By the default rule or by those that are given; nothing in its stream is waited for."""
    deployed = Deployed({})
    found = counting_of(deployed.place, "app", "Foreign", None)
    assert (found.table_name, found.path, found.record_age_s, found.names_shards) == ("Foreign", "stream", 0, True)
    assert found.rules.all[0].attribute == "likeTally"
    rules = '[{"child": "REPLY#", "parent": "META", "attribute": "replies"}]'
    assert counting_of(deployed.place, "app", "Foreign", rules).rules.all[0].attribute == "replies"
    with pytest.raises(TallyctlError, match="--counters: "):
        counting_of(deployed.place, "app", "Foreign", "{}")
    with pytest.raises(TallyctlError, match="no stack here has a table Foreign"):
        resolve(deployed.place, "app", "Foreign")


def test_a_client_on_an_emulator_has_no_account_in_its_host_name():
    """The SDK puts it there for DynamoDB, and no emulator answers to it."""
    assert connect("http://127.0.0.1:4572", "us-east-1").config(4).account_id_endpoint_mode == "disabled"
    assert connect(REAL_AWS, "us-east-1").config(4).account_id_endpoint_mode == "preferred"
    assert connect(REAL_AWS, "us-east-1").config(4).max_pool_connections == 4
