"""The failure queue, worked off: what its messages name is counted after all, then audited, and then they go.

Two kinds of messages come there, and neither holds records. The event source mapping sends the first and the last
sequence number of a batch that it has given up; the aggregator sends the same for a parent that it could not count
on. The stream has the records for 24 hours. They are counted as the aggregator would: the marks say what is in.
"""

import functools
import itertools
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import tenacity
from botocore.exceptions import ClientError, ParamValidationError

from tallyctl.audit import WORKERS, tools
from tallyctl.invoke import shown
from tallystream.audit import REPAIR_MARK, SHARDLESS_MARK, Disturbed, Streamed, Unjudged, marks_of
from tallystream.auditor import READINGS, Auditor, Report
from tallystream.changes import Change, ParentKey, Record, group, padded
from tallystream.counters import LANE_WITHOUT_SHARDS, Item, Retryable, Share, count, mark_name
from tallystream.keys import POST_PREFIX
from tallystream.rules import MARK_PREFIX
from tallystream.streams import Trimmed

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import (
        ChangeMessageVisibilityBatchRequestEntryTypeDef,
        DeleteMessageBatchRequestEntryTypeDef,
    )

    from tallyctl import stack

_T = TypeVar("_T")

HIDDEN_S = 900
"""How long a message that was received is nobody else's. Should it show up again meanwhile, no harm is done."""

_WAIT_S = 1
"""Above zero, all of SQS's servers are asked:
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html"""
_BATCH = 10
_AT_A_TIME = 2000
_SHOWN_BYTES = 200


class Malformed(Exception):
    """A message of neither kind; what it is instead is in the text."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a message names: some records of a shard, and of these a parent's own or all."""

    stream_arn: str
    shard: str
    """Of the parent's kind it is the lane of its marks, and that can be `stream`."""
    first: str
    """Sequence number, as the message has it."""
    last: str
    parent: ParentKey | None

    @property
    def order(self) -> tuple[str, str, str]:
        """Messages of one shard in the order of their records."""
        return self.stream_arn, self.shard, padded(self.first) or ""


def read(body: str, table_arn: str) -> Named:
    """Return what a message names.

    Raises:
        Malformed: it is of neither kind, or of another table.
    """
    try:
        message = json.loads(body)
    except ValueError:
        raise Malformed(f"it is no JSON: {body[:_SHOWN_BYTES]!r}") from None
    if not isinstance(message, dict):
        raise Malformed(f"it is no JSON object: {body[:_SHOWN_BYTES]!r}")
    # https://docs.aws.amazon.com/lambda/latest/dg/services-dynamodb-errors.html
    info = message.get("DDBStreamBatchInfo")
    parent: ParentKey | None = None
    if isinstance(info, dict):
        named = [info.get(name) for name in ("streamArn", "shardId", "startSequenceNumber", "endSequenceNumber")]
    elif isinstance(message.get("parent"), dict):
        named = [message.get(name) for name in ("streamArn", "shard", "first", "last")]
        keys = message["parent"].get("PK"), message["parent"].get("SK")
        if not (isinstance(keys[0], str) and isinstance(keys[1], str)):
            raise Malformed(f"its parent is no key: {str(message['parent'])[:_SHOWN_BYTES]}")
        parent = keys[0], keys[1]
    else:
        raise Malformed(f"it has neither DDBStreamBatchInfo nor parent: {body[:_SHOWN_BYTES]!r}")
    arn, shard, first, last = named
    if not (isinstance(arn, str) and isinstance(shard, str) and isinstance(first, str) and isinstance(last, str)):
        raise Malformed(f"it does not name a stream, a shard and two sequence numbers: {body[:_SHOWN_BYTES]!r}")
    numbers = padded(first), padded(last)
    if numbers[0] is None or numbers[1] is None or numbers[0] > numbers[1] or not shard:
        raise Malformed(f"it does not name records: {shard!r}, from {first!r} to {last!r}")
    if not arn.startswith(f"{table_arn}/stream/"):
        raise Malformed(f"it is of another table's stream: {arn[:_SHOWN_BYTES]!r}")
    return Named(arn, shard, first, last, parent)


