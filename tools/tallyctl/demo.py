"""The demo: many users like posts over signed HTTP, and the tallies are compared with the likes in the table."""

import contextlib
import json
import math
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import tenacity

from tallyctl.batching import batching_window
from tallyctl.errors import TallyctlError
from tallyctl.signing import Api
from tallyctl.stack import counting_path
from tallyctl.workload import Operation, workload
from tallystream.keys import LIKE_PREFIX, POST_PREFIX

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from rich.progress import Progress

    from tallyctl.stack import Place, Stack

PROBE_EVERY_S = 0.25

_LOOK_EVERY_S = 0.05
_ATTEMPTS = 8
_QUIET_LOOKS = 3
_QUIET_S = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """How large a demo is."""

    posts: int
    likes: int
    users: int
    seed: int
    concurrency: int
    settle_s: float
    """How long the tallies may take to become right once the last like was answered."""


@dataclass(frozen=True, slots=True)
class PostResult:
    """One post at the end."""

    post_id: str
    likes: int
    """Children in the table, by strongly consistent queries."""
    tally: int
    """What the HTTP API shows."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Write units that DynamoDB says it charges for one write of each kind, of items such as the app's."""

    like: float
    count: float
    transaction: float


@dataclass(frozen=True, slots=True)
class Batches:
    """What the aggregator logged, over the batches with likes in them."""

    batches: int = 0
    received: int = 0
    parents: int = 0
    writes: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What a demo found."""

    path: str
    posts: list[PostResult]
    probe: PostResult
    """The post of the probes."""
    likes: int
    """Likes and unlikes sent, without the probes."""
    probes: int
    batches: Batches
    write_units: float
    staleness_s: list[float] = field(repr=False)
    seconds: float

    @property
    def wrong(self) -> int:
        """How many posts' tallies differ from their likes."""
        return sum(post.likes != post.tally for post in (*self.posts, self.probe))

    def figures(self) -> dict[str, Any]:
        """Return the result as the JSON object that others read."""
        batches = self.batches
        return {
            "path": self.path,
            "posts": len(self.posts),
            "likes": self.likes,
            "wrong": self.wrong,
            "drifting": [
                {"post": post.post_id, "likes": post.likes, "tally": post.tally}
                for post in (*self.posts, self.probe)
                if post.likes != post.tally
            ],
            "write_units": self.write_units,
            "write_units_per_like": round(self.write_units / (self.likes + self.probes), 3),
            "batches": batches.batches,
            "records_per_batch": _ratio(batches.received, batches.batches),
            "parents_per_batch": _ratio(batches.parents, batches.batches),
            "probes": self.probes,
            "staleness_p50_s": percentile(self.staleness_s, 50),
            "staleness_p99_s": percentile(self.staleness_s, 99),
            "seconds": round(self.seconds, 1),
        }


def percentile(values: Sequence[float], rank: float) -> float | None:
    """Return the smallest value that at least `rank` percent of the values do not exceed; None if there are none."""
    if not values:
        return None
    return round(sorted(values)[max(0, math.ceil(len(values) * rank / 100) - 1)], 3)


def _ratio(total: float, count: float) -> float | None:
    return round(total / count, 2) if count else None


def run(place: "Place", stack: "Stack", plan: Plan, progress: "Progress") -> Result:
    """Run the demo with posts of its own, and return what came of it.

    Raises:
        TallyctlError: the HTTP API refuses a request, or keeps failing.
    """
    path = counting_path(place, stack)
    prices = measure_prices(place.session.client("dynamodb"), stack.table_name)
    began = time.time()
    api = Api(place, stack, connections=plan.concurrency + 2)
    with contextlib.closing(api):
        caller = Caller(api)
        run_id = uuid.uuid4().hex[:8]
        posts = [f"demo-{run_id}-{number}" for number in range(plan.posts)]
        prober = Prober(caller, f"demo-{run_id}-probe")
        with ThreadPoolExecutor(plan.concurrency) as threads:
            created = threads.map(caller.create, [*posts, prober.post_id])
            list(progress.track(created, len(posts) + 1, description="posts"))
            with batching_window(place, stack), prober.probing():
                operations = workload(plan.posts, plan.users, plan.likes, plan.seed)
                sent = threads.map(lambda operation: caller.send(posts, operation), operations)
                list(progress.track(sent, len(operations), description="likes and unlikes"))
        results = _settle(place, stack, caller, [*posts, prober.post_id], plan.settle_s, progress)
        seconds = time.time() - began
        batches = _quiet_batches(place, stack, began)
        # Looked at once more when the aggregator is quiet: counting twice would show only now.
        *results, probe = [PostResult(post.post_id, post.likes, caller.tally(post.post_id)) for post in results]
    price = prices.transaction if path == "transaction" else prices.like
    return Result(
        path=path,
        posts=results,
        probe=probe,
        likes=plan.likes,
        probes=prober.sent,
        batches=batches,
        write_units=(plan.likes + prober.sent) * price + batches.writes * prices.count,
        staleness_s=prober.staleness_s,
        seconds=seconds,
    )


