"""A small AWS, seeded and deterministic: streams, the event source mapping, a failing network, and the real handler.

What is modelled, and what of AWS each part stands for:

- *Shards*: each partition of the table has one open shard; it rolls over to a child shard, or its partition splits in
  two. One post's likes lie in several partitions, as a hot item collection's do. A child is read after its parents.
- *The event source mapping*: batches of any size per shard, in order, at least once. A raised error delivers the batch
  again, usually in halves; a reported sequence number cuts it there; an identifier that is in no record is an error.
  Its poller may start anew, and then batches have other borders, longer ones too.
  Retries and record age may be capped: then the batch goes to the failure queue as metadata, without its records.
- *The function*: `aggregator.handler` itself. It may be killed at any SDK call, before or after the effect; run out of
  time; or stop at an SDK call and wake up when its batch has long been delivered again.
- *The SDK*: three attempts a call. Each may be lost, applied with the answer lost, throttled or refused with a 500.

`run` plays one schedule, brings everything to rest, and raises `Wrong` if a tally is not what it must be.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import random
import threading
import types
import unittest.mock
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from builders import record, windowed
from fakes import FakeDynamoDb, FakeSqs, client_error
from tallystream import batches as batches_module
from tallystream import counters
from tallystream.batches import Batches
from tallystream.dynamodb import DynamoDbTable
from tallystream.failures import SqsFailures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def _load_handler() -> types.ModuleType:
    """Import the handler, as Lambda does it, into a module of its own that no other test sees."""
    environment = {
        "TABLE_NAME": "Simulated",
        "FAILED_BATCHES_URL": "https://sqs.invalid/failed",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    path = Path(batches_module.__file__).parents[1] / "aggregator.py"
    spec = importlib.util.spec_from_file_location("simulated_aggregator", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    with unittest.mock.patch.dict(os.environ, environment):
        spec.loader.exec_module(module)
    # What the handler says of itself is tested elsewhere, and a million schedules would say a lot.
    module._metrics = types.SimpleNamespace(add_metric=lambda *_: None, flush_metrics=lambda: None)
    module._logger = types.SimpleNamespace(info=lambda *_, **__: None, warning=lambda *_, **__: None)
    return module


aggregator = _load_handler()

SDK_FAULTS = ("lost_request", "lost_answer", "throttle", "server_error", "server_error_applied", "denied")
INVOCATION_FAULTS = ("killed_before", "killed_after", "out_of_time", "hot_partitions", "zombie")
FEATURES = (
    "split",  # a partition splits in two
    "rollover",  # a shard closes and its child opens
    "scatter",  # several partitions from the beginning
    "no_window",  # no tumbling window: no shard id in the event
    "hours",  # hours pass between deliveries
    "days",  # days pass while nothing is written, so that marks grow stale
    "cap",  # retries and age are capped: batches end on the failure queue
    "restart",  # the mapping's poller starts anew: what it had not finished comes in batches with other borders
    "replay",  # the mapping is made anew and starts at the trim horizon
    "delete_post",  # posts disappear, with or without their likes, and some come back
    "poison",  # a post's tally becomes a string
    "expiry",  # likes are removed by their time to live
    "cold",  # each invocation starts in a fresh execution environment, which remembers nothing
    "noise",  # overwritten likes, foreign items and malformed records
)
SDK_ATTEMPTS = 3
TIMEOUT_MS = 60_000
DAY = 86_400


_NO_ANSWER = ReadTimeoutError(endpoint_url="https://dynamodb.invalid")
_NOT_APPLIED = {
    "lost_request": _NO_ANSWER,
    "throttle": client_error("ThrottlingException"),
    "server_error": client_error("InternalServerError"),
    "denied": client_error("AccessDeniedException"),
}
_APPLIED = {"lost_answer": _NO_ANSWER, "server_error_applied": client_error("InternalServerError")}


class Wrong(AssertionError):
    """A schedule after which something is not as it must be."""


class Killed(BaseException):
    """The invocation's process ends here."""