class Queue:
    """The failure queue. What is received here is received once, and comes back into sight at the end."""

    def __init__(self, client: "SQSClient", url: str) -> None:
        self._client = client
        self._url = url
        self._receipts: dict[str, str] = {}

    def receive(self, most: int | None) -> Iterator[tuple[str, str]]:
        """Yield (id, body) of each message that is there, up to so many."""
        while most is None or len(self._receipts) < most:
            answer = self._client.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=_BATCH if most is None else min(_BATCH, most - len(self._receipts)),
                WaitTimeSeconds=_WAIT_S,
                VisibilityTimeout=HIDDEN_S,
            )
            new = [one for one in answer.get("Messages", []) if one["MessageId"] not in self._receipts]
            self._receipts |= {one["MessageId"]: one["ReceiptHandle"] for one in answer.get("Messages", [])}
            if not new:
                return
            yield from ((message["MessageId"], message["Body"]) for message in new)

    def delete(self, ids: Iterable[str]) -> dict[str, str]:
        """Delete messages; return why some could not be: id -> reason."""
        failed: dict[str, str] = {}
        for some in _chunks(ids, _BATCH):
            entries: list[DeleteMessageBatchRequestEntryTypeDef] = [
                {"Id": one, "ReceiptHandle": self._receipts[one]} for one in some
            ]
            answer = self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            failed |= {failure["Id"]: failure.get("Message", failure["Code"]) for failure in answer.get("Failed", [])}
            for gone in set(some) - set(failed):
                del self._receipts[gone]
        return failed

    def show_again(self) -> None:
        """Make what was received and is still there visible at once. Where that fails, it shows up by itself later."""
        for some in _chunks(self._receipts.items(), _BATCH):
            entries: list[ChangeMessageVisibilityBatchRequestEntryTypeDef] = [
                {"Id": one, "ReceiptHandle": receipt, "VisibilityTimeout": 0} for one, receipt in some
            ]
            self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=entries)


class Stream(Protocol):
    """What is asked of a stream; see `streams.TableStream`."""

    def catch_up(self) -> None:
        """Read each shard until past this moment."""

    def changes(self, partition_key: str) -> Sequence[Streamed]:
        """Return the changes of children in one item collection."""

    def records(self, shard: str, first: str, last: str) -> Sequence[Record]:
        """Return the records of a shard from one sequence number to another."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a run is to do."""

    most: int | None = None
    """Messages at most; None for all."""
    dry_run: bool = False
    """Write nothing and delete nothing."""
    drop_trimmed: bool = False
    """Delete messages whose records the stream does not have any more."""


@dataclass(slots=True)
class Job:
    """One message, and what became of it."""

    message: str
    named: Named | None
    parents: set[ParentKey] = field(default_factory=set)
    """Those that the records count on."""
    trouble: dict[ParentKey | None, str] = field(default_factory=dict)
    """What keeps it on the queue, by parent if it is one parent's."""
    trimmed: bool = False

    @property
    def reason(self) -> str:
        """What keeps it on the queue, in one line: the first trouble, and of how many."""
        parent, trouble = next(iter(self.trouble.items()))
        others = f" (and {len(self.trouble) - 1} more)" if len(self.trouble) > 1 else ""
        return f"{trouble if parent is None else f'{shown(parent)}: {trouble}'}{others}"


