"""What does the stream hold? Its shards, its records, and the changes of each item collection, read to the end.

A table's stream is a forest of shards: one closes and one or two others go on from it. A shard's records come in
order; a child shard's come after its parent's. So each shard is read after its parent, from the oldest record that the
stream has, and what has been read is kept: the next call goes on from there.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
"""

import math
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from tallystream.audit import Disturbed, Mark, Shards, Streamed, Unjudged
from tallystream.auditor import Concurrently
from tallystream.changes import Record, padded
from tallystream.counters import mark_name
from tallystream.faults import Kind, kind_of
from tallystream.rules import Rules

if TYPE_CHECKING:
    from mypy_boto3_dynamodbstreams import DynamoDBStreamsClient
    from mypy_boto3_dynamodbstreams.type_defs import ShardTypeDef

READ_EVERY_S = 0.2
"""A shard takes five reads a second:
https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_GetRecords.html"""

STREAM_DELAY_S = 3.0
"""A write shows in the stream within so many seconds. AWS says "near real time"; it is mostly well below one."""

EMPTY_READS = 5
"""So many reads in a row that bring nothing mean the end of an open shard. One means nothing: "it might take multiple
calls to get to a portion of the shard that contains stream records" (GetRecords, as above)."""

EMPTY_READS_AT_MOST = 300
"""So many do where a mark says that the shard holds more: then nobody will ever find it."""

_LONGEST_PAUSE_S = 5.0


class Trimmed(Exception):
    """The stream does not have these records any more: it keeps them for 24 hours."""


@dataclass(slots=True)
class _Reader:
    """How far one shard has been read."""

    shard: str
    parent: str | None
    iterator: str | None = None
    last: str | None = None
    """Sequence number of the last record that was read, as the stream has it."""
    ended: bool = False
    """Closed, and read to its end."""
    gap: bool = False
    """Records were trimmed before they could be read."""
    caught_up: bool = False
    empty_reads: int = 0
    pause_s: float = READ_EVERY_S
    read_at: float = -math.inf