@dataclass(frozen=True)
class Schedule:
    """What one simulated history may contain. The same schedule always plays the same."""

    seed: int
    steps: int
    posts: int
    users: int
    sdk_faults: tuple[str, ...]
    invocation_faults: tuple[str, ...]
    features: tuple[str, ...]
    rate: float
    """How often a fault strikes."""

    @classmethod
    def from_seed(cls, seed: int) -> Schedule:
        """Return a schedule; about one in eight is free of faults."""
        rng = random.Random(seed)
        calm = rng.random() < 0.125

        def some(names: Sequence[str], share: float) -> tuple[str, ...]:
            return tuple(name for name in names if rng.random() < share)

        return cls(
            seed,
            steps=rng.randint(5, 120),
            posts=rng.randint(1, 4),
            users=rng.randint(1, 8),
            sdk_faults=() if calm else some(SDK_FAULTS, 0.6),
            invocation_faults=() if calm else some(INVOCATION_FAULTS, 0.6),
            features=some(FEATURES, 0.4),
            rate=rng.choice((0.02, 0.1, 0.3)),
        )

    def has(self, feature: str) -> bool:
        """Say whether a feature takes part. Some exclude each other, since their mixture has no right answer."""
        if feature == "no_window":
            # Right only while all of a parent's children are in one lineage of shards; the product says so.
            return feature in self.features and not {"split", "scatter"} & set(self.features)
        if feature == "replay":
            # A discarded batch, a re-created post or a trimmed stream would be delivered anew to a tally without it.
            return feature in self.features and not {"cap", "delete_post", "days", "hours"} & set(self.features)
        return feature in self.features


@dataclass(eq=False)
class Piece:
    """A stretch of a shard that is delivered as one batch."""

    first: int
    end: int
    attempts: int = 0


@dataclass(eq=False)
class Shard:
    """A shard with its records, and how far the event source mapping has read it."""

    id: str
    parents: tuple[Shard, ...]
    records: list[dict[str, Any]] = field(default_factory=list)
    closed: bool = False
    position: int = 0
    retry_at: float = 0.0
    """After an error, the mapping leaves the shard alone for a while; the other shards go on."""
    pieces: list[Piece] = field(default_factory=list)


class Zombie:
    """An invocation that stopped at an SDK call. The mapping has given it up; it may wake up later."""

    def __init__(self, invoke: Callable[[], object]) -> None:
        self.asleep = threading.Event()
        self._wake = threading.Event()
        self._killed = False
        self.slept_at = 0.0
        """When it fell asleep, by the world's clock."""
        self.result: object = None
        self.ended_in: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(invoke,), daemon=True)

    def _run(self, invoke: Callable[[], object]) -> None:
        try:
            self.result = invoke()
        except (Exception, Killed) as error:  # noqa: BLE001 - handed to the thread that asks
            self.ended_in = error
        self.asleep.set()

    def start(self) -> None:
        """Run the invocation until it falls asleep or ends."""
        self._thread.start()
        self.asleep.wait()

    def sleep(self) -> None:
        """Called by the invocation: stop here until woken."""
        self.asleep.set()
        self._wake.wait()
        if self._killed:
            raise Killed

    def alive(self) -> bool:
        """Say whether it still sleeps."""
        return self._thread.is_alive() and not self._wake.is_set()

    def wake(self, *, killed: bool = False) -> None:
        """Let it run to its end, alone; killed, it ends where it sleeps."""
        self._killed = killed
        self._wake.set()
        self._thread.join()