@dataclass(slots=True)
class Outcome:
    """What a run did."""

    jobs: list[Job] = field(default_factory=list)
    done: int = 0
    """Messages that were deleted since all their parents are settled."""
    dropped: int = 0
    """Messages that were deleted since the stream has their records no more."""
    counted: int = 0
    """Changes that were brought into tallies; in a dry run, that would be."""
    report: Report = field(default_factory=Report)

    @property
    def kept(self) -> list[Job]:
        """The messages that stay on the queue for a reason."""
        return [job for job in self.jobs if job.trouble]

    @property
    def parents(self) -> set[ParentKey]:
        """The parents that the messages touch, as far as known."""
        return {parent for job in self.jobs for parent in job.parents}

    def figures(self) -> dict[str, Any]:
        """Return the outcome as the JSON object that others read."""
        return {
            "messages": len(self.jobs),
            "done": self.done,
            "dropped": self.dropped,
            "kept": [
                {
                    "message": job.message,
                    "reason": job.reason,
                    "parents": [{"PK": parent[0], "SK": parent[1]} for parent in sorted(job.parents)],
                }
                for job in self.kept
            ],
            "parents": len(self.parents),
            "counted": self.counted,
            "drifting": len(self.report.drifting),
            "repaired": len(self.report.repaired),
        }


