"""Where the AWS is that a command talks to, and what a deployed stack calls its parts."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import boto3
import localstack_client.session
from botocore.exceptions import BotoCoreError, ClientError

from tallyctl.errors import TallyctlError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

REAL_AWS = "aws"
"""What `--endpoint-url` is for the real AWS. Nothing else reaches it: a demo must not run there by accident."""

_LOCAL_CREDENTIAL = "test"


@dataclass(frozen=True, slots=True)
class Place:
    """One AWS to talk to: an emulator at an endpoint, or the real one."""

    endpoint_url: str | None
    """None for the real AWS."""
    region: str
    session: boto3.Session
    """For an emulator it is localstack-client's, which has the same methods."""


def connect(endpoint_url: str, region: str) -> Place:
    """Return the place at an endpoint URL; no request is made.

    Args:
        endpoint_url: of an emulator, such as `http://127.0.0.1:4566`; or `aws`.
        region: the AWS region, such as `us-east-1`.

    Raises:
        TallyctlError: it is neither a URL with a host and a port nor `aws`.
    """
    if endpoint_url == REAL_AWS:
        return Place(None, region, boto3.Session(region_name=region))
    host, port = host_and_port(endpoint_url)
    # localstack-client prefers this variable to its argument, so the two have to agree while it looks.
    with _environment_variable("AWS_ENDPOINT_URL", endpoint_url):
        session = localstack_client.session.Session(
            aws_access_key_id=_LOCAL_CREDENTIAL,
            aws_secret_access_key=_LOCAL_CREDENTIAL,
            aws_session_token=None,
            region_name=region,
            localstack_host=f"{host}:{port}",
        )
    return Place(endpoint_url, region, cast("boto3.Session", session))


def host_and_port(endpoint_url: str) -> tuple[str, int]:
    """Return the host and the port of an emulator's endpoint URL.

    Raises:
        TallyctlError: the URL is not `http://HOST:PORT` (or https).
    """
    try:
        parts = urlsplit(endpoint_url)
        host, port = parts.hostname, parts.port
    except ValueError:  # a port that is no number
        host = port = None
    if not host or not port or not endpoint_url.startswith(("http://", "https://")):
        raise TallyctlError(f"--endpoint-url must be http://HOST:PORT, or the word {REAL_AWS}, not {endpoint_url!r}")
    return host, port


@contextmanager
def _environment_variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@dataclass(frozen=True, slots=True)
class Stack:
    """A deployed stack, by what its outputs say."""

    name: str
    outputs: Mapping[str, str]

    @property
    def table_name(self) -> str:
        """The table of posts and likes."""
        return self._output("TableName")

    @property
    def api_url(self) -> str:
        """The HTTP API, as AWS names it; `api_url` the function says how to reach it."""
        return self._output("ApiUrl")

    @property
    def aggregator(self) -> str:
        """The name of the function that counts the stream."""
        return self._output("AggregatorFunctionName")

    def _output(self, name: str) -> str:
        if name not in self.outputs:
            raise TallyctlError(f"the stack {self.name} has no output {name}: it is not a Tallystream stack")
        return self.outputs[name]


def resolve(place: Place, stack_name: str, table_name: str | None = None) -> Stack:
    """Return a stack by its name, or by the name of its table if that is given.

    Raises:
        TallyctlError: there is no such stack, or nothing answers.
    """
    cloudformation = place.session.client("cloudformation")
    try:
        if table_name is not None:
            stack_name = _stack_of(cloudformation, table_name)
        stacks = cloudformation.describe_stacks(StackName=stack_name)["Stacks"]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ValidationError":
            raise TallyctlError(
                f"there is no stack {stack_name} at {_shown(place)}: `tallyctl local up` makes one"
            ) from error
        raise TallyctlError(f"CloudFormation at {_shown(place)} refused: {error}") from error
    except BotoCoreError as error:
        raise TallyctlError(f"no answer from {_shown(place)} ({error}); `tallyctl local up` starts one") from error
    outputs = {output["OutputKey"]: output["OutputValue"] for output in stacks[0].get("Outputs", [])}
    return Stack(stack_name, outputs)


def resource(place: Place, stack: Stack, logical_id: str) -> str:
    """Return the physical name of one of the stack's resources, such as a function's.

    Raises:
        TallyctlError: the stack has no such resource.
    """
    cloudformation = place.session.client("cloudformation")
    try:
        found = cloudformation.describe_stack_resource(StackName=stack.name, LogicalResourceId=logical_id)
    except ClientError as error:
        raise TallyctlError(f"the stack {stack.name} has no resource {logical_id}: {error}") from error
    return found["StackResourceDetail"]["PhysicalResourceId"]


def counting_path(place: Place, stack: Stack) -> str:
    """Return how the deployed stack counts: `stream` or `transaction`."""
    settings = place.session.client("lambda").get_function_configuration(FunctionName=stack.aggregator)
    return settings.get("Environment", {}).get("Variables", {}).get("COUNTING_PATH", "stream")


def api_url(place: Place, stack: Stack) -> str:
    """Return the URL under which the stack's HTTP API can be called from here, without a slash at its end.

    On the real AWS it is the output itself. The host name in an emulator's output resolves nowhere, so there it is
    the emulator's own address, with the API's id and stage in the path.
    """
    if place.endpoint_url is None:
        return stack.api_url.rstrip("/")
    api_id = (urlsplit(stack.api_url).hostname or "").partition(".")[0]
    return f"{place.endpoint_url.rstrip('/')}/_aws/execute-api/{api_id}/$default"


def _stack_of(cloudformation: "CloudFormationClient", table_name: str) -> str:
    for page in cloudformation.get_paginator("describe_stacks").paginate():
        for found in page["Stacks"]:
            if any(output.get("OutputValue") == table_name for output in found.get("Outputs", [])):
                return found["StackName"]
    raise TallyctlError(f"no stack here has a table {table_name}")


def _shown(place: Place) -> str:
    return place.endpoint_url or f"AWS in {place.region}"
