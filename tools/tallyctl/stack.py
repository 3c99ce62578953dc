"""Where the AWS is that a command talks to, what a deployed stack calls its parts, and how it counts."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import boto3
import localstack_client.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tallyctl.emulator import is_ministack
from tallyctl.errors import TallyctlError
from tallystream.rules import DEFAULT_COUNTERS, RuleError, Rules
from tallystream.settings import CountingPath, Settings, SettingsError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import StackTypeDef
    from mypy_boto3_lambda.type_defs import EventSourceMappingConfigurationTypeDef

REAL_AWS = "aws"
"""What `--endpoint-url` is for the real AWS. Nothing else reaches it: a demo must not run there by accident."""

SECONDS_A_RECORD_LIVES = 24 * 3600
"""How long a stream keeps its records:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html"""

_LOCAL_CREDENTIAL = "test"
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Place:
    """One AWS to talk to: an emulator at an endpoint, or the real one."""

    endpoint_url: str | None
    """None for the real AWS."""
    region: str
    session: boto3.Session
    """For an emulator it is localstack-client's, which has the same methods."""

    def config(self, connections: int) -> Config:
        """Return the settings of a client that many threads use for a long time: it is patient with throttles."""
        return Config(
            max_pool_connections=connections,
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            # botocore would put an account's id into the host name, which no emulator answers to.
            account_id_endpoint_mode="preferred" if self.endpoint_url is None else "disabled",
        )


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

    @property
    def failed_batches_url(self) -> str:
        """The URL of the failure queue. The host in it does not matter: the SDK goes to its own endpoint."""
        return self._output("FailedBatchesUrl")

    def _output(self, name: str) -> str:
        if name not in self.outputs:
            raise TallyctlError(f"the stack {self.name} has no output {name}: it is not a Tallystream stack")
        return self.outputs[name]


def resolve(place: Place, stack_name: str, table_name: str | None = None) -> Stack:
    """Return a stack by its name, or by the name of its table if that is given.

    Raises:
        TallyctlError: there is no such stack, or nothing answers.
    """
    if table_name is not None:
        found = stack_of(place, table_name)
        if found is None:
            raise TallyctlError(f"no stack here has a table {table_name}")
        return found
    cloudformation = place.session.client("cloudformation")
    try:
        stacks = cloudformation.describe_stacks(StackName=stack_name)["Stacks"]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ValidationError":
            raise TallyctlError(
                f"there is no stack {stack_name} at {_shown(place)}: `tallyctl local up` makes one"
            ) from error
        raise _refused(place, error) from error
    except BotoCoreError as error:
        raise _no_answer(place, error) from error
    return Stack(stack_name, _outputs(stacks[0]))


def stack_of(place: Place, table_name: str) -> Stack | None:
    """Return the stack that a table belongs to; None if no stack's outputs name it.

    Raises:
        TallyctlError: nothing answers, or CloudFormation refuses.
    """
    cloudformation = place.session.client("cloudformation")
    try:
        for page in cloudformation.get_paginator("describe_stacks").paginate():
            for found in page["Stacks"]:
                if table_name in _outputs(found).values():
                    return Stack(found["StackName"], _outputs(found))
    except ClientError as error:
        raise _refused(place, error) from error
    except BotoCoreError as error:
        raise _no_answer(place, error) from error
    return None


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


@dataclass(frozen=True, slots=True)
class Counting:
    """A table, and how its tallies are kept."""

    table_name: str
    rules: Rules
    path: CountingPath
    record_age_s: int
    """The age at which the event source mapping gives a record up, at most a day; 0 if no mapping delivers any."""
    names_shards: bool
    """Whether the aggregator is told the shard of its records, and so whether its marks name shards."""


def counting(place: Place, stack: Stack) -> Counting:
    """Return how a deployed stack counts, as its aggregator and its stream mapping are set.

    Raises:
        TallyctlError: the function's environment is not an aggregator's.
    """
    client = place.session.client("lambda")
    function = client.get_function_configuration(FunctionName=stack.aggregator)
    try:
        settings = Settings.from_environment(function.get("Environment", {}).get("Variables", {}))
    except SettingsError as error:
        raise TallyctlError(f"{stack.aggregator} is not set as an aggregator: {error}") from error
    mappings = client.list_event_source_mappings(FunctionName=stack.aggregator)["EventSourceMappings"]
    return Counting(
        table_name=settings.table_name,
        rules=settings.rules,
        path=settings.counting_path,
        record_age_s=max((_record_age_s(mapping) for mapping in mappings), default=0),
        # MiniStack keeps the window's setting and tells no shard all the same.
        names_shards=all(mapping.get("TumblingWindowInSeconds", 0) > 0 for mapping in mappings)
        and not _is_ministack(place),
    )


def _record_age_s(mapping: "EventSourceMappingConfigurationTypeDef") -> int:
    """Return the age at which a mapping gives a record up; 0 if it is switched off.

    -1 stands for no limit: https://docs.aws.amazon.com/lambda/latest/api/API_CreateEventSourceMapping.html
    """
    if mapping.get("State") in {"Disabling", "Disabled", "Deleting"}:
        return 0
    age = mapping.get("MaximumRecordAgeInSeconds", -1)
    return SECONDS_A_RECORD_LIVES if age < 0 else min(age, SECONDS_A_RECORD_LIVES)


def _is_ministack(place: Place) -> bool:
    return place.endpoint_url is not None and is_ministack(place.endpoint_url)


def counting_of(place: Place, stack_name: str, table_name: str | None, counters: str | None) -> Counting:
    """Return how a stack counts; or, of a table that no stack has, what an aggregator would find there.

    Args:
        place: where.
        stack_name: the stack, if no table is named.
        table_name: a table, of a stack or not.
        counters: the rules in JSON, for a table that no stack has; None for the default.

    Raises:
        TallyctlError: there is no such stack, the rules cannot be followed, or they are given for a stack's table.
    """
    stack = resolve(place, stack_name) if table_name is None else stack_of(place, table_name)
    if stack is not None:
        if counters is not None:
            raise TallyctlError(f"--counters is for a table that no stack has; {stack.name} has rules of its own")
        return counting(place, stack)
    try:
        rules = Rules.parse(DEFAULT_COUNTERS if counters is None else counters)
    except RuleError as error:
        raise TallyctlError(f"--counters: {error}") from error
    return Counting(str(table_name), rules, "stream", record_age_s=0, names_shards=not _is_ministack(place))


def api_url(place: Place, stack: Stack) -> str:
    """Return the URL under which the stack's HTTP API can be called from here, without a slash at its end.

    On the real AWS it is the output itself. The host name in an emulator's output resolves nowhere, so there it is
    the emulator's own address, with the API's id and stage in the path.
    """
    if place.endpoint_url is None:
        return stack.api_url.rstrip("/")
    api_id = (urlsplit(stack.api_url).hostname or "").partition(".")[0]
    return f"{place.endpoint_url.rstrip('/')}/_aws/execute-api/{api_id}/$default"


def _outputs(stack: "StackTypeDef") -> dict[str, str]:
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}


def _refused(place: Place, error: ClientError) -> TallyctlError:
    return TallyctlError(f"CloudFormation at {_shown(place)} refused: {error}")


def _no_answer(place: Place, error: BotoCoreError) -> TallyctlError:
    return TallyctlError(f"no answer from {_shown(place)} ({error}); `tallyctl local up` starts one")


def _shown(place: Place) -> str:
    return place.endpoint_url or f"AWS in {place.region}"