@dataclass(frozen=True, slots=True)
class Redriver:
    """Works off one failure queue."""

    queue: Queue
    stream: Callable[[str], Stream]
    """The stream with an ARN; the same one each time."""
    auditor: Auditor
    names_shards: bool
    """Whether the aggregator is told the shard of its records."""
    table_arn: str
    wanted: set[str]
    """Partition keys that the streams are to keep changes of: those that the messages touch."""
    caught_up: dict[str, Stream] = field(default_factory=dict)
    """Streams that were read to their ends, by ARN."""

    def run(self, order: Order) -> Outcome:
        """Count, audit and repair what the messages name, and delete those whose parents are all settled.

        After: each change that a deleted message named is in its parent's tally exactly once, or its parent does not
        exist. A message that is kept is visible again, and may be redriven any number of times.
        """
        outcome = Outcome()
        try:
            for message, body in self.queue.receive(order.most):
                outcome.jobs.append(self._job(message, body))
            outcome.jobs.sort(key=lambda job: job.named.order if job.named else ("", "", ""))
            for job in outcome.jobs:
                self._find_parents(job)
            for job in outcome.jobs:
                self._count(job, outcome, dry_run=order.dry_run)
            self._audit(outcome, mend=not order.dry_run)
            if not order.dry_run:
                self._delete(outcome, drop_trimmed=order.drop_trimmed)
        finally:
            self.queue.show_again()
        return outcome

    def _job(self, message: str, body: str) -> Job:
        try:
            return Job(message, read(body, self.table_arn))
        except Malformed as error:
            return Job(message, None, trouble={None: f"malformed: {error}"})

    def _find_parents(self, job: Job) -> None:
        """Learn which parents a message touches, from the records that it names."""
        named = job.named
        if named is None:
            return
        if named.parent is not None:
            job.parents = {named.parent}
        else:
            try:
                records = self.stream(named.stream_arn).records(named.shard, named.first, named.last)
            except Trimmed as error:
                _note_trimmed(job, str(error))
            except Unjudged as error:
                job.trouble[None] = str(error)
            except (ClientError, ParamValidationError) as error:
                if isinstance(error, ClientError) and error.response["Error"]["Code"] != "ValidationException":
                    raise
                _note_trimmed(job, f"the stream has no record {named.first} of {named.shard}")  # and never will
            else:
                job.parents = set(group(records, self.auditor.rules).parents)
        self.wanted.update(partition_key for partition_key, _ in job.parents)

    def _count(self, job: Job, outcome: Outcome, *, dry_run: bool) -> None:
        """Bring a message's changes into the tallies of its parents, as the aggregator would have."""
        if job.named is None or job.trouble:
            return
        try:
            shares = self._shares(job.named, job.parents)
        except Trimmed as error:
            _note_trimmed(job, str(error))
            return
        except Unjudged as error:
            job.trouble[None] = str(error)
            return
        if self.auditor.path == "transaction":
            return  # like and tally were written together: the audit says the rest
        items = list(self.auditor.concurrently(self.auditor.items.item, [share.parent for share in shares]))
        usual = _usual_lane(job.named, items, names_shards=self.names_shards)
        countable: list[tuple[Share, Item, str]] = []
        for share, item in zip(shares, items, strict=True):
            if item is not None:  # an orphan counts nowhere
                try:
                    countable.append((share, item, _lane(item, job.named.shard) or usual))
                except Unjudged as error:
                    job.trouble[share.parent] = str(error)
        settle = self._would_settle if dry_run else self._settle
        for (share, _, _), trouble in zip(countable, self.auditor.concurrently(settle, countable), strict=True):
            outcome.counted += len(share.counted)
            if trouble:
                job.trouble[share.parent] = trouble

    def _settle(self, share_of: tuple[Share, Item, str]) -> str | None:
        """Count one parent's share; return what kept it from being counted."""
        share, _, lane = share_of
        try:
            _patiently(count, self.auditor.table, share, lane, int(self.auditor.now()))
        except Retryable as error:
            return str(error)
        return share.uncountable

    def _would_settle(self, share_of: tuple[Share, Item, str]) -> None:
        """Note what would be counted of one parent's share."""
        share, item, lane = share_of
        mark = marks_of(item).get(mark_name(lane))
        share.counted = [change for change in share.left if mark is None or change[0] > mark.number]

    def _shares(self, named: Named, parents: set[ParentKey]) -> list[Share]:
        """Return the changes that a message names, a share a parent.

        Raises:
            Trimmed: the stream does not have them any more.
            Unjudged: the stream could not be read to its end.
        """
        stream = self._caught_up(named.stream_arn)
        first, last = padded(named.first) or "", padded(named.last) or ""
        changes: dict[ParentKey, list[Change]] = {parent: [] for parent in parents}
        made_at: dict[ParentKey, int] = {}
        for partition_key in {partition_key for partition_key, _ in parents}:
            for change in stream.changes(partition_key):
                if named.shard in (change.shard, LANE_WITHOUT_SHARDS) and first <= change.number <= last:
                    for sort_key, attribute in self.auditor.rules.parents_of(change.sort_key):
                        parent = partition_key, sort_key
                        if parent in parents:
                            delta = 1 if change.inserted else -1
                            changes[parent].append((change.number, attribute, delta, len(changes[parent])))
                            made_at[parent] = max(change.made_at, made_at.get(parent, 0))
        # The numbers are those of this parent's own changes: see `batches`.
        if named.parent is not None and not any(change[0] == first for change in changes[named.parent]):
            raise Trimmed(f"the stream has no record {named.first} of this parent any more")
        return [Share(parent, sorted(found), made_at[parent]) for parent, found in changes.items() if found]

    def _caught_up(self, stream_arn: str) -> Stream:
        """Return a stream that was read to its end once all that is wanted of it was known."""
        if stream_arn not in self.caught_up:
            stream = self.stream(stream_arn)
            try:
                tenacity.Retrying(
                    retry=tenacity.retry_if_exception_type(Disturbed),
                    stop=tenacity.stop_after_attempt(READINGS),
                    reraise=True,
                )(stream.catch_up)
            except ClientError as error:
                if error.response["Error"]["Code"] == "ResourceNotFoundException":
                    raise Trimmed("the stream is gone, and its records with it") from error
                raise
            self.caught_up[stream_arn] = stream
        return self.caught_up[stream_arn]

    def _audit(self, outcome: Outcome, *, mend: bool) -> None:
        """Judge the parents of all messages, and repair those that drift; note which are not settled by that."""
        jobs = [job for job in outcome.jobs if job.named is not None and not job.trimmed]
        parents = sorted({parent for job in jobs for parent in job.parents})
        report = outcome.report
        for some in _chunks(parents, _AT_A_TIME):
            seen = self.auditor.concurrently(self.auditor.items.item, some)
            self.auditor.judge(
                {parent: item is not None for parent, item in zip(some, seen, strict=True)}, report, mend=mend
            )
        unsettled = {parent: f"not judged: {reason}" for parent, reason in report.unjudged.items()}
        if mend:
            drifting = report.drifting.keys() - report.repaired
            unsettled |= {parent: report.unrepaired.get(parent, "it still drifts") for parent in drifting}
        for job in jobs:
            for parent in job.parents & unsettled.keys():
                job.trouble.setdefault(parent, unsettled[parent])

    def _delete(self, outcome: Outcome, *, drop_trimmed: bool) -> None:
        dropped = {job.message: job for job in outcome.jobs if job.trimmed and drop_trimmed}
        settled = {job.message: job for job in outcome.jobs if not job.trouble}
        failed = self.queue.delete([*settled, *dropped])
        for message, job in dropped.items():
            if message not in failed:
                job.trouble.clear()
        for message, reason in failed.items():
            {**settled, **dropped}[message].trouble[None] = f"SQS did not delete it: {reason}"
        outcome.dropped = len(dropped.keys() - failed.keys())
        outcome.done = len(settled.keys() - failed.keys())