class _BusyError(Exception):
    """The API asks for the same request again, later."""


class Caller:
    """The app's back end, as far as the demo needs one: repeats what may be repeated, and raises on anything else."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._attempt = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((_BusyError, httpx.TransportError)),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=5),
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            reraise=True,
        )

    def create(self, post_id: str) -> None:
        """Create a post. One that exists is fine: an answer may have been lost."""
        self._call("POST", "posts", body={"postId": post_id, "authorId": "demo", "body": "A post of the demo"})

    def send(self, posts: Sequence[str], operation: Operation) -> None:
        """Like a post, or take the like back."""
        self._call(
            "PUT" if operation.like else "DELETE", "posts", posts[operation.post], "likes", f"user-{operation.user}"
        )

    def like(self, post_id: str, user_id: str) -> None:
        """Like a post."""
        self._call("PUT", "posts", post_id, "likes", user_id)

    def tally(self, post_id: str) -> int:
        """Return how many likes a post shows."""
        tally: int = self._call("GET", "posts", post_id)["likeTally"]
        return tally

    def _call(self, method: str, *segments: str, body: dict[str, str] | None = None) -> dict[str, Any]:
        try:
            answer = self._attempt(self._once, method, *segments, body=body)
        except (_BusyError, httpx.TransportError) as error:
            raise TallyctlError(f"{method} /{'/'.join(segments)} failed {_ATTEMPTS} times: {error}") from error
        if not answer.is_success and answer.status_code != httpx.codes.CONFLICT:
            raise TallyctlError(f"{method} /{'/'.join(segments)}: {answer.status_code} {answer.text[:200]}")
        parsed: dict[str, Any] = answer.json()
        return parsed

    def _once(self, method: str, *segments: str, body: dict[str, str] | None) -> httpx.Response:
        answer = self._api.call(method, *segments, body=body)
        if answer.status_code == httpx.codes.TOO_MANY_REQUESTS or answer.is_server_error:
            raise _BusyError(f"{answer.status_code} {answer.text[:200]}")
        return answer


class Prober:
    """Measures staleness: how long after a like was answered the API shows a tally that includes it.

    All probes are likes of one post that nobody else likes, sent one after the other: so its tally says which are in.
    """

    def __init__(self, caller: Caller, post_id: str) -> None:
        self.post_id = post_id
        self.sent = 0
        self.staleness_s: list[float] = []
        self._caller = caller

    @contextlib.contextmanager
    def probing(self) -> Iterator[None]:
        """Probe for as long as the block runs; the last probes may be left unseen."""
        ended = threading.Event()
        with ThreadPoolExecutor(1) as thread:
            probes = thread.submit(self._probe, ended)
            try:
                yield
            finally:
                ended.set()
            probes.result()

    def _probe(self, ended: threading.Event) -> None:
        answered: list[float] = []
        while not ended.wait(_LOOK_EVERY_S):
            if not answered or time.monotonic() - answered[-1] >= PROBE_EVERY_S:
                self._caller.like(self.post_id, f"prober-{self.sent}")
                answered.append(time.monotonic())
                self.sent += 1
            tally = self._caller.tally(self.post_id)
            seen = time.monotonic()
            self.staleness_s += [seen - since for since in answered[len(self.staleness_s) : tally]]


def measure_prices(dynamodb: "DynamoDBClient", table: str) -> Prices:
    """Return what DynamoDB says (ReturnConsumedCapacity) that the app's writes cost, on items that nothing counts.

    A write whose condition fails costs as much as one that succeeds, for items of this size (under 1 KB).
    """
    post = {"PK": {"S": f"{POST_PREFIX}demo-price-{uuid.uuid4().hex[:8]}"}, "SK": {"S": "SCRATCH"}}
    likes = [{**post, "SK": {"S": f"SCRATCH#USER#user-{number}"}} for number in range(2)]
    body = {"authorId": {"S": "demo"}, "body": {"S": "A post of the demo"}, "createdAt": {"N": "1796000000"}}
    liked_at = {"likedAt": {"N": "1796000000"}}
    add: dict[str, Any] = {"UpdateExpression": "ADD likeTally :d", "ExpressionAttributeValues": {":d": {"N": "1"}}}
    mark = {"M": {"seq": {"S": "0" * 40}, "at": {"N": "1796000000"}}}
    put = {"TableName": table, "Item": {**likes[1], **liked_at}, "ConditionExpression": "attribute_not_exists(PK)"}
    try:
        dynamodb.put_item(TableName=table, Item={**post, **body})
        like = dynamodb.put_item(
            TableName=table,
            Item={**likes[0], **liked_at},
            ConditionExpression="attribute_not_exists(PK)",
            ReturnConsumedCapacity="TOTAL",
        )
        count = dynamodb.update_item(
            TableName=table,
            Key=post,
            UpdateExpression="ADD likeTally :d SET #mark = :mark",
            ExpressionAttributeNames={"#mark": "mark#price"},
            ExpressionAttributeValues={":d": {"N": "1"}, ":mark": mark},
            ReturnConsumedCapacity="TOTAL",
        )
        both = dynamodb.transact_write_items(
            TransactItems=[{"Put": put}, {"Update": {"TableName": table, "Key": post, **add}}],  # type: ignore[typeddict-item]
            ReturnConsumedCapacity="TOTAL",
        )
    finally:
        for key in (post, *likes):
            dynamodb.delete_item(TableName=table, Key=key)
    return Prices(
        like["ConsumedCapacity"].get("CapacityUnits", 0),
        count["ConsumedCapacity"].get("CapacityUnits", 0),
        sum(consumed.get("CapacityUnits", 0) for consumed in both["ConsumedCapacity"]),
    )


def children(dynamodb: "DynamoDBClient", table: str, post_id: str) -> int:
    """Return how many likes of a post the table holds, by a strongly consistent query through all its pages."""
    pages = dynamodb.get_paginator("query").paginate(
        TableName=table,
        KeyConditionExpression="PK = :post AND begins_with(SK, :like)",
        ExpressionAttributeValues={":post": {"S": POST_PREFIX + post_id}, ":like": {"S": LIKE_PREFIX}},
        ProjectionExpression="SK",
        ConsistentRead=True,
    )
    return sum(len(page["Items"]) for page in pages)


def _settle(
    place: "Place", stack: "Stack", caller: Caller, posts: Sequence[str], settle_s: float, progress: "Progress"
) -> list[PostResult]:
    """Wait until each post shows as many likes as the table holds, or for `settle_s` seconds."""
    dynamodb = place.session.client("dynamodb")
    truth = {post: children(dynamodb, stack.table_name, post) for post in posts}
    tallies: dict[str, int] = {}
    bar = progress.add_task("tallies right", total=len(posts))
    deadline = time.monotonic() + settle_s
    while True:
        tallies |= {post: caller.tally(post) for post in posts if tallies.get(post) != truth[post]}
        right = sum(tallies[post] == truth[post] for post in posts)
        progress.update(bar, completed=right)
        if right == len(posts) or time.monotonic() > deadline:
            return [PostResult(post, truth[post], tallies[post]) for post in posts]
        time.sleep(0.2)


def _quiet_batches(place: "Place", stack: "Stack", since: float) -> Batches:
    """Return what the aggregator has logged since then, once it logs no more."""
    group = log_group(place, stack)
    seen = [_batches(place, group, since)]
    while len(seen) < _QUIET_LOOKS or len(set(seen[-_QUIET_LOOKS:])) > 1:
        time.sleep(_QUIET_S)
        seen.append(_batches(place, group, since))
    return seen[-1]


def log_group(place: "Place", stack: "Stack") -> str:
    """Return the log group of the aggregator."""
    settings = place.session.client("lambda").get_function_configuration(FunctionName=stack.aggregator)
    return settings.get("LoggingConfig", {}).get("LogGroup", f"/aws/lambda/{stack.aggregator}")


def _batches(place: "Place", group: str, since: float) -> Batches:
    """Sum up the lines `batch` of the aggregator's log since then."""
    pages = place.session.client("logs").get_paginator("filter_log_events")
    found = [
        figures
        for page in pages.paginate(logGroupName=group, startTime=int(since * 1000), filterPattern='"received"')
        for event in page["events"]
        if (figures := batch_figures(event["message"])) is not None and figures["parents"]
    ]
    return Batches(
        len(found),
        sum(figures["received"] for figures in found),
        sum(figures["parents"] for figures in found),
        sum(figures["writes"] for figures in found),
    )


def batch_figures(line: str) -> dict[str, int] | None:
    """Return the figures in a line of the aggregator's log; None if it is not the line of a batch."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    names = ("received", "parents", "writes")
    if not isinstance(entry, dict) or entry.get("message") != "batch" or not set(names) <= entry.keys():
        return None
    return {name: entry[name] for name in names}