class Invocation:
    """One invocation's luck: what happens at which of its SDK calls, and its clock."""

    def __init__(self, world: World, *, calm: bool) -> None:
        self.world = world
        rng, schedule = world.luck, world.schedule
        kinds = schedule.invocation_faults
        self.fault = rng.choice(kinds) if kinds and not calm and rng.random() < schedule.rate else None
        self.strikes_at = rng.randrange(6)
        self.hot = {f"POST#{post}" for post in range(schedule.posts) if rng.random() < 0.6}
        self.calls = 0
        self.calm = calm
        self.deadline = world.clock + TIMEOUT_MS / 1000
        self.out_of_time = False
        self.zombie: Zombie | None = None
        self.written: Counter[tuple[str, str]] = Counter()

    def get_remaining_time_in_millis(self) -> int:
        """Be the context of the invocation."""
        return 0 if self.out_of_time else int((self.deadline - self.world.clock) * 1000)

    def update_item(self, **request: Any) -> dict[str, Any]:
        """Be the SDK's client: up to three attempts on a network that loses things."""
        strikes = self.calls == self.strikes_at
        self.calls += 1
        if strikes and self.fault == "killed_before":
            raise Killed
        if strikes and self.fault == "out_of_time":
            self.out_of_time = True
        if strikes and self.fault == "zombie" and self.zombie:
            self.zombie.slept_at = self.world.clock
            self.zombie.sleep()
        if self.fault == "hot_partitions" and request["Key"]["PK"]["S"] in self.hot:
            raise client_error("ProvisionedThroughputExceededException")
        error: Exception | None = None
        for _ in range(SDK_ATTEMPTS):
            answer, error = self._attempt(request)
            if answer is not None:
                break
            if isinstance(error, ClientError) and error.response["Error"]["Code"] == "AccessDeniedException":
                break
        if strikes and self.fault == "killed_after":
            raise Killed
        if error:
            raise error.with_traceback(None)  # it is one for all worlds, and would hold on to every one of them
        assert answer is not None
        return answer

    def _attempt(self, request: dict[str, Any]) -> tuple[dict[str, Any] | None, Exception | None]:
        """Return the answer or the error of one attempt; an error of the table itself is raised."""
        faults, luck = self.world.schedule.sdk_faults, self.world.luck
        fault = luck.choice(faults) if faults and not self.calm and luck.random() < self.world.schedule.rate else None
        if fault in _NOT_APPLIED:
            return None, _NOT_APPLIED[fault]
        answer = self.world.table.update_item(**request)
        if "ADD" in request["UpdateExpression"]:
            self.written[request["Key"]["PK"]["S"], request["Key"]["SK"]["S"]] += 1
        if fault in _APPLIED:
            return None, _APPLIED[fault]
        return answer, None


