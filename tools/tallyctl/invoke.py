"""One event, through the built bundle in the Lambda runtime emulator, against a deployed stack."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallyctl import bundle, stack
from tallyctl.errors import TallyctlError
from tallyctl.rie import Function, runtime
from tallystream.keys import META, POST_PREFIX, post_key
from tallystream.rules import Rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_COUNTED_WITHIN_S = 5
"""How long to wait for the stack's own aggregator to count what an API event wrote."""

Key = tuple[str, str]
"""Partition key and sort key of a parent."""
Tallies = dict[Key, dict[str, int] | None]
"""Each parent's tallies by attribute; None for a parent that does not exist."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What an event is for."""

    logical_id: str
    handler: str


STREAM = Kind("AggregatorFunction", "aggregator.handler")
HTTP = Kind("LikesApiFunction", "likes_api.handler")


@dataclass(frozen=True, slots=True)
class Invocation:
    """What came of an event."""

    handler: str
    answer: Any
    failed: bool
    created: list[Key]
    before: Tallies
    after: Tallies
    log: str
    note: str | None


def read_event(path: Path) -> dict[str, Any]:
    """Return the event in a file.

    Raises:
        TallyctlError: it cannot be read, or holds no JSON object.
    """
    try:
        event = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TallyctlError(f"no event in {path}: {error}") from error
    if not isinstance(event, dict):
        raise TallyctlError(f"no event in {path}: it holds no JSON object")
    return event


def kind_of(event: Mapping[str, Any]) -> Kind:
    """Return which function an event is for, by its shape.

    Raises:
        TallyctlError: it is neither a batch of a stream nor a request of the HTTP API.
    """
    if "Records" in event or "window" in event:
        return STREAM
    if "routeKey" in event:
        return HTTP
    raise TallyctlError("the event is neither a batch of a stream (Records) nor an HTTP API request (routeKey)")


def parents_of(event: Mapping[str, Any], rules: Rules) -> list[Key]:
    """Return the parents that an event is about, once each, in order."""
    if kind_of(event) is HTTP:
        post_id = (event.get("pathParameters") or {}).get("postId")
        return [(POST_PREFIX + post_id, META)] if isinstance(post_id, str) else []
    found: dict[Key, None] = {}
    for record in event.get("Records") or []:
        try:
            keys = record["dynamodb"]["Keys"]
            partition_key, sort_key = keys["PK"]["S"], keys["SK"]["S"]
        except (KeyError, TypeError):
            continue  # a malformed or foreign record has no parent; what the function makes of it is in its answer
        found.update(dict.fromkeys((partition_key, parent) for parent, _ in rules.parents_of(sort_key)))
    return list(found)


def invoke(place: stack.Place, deployed: stack.Stack, event: Mapping[str, Any], *, create_posts: bool) -> Invocation:
    """Run one event and return its answer, with the tallies of its parents before and after.

    Args:
        place: the AWS that the function talks to.
        deployed: whose settings the function gets.
        event: of the stream or of the HTTP API.
        create_posts: make the parents that are missing first, so that the event has something to count on.

    Raises:
        TallyctlError: the event is of neither kind, or the bundle does not run.
    """
    kind = kind_of(event)
    bundle.ensure()
    function_name = stack.resource(place, deployed, kind.logical_id)
    settings = place.session.client("lambda").get_function_configuration(FunctionName=function_name)
    variables = settings.get("Environment", {}).get("Variables", {})
    rules = Rules.parse(variables["COUNTERS"])
    attributes = sorted({rule.attribute for rule in rules.all})
    parents = parents_of(event, rules)
    dynamodb = place.session.client("dynamodb")
    table = deployed.table_name
    created = [parent for parent in parents if create_posts and _create(dynamodb, table, parent)]
    before = _tallies(dynamodb, table, parents, attributes)
    function = Function(
        bundle.folder(kind.logical_id),
        kind.handler,
        {**variables, **_access(place)},
        settings["Timeout"],
        settings["MemorySize"],
    )
    with runtime(function) as running:
        answer = running.invoke(event)
        log = running.log()
    after = _tallies(dynamodb, table, parents, attributes)
    if kind is HTTP and not event["routeKey"].startswith("GET"):
        after = _counted(dynamodb, table, before, attributes)
    note = _note(kind, answer.payload, before, after)
    return Invocation(kind.handler, answer.payload, answer.failed, created, before, after, log, note)


def _access(place: stack.Place) -> dict[str, str]:
    """Return the variables that Lambda sets for a function's own access to AWS."""
    credentials = place.session.get_credentials()
    if credentials is None:
        raise TallyctlError("there are no AWS credentials: set AWS_PROFILE, or log in with `aws configure sso`")
    frozen = credentials.get_frozen_credentials()
    found = {
        "AWS_REGION": place.region,
        "AWS_DEFAULT_REGION": place.region,
        "AWS_ACCESS_KEY_ID": frozen.access_key,
        "AWS_SECRET_ACCESS_KEY": frozen.secret_key,
        "AWS_SESSION_TOKEN": frozen.token,
        "AWS_ENDPOINT_URL": place.endpoint_url,
    }
    return {name: value for name, value in found.items() if value}


def _create(dynamodb: "DynamoDBClient", table: str, parent: Key) -> bool:
    """Put a parent in the table unless it is there; return whether it was made."""
    try:
        dynamodb.put_item(
            TableName=table,
            Item={
                "PK": {"S": parent[0]},
                "SK": {"S": parent[1]},
                "authorId": {"S": "tallyctl"},
                "body": {"S": "made by tallyctl invoke"},
                "createdAt": {"N": str(int(time.time()))},
            },
            ConditionExpression="attribute_not_exists(PK)",
        )
    except dynamodb.exceptions.ConditionalCheckFailedException:
        return False
    return True


def _tallies(dynamodb: "DynamoDBClient", table: str, parents: list[Key], attributes: list[str]) -> Tallies:
    found: Tallies = {}
    for parent in parents:
        key = {"PK": {"S": parent[0]}, "SK": {"S": parent[1]}}
        item = dynamodb.get_item(TableName=table, Key=key, ConsistentRead=True).get("Item")
        found[parent] = None
        if item is not None:
            found[parent] = {name: int(item[name]["N"]) for name in attributes if "N" in item.get(name, {})}
    return found


def _counted(dynamodb: "DynamoDBClient", table: str, before: Tallies, attributes: list[str]) -> Tallies:
    """Return the tallies once they have changed, or have had the time to."""
    deadline = time.monotonic() + _COUNTED_WITHIN_S
    while True:
        after = _tallies(dynamodb, table, list(before), attributes)
        if after != before or time.monotonic() > deadline:
            return after
        time.sleep(0.2)


def _note(kind: Kind, answer: object, before: Tallies, after: Tallies) -> str | None:
    """Return what explains an invocation of the stream that changed nothing."""
    failed = isinstance(answer, dict) and (answer.get("batchItemFailures") or "errorType" in answer)
    if kind is not STREAM or failed or not before or before != after:
        return None
    return (
        "No tally changed. If this event was run before, that is the point: its sequence numbers are in the marks of "
        "its parents, so it is not counted twice. Or its changes cancel out, or its parents do not exist."
    )


def shown(parent: Key) -> str:
    """Return a parent for people: a post's id, or both keys of anything else."""
    post_id = parent[0].removeprefix(POST_PREFIX)
    return post_id if post_key(post_id) == {"PK": parent[0], "SK": parent[1]} else " / ".join(parent)
