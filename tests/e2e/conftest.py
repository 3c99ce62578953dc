"""One embedded AWS for the session, with a stack a counting path, deployed by the code behind `tallyctl local up`."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import Credentials
from mypy_boto3_dynamodb import DynamoDBClient

from tallyctl import emulator, local
from tallyctl.signing import Api
from tallyctl.stack import Place, Stack
from tallystream.keys import LIKE_PREFIX, POST_PREFIX

SETTLED_WITHIN_S = 60
BACK_END = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "execute-api:Invoke", "Resource": "*"}],
}


@dataclass(frozen=True)
class App:
    """A deployed stack, and the ways in."""

    place: Place
    stack: Stack
    api: Api
    dynamodb: DynamoDBClient

    def children(self, post_id: str) -> set[str]:
        """The users whose likes of a post are in the table."""
        pages = self.dynamodb.get_paginator("query").paginate(
            TableName=self.stack.table_name,
            KeyConditionExpression="PK = :post AND begins_with(SK, :like)",
            ExpressionAttributeValues={":post": {"S": POST_PREFIX + post_id}, ":like": {"S": LIKE_PREFIX}},
            ConsistentRead=True,
        )
        return {item["SK"]["S"].removeprefix(LIKE_PREFIX) for page in pages for item in page["Items"]}

    def tally(self, post_id: str) -> int:
        """What the post shows."""
        answer = self.api.call("GET", "posts", post_id)
        assert answer.status_code == 200, answer.text
        return answer.json()["likeTally"]

    def create(self, post_id: str) -> None:
        """Create a post."""
        answer = self.api.call("POST", "posts", body={"postId": post_id, "authorId": "a1", "body": "text"})
        assert answer.status_code == 201, answer.text

    def settled(self, post_id: str, tally: int) -> int:
        """The post's tally once it is `tally` and has stayed so, or what it is after a minute."""
        deadline = time.monotonic() + SETTLED_WITHIN_S
        while self.tally(post_id) != tally and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(2)  # counting twice would show only now
        return self.tally(post_id)


@pytest.fixture(scope="session")
def port() -> Iterator[int]:
    """The port of an embedded AWS that lives as long as the session."""
    port = emulator.free_port()
    with emulator.running(port):
        yield port


def deployed(port: int, stack_name: str, counting_path: str) -> Iterator[App]:
    """Deploy a stack and open its API."""
    found = local.up(port, stack_name, {"CountingPath": counting_path})
    with closing(Api(found.place, found.stack, connections=50)) as api:
        yield App(found.place, found.stack, api, found.place.session.client("dynamodb"))


@pytest.fixture(scope="session")
def stream_app(port: int) -> Iterator[App]:
    """A stack that counts by the stream."""
    yield from deployed(port, "e2e-stream", "stream")


@pytest.fixture(scope="session")
def transaction_app(port: int) -> Iterator[App]:
    """A stack that counts in transactions."""
    yield from deployed(port, "e2e-transaction", "transaction")


@pytest.fixture(scope="session")
def audited_app(port: int) -> Iterator[App]:
    """A stack whose whole table is audited: whoever plants a drift in it takes it out again."""
    yield from deployed(port, "e2e-audited", "stream")


@pytest.fixture
def moved_app(port: int) -> Iterator[App]:
    """A stack that counts in transactions, until it is moved to the stream."""
    yield from deployed(port, "e2e-moved", "transaction")


@pytest.fixture(params=["stream", "transaction"])
def app(request: pytest.FixtureRequest) -> App:
    """One stack a counting path."""
    return request.getfixturevalue(f"{request.param}_app")


def user(app: App, name: str, policy: Mapping[str, Any] | None) -> Credentials:
    """Make an IAM user with an access key of its own; the emulator checks signatures of users, but not of `test`."""
    iam = app.place.session.client("iam")
    iam.create_user(UserName=name)
    if policy is not None:
        iam.put_user_policy(UserName=name, PolicyName="call", PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return Credentials(key["AccessKeyId"], key["SecretAccessKey"])


@pytest.fixture(scope="session")
def back_end(stream_app: App) -> Credentials:
    """The app's back end: it may call the API."""
    return user(stream_app, "back-end", BACK_END)


@pytest.fixture(scope="session")
def stranger(stream_app: App) -> Credentials:
    """Somebody with an account and no rights."""
    return user(stream_app, "stranger", None)


@pytest.fixture(scope="session")
def tallyctl() -> Callable[[Sequence[str]], subprocess.CompletedProcess[str]]:
    """Run the command line as a process of its own."""
    program = Path(sys.executable).parent / "tallyctl"

    def run(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=180)

    return run