class World:
    """Everything that one schedule plays on."""

    new_table: type[FakeDynamoDb] = FakeDynamoDb

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        # One source of chance for what people do and one for what goes wrong: a schedule without a fault, which the
        # shrinker tries, has the same people.
        self.people = random.Random(f"{schedule.seed} people")
        self.luck = random.Random(f"{schedule.seed} luck")
        self.clock = 1_800_000_000.0
        self.trace: list[str] = []
        self.table = self.new_table(self._to_stream)
        self.queue = FakeSqs()
        # Numbers start just below a power of ten, so that their width changes on the way.
        self.number = 10 ** self.people.randint(21, 38) - self.people.randrange(400)
        self.width = self.people.choice((0, 40))
        self.shards: list[Shard] = []
        self.open: list[Shard] = []
        for _ in range(self.people.randint(2, 3) if schedule.has("scatter") else 1):
            self.open.append(self._new_shard(()))
        self.zombies: list[tuple[Shard, Zombie]] = []
        self.missed: Counter[str] = Counter()
        self.missed_records: set[str] = set()
        self.poisoned: dict[str, int] = {}
        self.recreated: dict[str, dict[str, int]] = {}
        # Low enough to be reached, where every write of a parent comes from a fresh execution environment.
        self.most_stale = 3 if schedule.has("cold") else counters.MOST_STALE_MARKS
        for post in range(schedule.posts):
            self.table.add_post(str(post))
        self.batches = Batches(
            table=DynamoDbTable(self, "Simulated"),  # type: ignore[arg-type]
            failures=SqsFailures(self.queue, "https://sqs.invalid/failed"),  # type: ignore[arg-type]
            rules=aggregator._batches.rules,
            concurrently=self._in_any_order,
            now=lambda: self.clock,
            sleep=self._pass_time,
            jitter=self.luck.random,
        )
        self._invocations: list[Invocation] = []

    # The seams of the product: its client, its thread pool, its clock.

    def update_item(self, TableName: str, **request: Any) -> dict[str, Any]:  # noqa: N803 - boto3's name
        """Be the function's client: whose invocation calls is told by the thread."""
        assert TableName == "Simulated"
        invocation: Invocation = _running.invocation
        return invocation.update_item(**request)

    def _in_any_order(self, function: Callable[[Any], None], items: Sequence[Any]) -> Iterable[None]:
        shuffled = list(items)
        self.luck.shuffle(shuffled)
        return [function(item) for item in shuffled]

    def _pass_time(self, seconds: float) -> None:
        self.clock += seconds

    # Streams.

    def _new_shard(self, parents: tuple[Shard, ...]) -> Shard:
        shard = Shard(f"shardId-{int(self.clock * 1000):020d}-{len(self.shards):08x}", parents)
        self.shards.append(shard)
        return shard

    def _to_stream(self, name: str, key: tuple[str, str]) -> None:
        self._append(record(name, self._next_number(), key, at=int(self.clock)), key)

    def _next_number(self) -> str:
        self.number += self.people.randint(1, 9)
        return str(self.number).zfill(self.width)

    def _append(self, entry: dict[str, Any], key: tuple[str, str]) -> None:
        self._open_at(zlib.crc32("/".join(key).encode()) / 2**32).records.append(entry)

    def _open_at(self, point: float) -> Shard:
        """Return the open shard of a key, whose place among all keys is a number from 0 to below 1."""
        return self.open[int(point * len(self.open))]

    def play(self) -> None:
        """Let everything happen, come to rest, and be checked; leave the product as it was."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(counters, "MOST_STALE_MARKS", self.most_stale)
            self.happen()

    def happen(self) -> None:
        """Do all that the schedule has in it, and check what came of it."""
        for _ in range(self.schedule.steps):
            self.act()
        self.drain()
        if self.schedule.has("days"):
            self.check_marks()
        self.check()

    # What people do.

    def act(self) -> None:
        """Do one thing: mostly a like or its removal."""
        choice = self.people.random()
        post, user = str(self.people.randrange(self.schedule.posts)), str(self.people.randrange(self.schedule.users))
        self.clock += self.people.random() * (300 if self.schedule.has("hours") else 1)
        rare = [name for name in FEATURES if self.schedule.has(name)]
        if choice < 0.68 or not rare:
            self._toggle(post, user)
        elif choice < 0.85:
            self.deliver()
        else:
            feature = self.people.choice(rare)
            self.trace.append(f"{feature} post {post} user {user}")
            getattr(self, f"_do_{feature}", lambda *_: None)(post, user)

    def _toggle(self, post: str, user: str) -> None:
        key = {"PK": {"S": f"POST#{post}"}, "SK": {"S": f"LIKE#USER#{user}"}}
        if (f"POST#{post}", f"LIKE#USER#{user}") in self.table.items:
            self.table.delete_item(Key=key)
            self.trace.append(f"unlike {post} by {user}")
        else:
            self.table.put_item(Item=key)
            self.trace.append(f"like {post} by {user}")

    def _do_expiry(self, post: str, user: str) -> None:
        if self.table.items.pop((f"POST#{post}", f"LIKE#USER#{user}"), None):
            key = (f"POST#{post}", f"LIKE#USER#{user}")
            entry = record("REMOVE", self._next_number(), key, at=int(self.clock))
            entry["userIdentity"] = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
            self._append(entry, key)

    def _do_noise(self, post: str, user: str) -> None:
        key = (f"POST#{post}", f"LIKE#USER#{user}")
        if key in self.table.items:
            note = {"S": self._next_number()}
            self.table.put_item(Item={"PK": {"S": key[0]}, "SK": {"S": key[1]}, "note": note})
        number = self._next_number()
        bad: list[dict[str, Any]] = [
            record("INSERT", number, (f"POST#{post}", "PROFILE")),
            record("BOGUS", number, key),
            record("insert", number, key),
            {**record("INSERT", number, key), "dynamodb": {"SequenceNumber": number, "Keys": {}}},
            {**record("INSERT", number, key), "dynamodb": {"SequenceNumber": number, "Keys": {"PK": {"N": "5"}}}},
        ]
        self._append(self.people.choice(bad), key)

    def _do_rollover(self, post: str, user: str) -> None:
        del post, user
        index = self.people.randrange(len(self.open))
        self.open[index].closed = True
        self.open[index] = self._new_shard((self.open[index],))

    def _do_split(self, post: str, user: str) -> None:
        # Every partition is closed, since a new number of partitions moves keys between all of them.
        del post, user
        parents = tuple(self.open)
        for shard in parents:
            shard.closed = True
        self.open = [self._new_shard(parents) for _ in range(min(len(parents) + 1, 4))]

    def _do_hours(self, post: str, user: str) -> None:
        del post, user
        # Less than a stream keeps, all deliveries of a record together.
        if self.clock < 1_800_000_000.0 + DAY / 2:
            self.clock += self.people.randint(600, 4 * 3600)

    def _do_days(self, post: str, user: str) -> None:
        del post, user
        self.drain()
        if self.people.random() < 0.5:  # shards usually live for some four hours, but nobody promises that
            for shard in self.open:
                shard.closed = True
            self.open = [self._new_shard((shard,)) for shard in self.open]
        self.clock += self.people.randint(1, 3) * DAY + 2 * 3600

    def _do_restart(self, post: str, user: str) -> None:
        del post, user
        for shard in self.shards:
            shard.pieces = []

    def _do_replay(self, post: str, user: str) -> None:
        del post, user
        self._wake_all()
        for shard in self.shards:
            shard.position, shard.pieces = 0, []

    def _do_poison(self, post: str, user: str) -> None:
        del user
        item = self.table.items.get((f"POST#{post}", "META"))
        if item and post not in self.poisoned and post not in self.recreated:
            self.poisoned[post] = int(item["likeTally"]["N"])
            item["likeTally"] = {"S": "many"}

    def _do_delete_post(self, post: str, user: str) -> None:
        del user
        key = (f"POST#{post}", "META")
        if post in self.poisoned:
            return
        if key in self.table.items:
            self.table.delete_item(Key={"PK": {"S": key[0]}, "SK": {"S": key[1]}})
            if self.people.random() < 0.5:
                for child in [child for child in self.table.items if child[0] == key[0]]:
                    self.table.delete_item(Key={"PK": {"S": child[0]}, "SK": {"S": child[1]}})
            return
        # A post that comes back has no marks: it counts all that is delivered from then on, and nothing else.
        self._wake_all()
        self.missed[post] = 0
        self.recreated[post] = {shard.id: shard.position for shard in self.shards}
        self.table.add_post(post)

    # The event source mapping.

    def deliver(self, *, calm: bool = False) -> bool:
        """Deliver one batch of one shard; False if there is nothing to deliver."""
        settled: set[str] = set()
        ready: list[Shard] = []
        for shard in self.shards:  # parents before their children
            if all(parent.id in settled for parent in shard.parents):
                if shard.position < len(shard.records):
                    ready.append(shard)
                else:
                    settled.add(shard.id)
        if not ready:
            return False
        self.clock = max(self.clock, min(shard.retry_at for shard in ready))
        shard = self.luck.choice([shard for shard in ready if shard.retry_at <= self.clock])
        if not shard.pieces:
            end = min(shard.position + self.luck.choice((1, 2, 5, 20, 1000)), len(shard.records))
            shard.pieces = [Piece(shard.position, end)]
        piece = shard.pieces[0]
        if self._gives_up(shard, piece):
            return True
        records = shard.records[piece.first : piece.end]
        event = windowed(*records, shard=shard.id)
        if self.schedule.has("no_window"):
            event = {"Records": records}
        elif self.luck.random() < 0.05:
            self._invoke(shard, windowed(shard=shard.id, final=True), calm=True)
        answer = self._invoke(shard, event, calm=calm)
        self._settle(shard, piece, answer, calm=calm)
        if self.zombies and self.luck.random() < 0.3:
            self._wake(self.luck.choice(self.zombies))
        return True

    def _gives_up(self, shard: Shard, piece: Piece) -> bool:
        """Discard of a piece what is too old to be delivered; say whether anything was."""
        del shard, piece
        return False

    def _invoke(  # noqa: C901 - each way in which an invocation ends, one after the other
        self, shard: Shard, event: dict[str, Any], *, calm: bool
    ) -> dict[str, Any] | None:
        """Run the handler once; return its answer, or None if it raised, was killed or was given up."""
        invocation = Invocation(self, calm=calm)

        def call() -> dict[str, Any]:
            _running.invocation = invocation
            return aggregator.handler(event, invocation)  # type: ignore[arg-type]

        answer: dict[str, Any] | None = None
        fate = invocation.fault or "runs"
        aggregator._batches = self.batches
        if self.schedule.has("cold") or (not calm and self.luck.random() < 0.1):
            self.batches.stale.clear()
        if fate == "zombie":
            invocation.zombie = Zombie(call)
            invocation.zombie.start()
            if invocation.zombie.alive() and invocation.calls > invocation.strikes_at:
                self.zombies.append((shard, invocation.zombie))
                fate = "asleep"
            else:
                invocation.zombie.wake()
                answer = self._result(invocation.zombie)
        else:
            try:
                answer = call()
            except Killed:
                fate = "killed"
            except ClientError as error:
                if error.response["Error"]["Code"] != "AccessDeniedException":
                    raise
                fate = "denied"
        self.trace.append(f"{shard.id[-8:]} {_shown(event)} {fate}: {answer}")
        if not self.schedule.sdk_faults and not self.schedule.invocation_faults:
            most = max(invocation.written.values(), default=0)
            if most > 1:
                raise Wrong(f"a parent was written {most} times for one batch of a run without faults")
        if answer is not None and ("state" in answer) != ("window" in event):
            raise Wrong(f"the answer to a window must have a state, and no other: {answer}")
        return answer

    def _result(self, zombie: Zombie) -> Any:
        if isinstance(zombie.ended_in, Killed):
            return None
        if isinstance(zombie.ended_in, ClientError):
            if zombie.ended_in.response["Error"]["Code"] == "AccessDeniedException":
                return None
            raise zombie.ended_in
        if zombie.ended_in:
            raise zombie.ended_in
        return zombie.result

    def _settle(self, shard: Shard, piece: Piece, answer: dict[str, Any] | None, *, calm: bool) -> None:
        """Advance, cut, bisect or discard, as the event source mapping does."""
        failures = answer["batchItemFailures"] if answer is not None else None
        if failures == []:
            shard.pieces.pop(0)
            shard.position = piece.end
            return
        numbers = [entry["dynamodb"].get("SequenceNumber") for entry in shard.records[piece.first : piece.end]]
        cut = piece.first
        if failures:
            known = [numbers.index(entry["itemIdentifier"]) for entry in failures if entry["itemIdentifier"] in numbers]
            if len(known) != len(failures):
                raise Wrong(f"the answer names what is in no record: {failures}")
            cut += min(known)
        shard.position = cut
        attempts = piece.attempts + 1 if cut == piece.first else 0
        shard.pieces.pop(0)
        if self.schedule.has("cap") and not calm and attempts > 1 and self.luck.random() < 0.7:
            self._discard(shard, cut, piece.end)
            return
        middle = (cut + piece.end) // 2
        if middle > cut and self.luck.random() < 0.7:
            shard.pieces[:0] = [Piece(cut, middle, attempts), Piece(middle, piece.end, attempts)]
        else:
            shard.pieces.insert(0, Piece(cut, piece.end, attempts))
        shard.retry_at = self.clock + self.luck.choice(
            (0.1, 1, 30, *((700, 7200) if self.schedule.has("hours") else ()))
        )

    def _discard(self, shard: Shard, first: int, end: int) -> None:
        """Send a batch to the failure queue as metadata. What of it is not in a tally, the marks say."""
        self._wake_all()
        for entry in shard.records[first:end]:
            post = _post_of(entry)
            if post is None:
                continue
            mark = self.table.marks(post).get(_mark_name(shard, self.schedule), {}).get("seq", {}).get("S", "")
            if entry["dynamodb"]["SequenceNumber"].zfill(40) > mark:
                self._miss(entry, post)
        shard.position = end
        numbers = [entry["dynamodb"].get("SequenceNumber") for entry in shard.records[first:end]]
        info = {"shardId": shard.id, "startSequenceNumber": numbers[0], "endSequenceNumber": numbers[-1]}
        self.queue.messages.append({"DDBStreamBatchInfo": info})
        self.trace.append(f"discarded {info}")

    def _miss(self, entry: dict[str, Any], post: str) -> None:
        number = entry["dynamodb"]["SequenceNumber"]
        if number not in self.missed_records and (f"POST#{post}", "META") in self.table.items:
            self.missed_records.add(number)
            self.missed[post] += _delta(entry)

    def _wake(self, entry: tuple[Shard, Zombie]) -> None:
        self.zombies.remove(entry)
        entry[1].wake()
        self.trace.append(f"zombie of {entry[0].id[-8:]} woke up")
        self._result(entry[1])

    def _wake_all(self) -> None:
        while self.zombies:
            self._wake(self.zombies[0])

    # The end.

    def drain(self, faulty: int = 30) -> None:
        """Deliver all there is; after a number of deliveries, without faults."""
        # Without faults, each delivery settles at least one record.
        for patience in range(faulty + sum(len(shard.records) for shard in self.shards) + 1):
            if not self.deliver(calm=patience >= faulty):
                break
        else:
            raise Wrong("a batch is delivered for ever")
        self._wake_all()

    def check_marks(self) -> None:
        """Write each post twice more, long after everything else, and see that no stale mark has stayed behind."""
        self.clock += 2 * DAY
        for user in ("first", "second"):
            for post in range(self.schedule.posts):
                self._toggle(str(post), user)
            self.drain(faulty=0)
        for post in range(self.schedule.posts):
            marks = self.table.marks(str(post))
            stale = [name for name in marks if float(marks[name]["at"]["N"]) < self.clock - 2 * DAY]
            if str(post) not in self.poisoned and len(stale) >= (self.most_stale if self.schedule.has("cold") else 1):
                raise Wrong(f"post {post} keeps stale marks: {stale}")

    def check(self) -> None:
        """Compare each tally with the children."""
        for message in self.queue.messages:
            if "parent" in message:
                post = message["parent"]["PK"].removeprefix("POST#")
                self._check_message(message)
                for shard in self.shards:
                    for entry in shard.records:
                        number = entry["dynamodb"].get("SequenceNumber", "").zfill(40)
                        within = message["first"].zfill(40) <= number <= message["last"].zfill(40)
                        if within and _post_of(entry) == post and _same_lane(shard, message["shard"], self.schedule):
                            self._miss(entry, post)
        for number in range(self.schedule.posts):
            self._check_post(str(number))

    def _check_message(self, message: dict[str, Any]) -> None:
        if message["parent"]["PK"].removeprefix("POST#") not in self.poisoned or not message["reason"]:
            raise Wrong(f"a parent that can be counted is on the failure queue: {message}")

    def _check_post(self, post: str) -> None:
        item = self.table.items.get((f"POST#{post}", "META"))
        children = sum(key[0] == f"POST#{post}" and key[1].startswith("LIKE#USER#") for key in self.table.items)
        if item is None:
            return
        if set(item) - {"PK", "SK", "likeTally"} - {name for name in item if name.startswith("mark#")}:
            raise Wrong(f"post {post} has grown attributes: {sorted(item)}")
        truth = children
        if post in self.recreated:
            truth = sum(
                _delta(entry)
                for shard in self.shards
                for index, entry in enumerate(shard.records)
                if _post_of(entry) == post and index >= self.recreated[post].get(shard.id, 0)
            )
        tally = self.poisoned[post] if post in self.poisoned else int(item["likeTally"]["N"])
        if tally + self.missed[post] != truth:
            raise Wrong(f"post {post}: tally {tally} + on the failure queue {self.missed[post]} is not {truth}")
        if tally < 0 and not self.missed[post] and post not in self.recreated:
            raise Wrong(f"post {post} ends with the tally {tally}")


_running = threading.local()


def _post_of(entry: dict[str, Any]) -> str | None:
    """Return the post that a record counts on; None if it counts nowhere."""
    keys = entry["dynamodb"].get("Keys", {})
    if entry["eventName"] not in {"INSERT", "REMOVE"} or not keys.get("SK", {}).get("S", "").startswith("LIKE#USER#"):
        return None
    post: str = keys["PK"]["S"].removeprefix("POST#")
    return post


def _delta(entry: dict[str, Any]) -> int:
    return 1 if entry["eventName"] == "INSERT" else -1


def _mark_name(shard: Shard, schedule: Schedule) -> str:
    return "mark#stream" if schedule.has("no_window") else f"mark#{shard.id.removeprefix('shardId-')}"


def _same_lane(shard: Shard, lane: str, schedule: Schedule) -> bool:
    return schedule.has("no_window") or shard.id == lane


def _shown(event: dict[str, Any]) -> str:
    numbers = [entry["dynamodb"].get("SequenceNumber", "?").lstrip("0")[-4:] for entry in event["Records"]]
    return f"[{numbers[0]}..{numbers[-1]}: {len(numbers)}]" if numbers else "[]"


def run(schedule: Schedule, kind: type[World] = World) -> World:
    """Play a schedule to its end, on a world of some kind, and check it.

    Raises:
        Wrong: something is not as it must be.
        Exception: what the handler raised and must not have.
    """
    world = kind(schedule)
    try:
        world.play()
    finally:
        for _, zombie in world.zombies:
            zombie.wake()
    return world


def failure_of(schedule: Schedule, kind: type[World] = World) -> str | None:
    """Return what goes wrong in a schedule, or None."""
    try:
        run(schedule, kind)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what the schedule found
        return f"{type(error).__name__}: {error}"
    return None


def shortest(schedule: Schedule, kind: type[World] = World) -> Schedule:
    """Return a failing schedule made as short as it gets, step by step: fewer steps, people, faults and features."""
    improved = True
    while improved:
        improved = False
        for smaller in _smaller(schedule):
            if failure_of(smaller, kind):
                schedule, improved = smaller, True
                break
    return schedule


def _smaller(schedule: Schedule) -> Iterable[Schedule]:
    for steps in (schedule.steps // 2, schedule.steps * 3 // 4, schedule.steps - 1):
        if 0 < steps < schedule.steps:
            yield dataclasses.replace(schedule, steps=steps)
    for name in ("posts", "users"):
        if getattr(schedule, name) > 1:
            yield dataclasses.replace(schedule, **{name: getattr(schedule, name) - 1})
    for name in ("sdk_faults", "invocation_faults", "features"):
        values = getattr(schedule, name)
        for value in values:
            yield dataclasses.replace(schedule, **{name: tuple(other for other in values if other != value)})


def story(schedule: Schedule, kind: type[World] = World) -> str:
    """Return what a schedule does, line by line, and what goes wrong in it."""
    world = kind(schedule)
    said = "nothing goes wrong"
    try:
        world.play()
    except Exception as error:  # noqa: BLE001 - told, not hidden
        said = f"{type(error).__name__}: {error}"
    finally:
        for _, zombie in world.zombies:
            zombie.wake()
    return "\n".join([repr(schedule), *world.trace, said])
