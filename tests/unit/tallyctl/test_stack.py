"""Where a command looks, and how it names what it finds."""

import os

import pytest

from tallyctl.emulator import free_port
from tallyctl.errors import TallyctlError
from tallyctl.stack import REAL_AWS, Place, Stack, api_url, connect, host_and_port, resolve

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