class TableStream:
    """One table's stream, behind `auditor.Stream`. To be used by one thread; it reads shards with several."""

    def __init__(  # noqa: PLR0913 - what is not a function of the stream comes in here
        self,
        client: "DynamoDBStreamsClient",
        stream_arn: str,
        rules: Rules,
        *,
        now: Callable[[], float],
        sleep: Callable[[float], None],
        concurrently: Concurrently,
        wanted: Callable[[str], bool] = lambda _: True,
        patience_s: float = math.inf,
    ) -> None:
        """Wire it; nothing is read yet.

        Args:
            client: boto3's low-level client.
            stream_arn: the stream's, as the table names it (`LatestStreamArn`).
            rules: which items are children.
            now: epoch seconds, by DynamoDB's clock.
            sleep: waits for some seconds.
            concurrently: reads several shards at a time.
            wanted: says of a partition key whether its changes will be asked for.
            patience_s: seconds after which `catch_up` gives up.
        """
        self._client = client
        self._arn = stream_arn
        self._rules = rules
        self._now = now
        self._sleep = sleep
        self._concurrently = concurrently
        self._wanted = wanted
        self._patience_s = patience_s
        self._readers: dict[str, _Reader] = {}
        self._open: frozenset[str] = frozenset()
        # An empty name is a database of this connection alone that goes to a temporary file when it gets large:
        # a day of a busy table's changes is more than memory should hold. https://www.sqlite.org/inmemorydb.html
        self._changes = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._changes.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536;"
            "CREATE TABLE change (collection TEXT, shard TEXT, number TEXT, sort_key TEXT, inserted INT, made_at INT);"
            "CREATE INDEX of_collection ON change (collection);"
        )

    def close(self) -> None:
        """Forget what was read."""
        self._changes.close()

    @property
    def shards(self) -> Shards:
        """The shards as of the last `catch_up`."""
        return Shards({reader.shard: reader.parent for reader in self._readers.values()}, self._open)

    def changes(self, partition_key: str) -> list[Streamed]:
        """Return the changes of children in one item collection, in the order of their shards, as far as read."""
        rows = self._changes.execute(
            "SELECT shard, number, sort_key, inserted, made_at FROM change WHERE collection = ? ORDER BY rowid",
            (partition_key,),
        )
        return [Streamed(shard, number, key, bool(inserted), at) for shard, number, key, inserted, at in rows]

    def catch_up(self, reached: Mapping[str, Mark] | None = None) -> None:
        """Read each shard until past this moment.

        After: whatever was written to the table before the call is in `changes`. Nothing in the API says that an open
        shard has been read to its end. So it is taken for read when a record came that was made later, or when, the
        stream's delay after the call, several reads in a row brought nothing, and no mark says that there is more.

        Args:
            reached: marks of parents of this table: the shard holds records up to there, at least.

        Raises:
            Disturbed: records were trimmed before they could be read; the next call goes on behind them.
            Unjudged: the end was not reached within `patience_s`.
            ClientError: the stream cannot be read: missing rights, no such stream.
        """
        moment = self._now()
        until = moment + STREAM_DELAY_S
        for reader in self._readers.values():
            reader.caught_up, reader.empty_reads = False, 0
        self.find_shards()
        while True:
            ready = [reader for reader in self._readers.values() if self._is_ready(reader)]
            if not ready:
                known = len(self._readers)
                self.find_shards()
                if len(self._readers) == known:
                    return
                continue
            if self._now() - moment > self._patience_s:
                raise Unjudged(f"the stream was not read to its end within {self._patience_s:.0f} s")
            pages = list(self._concurrently(lambda reader: self._read(reader, until), ready))
            for reader, records in zip(ready, pages, strict=True):
                if records is not None:
                    self._keep(reader, records)
                    self._note_progress(reader, records, until, (reached or {}).get(mark_name(reader.shard)))
            if any(reader.gap for reader in ready):
                for reader in ready:
                    reader.gap = False
                raise Disturbed("the stream was trimmed while it was read")

    def records(self, shard: str, first: str, last: str) -> list[Record]:
        """Return the records of a shard from one sequence number to another, both included, as the stream has them.

        Raises:
            Trimmed: the stream does not have the first of them any more.
            Unjudged: the shard ends, or brings nothing more, before the last of them.
        """
        reader, moment = _Reader(shard, None), self._now()
        wanted_last, found = padded(last) or "", list[Record]()
        try:
            reader.iterator = self._client.get_shard_iterator(
                StreamArn=self._arn, ShardId=shard, ShardIteratorType="AT_SEQUENCE_NUMBER", SequenceNumber=first
            )["ShardIterator"]
        except ClientError as error:
            if error.response["Error"]["Code"] in {"TrimmedDataAccessException", "ResourceNotFoundException"}:
                raise Trimmed(f"the stream has no record {first} of {shard} any more") from error
            raise
        while not reader.ended and reader.empty_reads < EMPTY_READS_AT_MOST:
            if self._now() - moment > self._patience_s:
                break
            page = self._read(reader, -math.inf)
            if reader.gap:
                raise Trimmed(f"the stream has no record {first} of {shard} any more")
            for record in page or ():
                number = padded(record["dynamodb"]["SequenceNumber"]) or ""
                if number <= wanted_last:
                    found.append(record)
                if number >= wanted_last:
                    return found
            if page is not None:
                reader.empty_reads = 0 if page else reader.empty_reads + 1
        raise Unjudged(f"{shard} brings no record {last}")

    # Shards.

    def find_shards(self) -> None:
        """Take the shards that the stream has now; those that it had are kept, for the lineage."""
        found = {shard["ShardId"]: shard for shard in self._describe()}
        for shard_id, shard in found.items():
            if shard_id not in self._readers:
                self._readers[shard_id] = _Reader(shard_id, shard.get("ParentShardId"))
        parents = {reader.parent for reader in self._readers.values()}
        self._open = frozenset(
            shard_id
            for shard_id, shard in found.items()
            if "EndingSequenceNumber" not in shard.get("SequenceNumberRange", {}) and shard_id not in parents
        )

    def _describe(self) -> "Iterator[ShardTypeDef]":
        more: dict[str, Any] = {}
        while True:
            description = self._client.describe_stream(StreamArn=self._arn, **more)["StreamDescription"]
            yield from description["Shards"]
            if not description.get("LastEvaluatedShardId"):
                return
            more = {"ExclusiveStartShardId": description["LastEvaluatedShardId"]}

    def _is_ready(self, reader: _Reader) -> bool:
        """Say whether a shard is to be read now: it has more, and its parent has no more."""
        parent = self._readers.get(reader.parent) if reader.parent else None
        return not reader.ended and not reader.caught_up and (parent is None or parent.ended)

    # Records.

    def _read(self, reader: _Reader, until: float) -> Sequence[Record] | None:
        """Read one page of a shard, not too soon after the last; None if that brought no page."""
        pause = reader.read_at + reader.pause_s - self._now()
        if reader.empty_reads:
            pause = max(pause, until - self._now())
        if pause > 0:
            self._sleep(pause)
        reader.read_at = self._now()
        try:
            if reader.iterator is None:
                reader.iterator = self._iterator(reader)
                reader.read_at = self._now()  # the pace is that of the reads
            answer = self._client.get_records(ShardIterator=reader.iterator)
        except (ClientError, BotoCoreError) as error:
            self._recover(error, reader)
            return None
        reader.pause_s = READ_EVERY_S
        reader.iterator = answer.get("NextShardIterator")
        reader.ended = reader.iterator is None
        records: Sequence[Record] = answer["Records"]  # type: ignore[assignment]
        if records:
            reader.last = records[-1]["dynamodb"]["SequenceNumber"]
        return records

    def _iterator(self, reader: _Reader) -> str:
        where: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
        if reader.last is not None:
            where = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": reader.last}
        return self._client.get_shard_iterator(StreamArn=self._arn, ShardId=reader.shard, **where)["ShardIterator"]

    def _recover(self, error: ClientError | BotoCoreError, reader: _Reader) -> None:
        """Make a reader ready to go on after a read that failed; raise what will not mend.

        An iterator lives for 15 minutes, and records for 24 hours: either may be over before it is used.
        """
        code = error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
        if code == "ExpiredIteratorException":
            reader.iterator = None
        elif code == "TrimmedDataAccessException":
            reader.iterator = reader.last = None
            reader.gap = True
        elif code == "ResourceNotFoundException" and self._is_gone(reader.shard):
            reader.ended = reader.gap = True
        elif kind_of(error) in (Kind.THROTTLED, Kind.UNAVAILABLE):
            reader.pause_s = min(reader.pause_s * 2, _LONGEST_PAUSE_S)
        else:
            raise error

    def _is_gone(self, shard: str) -> bool:
        return shard not in {found["ShardId"] for found in self._describe()}

    def _keep(self, reader: _Reader, records: Sequence[Record]) -> None:
        """Store the changes of children in a page."""
        rows = []
        for record in records:
            data = record["dynamodb"]
            keys = data.get("Keys", {})
            partition_key, sort_key = keys.get("PK", {}).get("S"), keys.get("SK", {}).get("S")
            number = padded(data.get("SequenceNumber"))
            if (
                record["eventName"] in {"INSERT", "REMOVE"}
                and isinstance(partition_key, str)
                and isinstance(sort_key, str)
                and number is not None
                and self._wanted(partition_key)
                and self._rules.parents_of(sort_key)
            ):
                made_at = self._made_at(data.get("ApproximateCreationDateTime"))
                inserted = record["eventName"] == "INSERT"
                rows.append((partition_key, reader.shard, number, sort_key, inserted, made_at))
        self._changes.executemany("INSERT INTO change VALUES (?, ?, ?, ?, ?, ?)", rows)

    def _made_at(self, stamp: object) -> int:
        """Return when a record was made, in epoch seconds; now, if it does not say."""
        if isinstance(stamp, datetime):
            return int(stamp.timestamp())
        return int(stamp) if isinstance(stamp, int | float) else int(self._now())

    def _note_progress(self, reader: _Reader, records: Sequence[Record], until: float, mark: Mark | None) -> None:
        """Note whether an open shard has been read to its end; a closed one says so itself."""
        if reader.read_at < until:
            reader.empty_reads = 0 if records else 1  # one, so that the next read waits
            return
        reader.empty_reads = 0 if records else reader.empty_reads + 1
        if reader.shard not in self._open or reader.iterator is None:
            return
        if records:
            reader.caught_up = self._made_at(records[-1]["dynamodb"].get("ApproximateCreationDateTime")) > until
        else:
            short = mark is not None and mark.number > (padded(reader.last) or "")
            reader.caught_up = reader.empty_reads >= (EMPTY_READS_AT_MOST if short else EMPTY_READS)