def _lane(item: Item, shard: str) -> str | None:
    """Return the lane in which a parent's changes of a shard are marked; None if it has no marks that say.

    Raises:
        Unjudged: a mark is not the aggregator's.
    """
    marks = marks_of(item)
    # Where a deployment went from one to the other, the one that reaches further is what counted last.
    own = [(marks[mark_name(lane)].number, lane) for lane in (shard, LANE_WITHOUT_SHARDS) if mark_name(lane) in marks]
    if own:
        return max(own)[1]
    return shard if marks else None


def _usual_lane(named: Named, items: Iterable[Item | None], *, names_shards: bool) -> str:
    """Return the lane for parents whose marks do not say: that of the others, or what the aggregator is told."""
    if named.parent is not None:
        return named.shard  # the aggregator's own word
    marks = {name for item in items if item for name in item if name.startswith(MARK_PREFIX)} - {REPAIR_MARK}
    if marks == {SHARDLESS_MARK}:
        return LANE_WITHOUT_SHARDS
    if marks and SHARDLESS_MARK not in marks:
        return named.shard
    return named.shard if names_shards else LANE_WITHOUT_SHARDS


def _note_trimmed(job: Job, reason: str) -> None:
    job.trimmed = True
    if job.named is not None and job.named.parent is not None:
        name, partition_key = shown(job.named.parent), job.named.parent[0]
        post = shlex.quote(partition_key.removeprefix(POST_PREFIX))
        chosen = f" --post {post}" if partition_key.startswith(POST_PREFIX) else ""
        advice = f"it is of {name}: run `tallyctl audit{chosen} --repair`"
    else:
        advice = "which posts it touched is not known: run `tallyctl audit --repair`"
    job.trouble[None] = f"trimmed: {reason}; {advice}, then this with --drop-trimmed"


_patiently = tenacity.Retrying(
    retry=tenacity.retry_if_exception_type(Retryable),
    wait=tenacity.wait_random_exponential(multiplier=0.2, max=5),
    stop=tenacity.stop_after_attempt(6),
    reraise=True,
)


def _chunks(things: Iterable[_T], size: int) -> Iterator[list[_T]]:
    """Yield the things in lists of so many."""
    left = iter(things)
    while chunk := list(itertools.islice(left, size)):
        yield chunk


def run(
    place: "stack.Place",
    found: "stack.Stack",
    counting: "stack.Counting",
    order: Order,
) -> Outcome:
    """Redrive a stack's failure queue.

    Raises:
        TallyctlError: see `audit.facts`.
        ClientError: AWS refuses for good; nothing is lost, and the messages show up again.
    """
    wanted: set[str] = set()
    with tools(place, counting, WORKERS, wanted.__contains__) as at_hand:
        streams = functools.cache(at_hand.streams)
        items = at_hand.items(counting.table_name)
        redriver = Redriver(
            queue=Queue(place.session.client("sqs", config=place.config(WORKERS)), found.failed_batches_url),
            stream=streams,
            auditor=at_hand.auditor(counting, items, streams(at_hand.facts.stream_arn)),
            names_shards=counting.names_shards,
            table_arn=at_hand.facts.stream_arn.partition("/stream/")[0],
            wanted=wanted,
        )
        return redriver.run(order)
