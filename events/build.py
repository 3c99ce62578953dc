"""Make the sample events for `sam local invoke` and `make invoke`; with --check, say whether they are as made here.

They come from the builders of the tests, so that a sample and a test cannot disagree on what an event looks like. Each
has posts of its own, named `sample-...`, since a post keeps the sequence numbers that it has seen: those of a sample
mean nothing beside those of a real stream. All but `ttl-expiry.json` have a tumbling window, as the template does.
"""  # noqa: INP001 - a script, not a package

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builders import NOW, batch, expired, foreign, like, modify, record, unlike, windowed
from http_builders import http_event
from tallystream.keys import post_key
from tallystream.rules import DEFAULT_COUNTERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER = Path(__file__).resolve().parent
FIRST_SEQUENCE_NUMBER = 4421584500000000017450439091
SPAN = 10_000_000
"""From the first sequence number of one event to that of the next."""
SECOND_SHARD = "shardId-00000001769432789456-4d5e6f70"
"""Where a second window comes from: a shard that another partition of the table writes to."""

Event = dict[str, Any]


def numbers(part: int) -> Iterator[str]:
    """Return the sequence numbers of one event's records: rising, as long as real ones, and in no other event."""
    return map(str, itertools.count(FIRST_SEQUENCE_NUMBER + part * SPAN, 7))


def like_burst() -> Event:
    """Return 200 likes of one post: one update."""
    sequence = numbers(1)
    return windowed(*(like(next(sequence), "sample-burst", f"user-{user}", at=NOW) for user in range(1, 201)))


def likes_and_unlikes() -> Event:
    """Return likes of four posts with some unlikes among them: 5, 10, 15 and 20 likes are left."""
    sequence = numbers(2)
    records = []
    for user, post in itertools.product(range(1, 28), range(1, 5)):
        post_id = f"sample-mixed-{post}"
        if user <= 6 * post:
            records.append(like(next(sequence), post_id, f"user-{user}", at=NOW))
        if 1 <= user - 3 <= post:  # each changes their mind three rounds later
            records.append(unlike(next(sequence), post_id, f"user-{user - 3}", at=NOW))
    return windowed(*records)


def like_and_unlike_of_one_user() -> Event:
    """Return changes that cancel out: the tally stays as it is, and the mark moves."""
    sequence = numbers(3)
    who = ("sample-cancelled", "user-1")
    return windowed(*(change(next(sequence), *who, at=NOW) for change in (like, unlike, like, unlike)))


def ttl_expiry() -> Event:
    """Return two removals by time to live after three likes, from a mapping without a window: one like is left."""
    sequence = numbers(4)
    likes = [like(next(sequence), "sample-expired", f"user-{user}", at=NOW) for user in (1, 2, 3)]
    return batch(*likes, *(expired(next(sequence), "sample-expired", f"user-{user}", at=NOW) for user in (1, 2)))


def overwritten() -> Event:
    """Return a like, the same like overwritten, and the aggregator's own write coming back: it counts one."""
    sequence = numbers(5)
    post = post_key("sample-modified")
    return windowed(
        like(next(sequence), "sample-modified", "user-1", at=NOW),
        modify(next(sequence), "sample-modified", "user-1", at=NOW),
        record("MODIFY", next(sequence), (post["PK"], post["SK"]), at=NOW),
    )


def foreign_item() -> Event:
    """Return a record of a table with other keys between two likes: it is ignored, with a warning."""
    sequence = numbers(6)
    first = like(next(sequence), "sample-foreign", "user-1", at=NOW)
    return windowed(first, foreign(next(sequence)), like(next(sequence), "sample-foreign", "user-2", at=NOW))


def poison_record() -> Event:
    """Return two records that nobody can count among four likes: they are skipped, and told in the log."""
    sequence = numbers(7)
    first, second, third, fourth, fifth, sixth = (next(sequence) for _ in range(6))
    post = "sample-poisoned"
    return windowed(
        like(first, post, "user-1", at=NOW),
        like(second, post, "user-2", at=NOW),
        {**like(third, post, "user-3", at=NOW), "eventName": "BOGUS"},
        {**like(fourth, post, "user-4", at=NOW), "dynamodb": {"SequenceNumber": fourth, "Keys": {}}},
        like(fifth, post, "user-5", at=NOW),
        like(sixth, post, "user-6", at=NOW),
    )


def windowed_batch() -> Event:
    """Return a batch of another shard, in mid-window: likes of two posts."""
    sequence = numbers(8)
    likes = [("sample-window-1", 1), ("sample-window-2", 1), ("sample-window-1", 2), ("sample-window-1", 3)]
    records = [like(next(sequence), post_id, f"user-{user}", at=NOW) for post_id, user in likes]
    return windowed(*records, shard=SECOND_SHARD)


def environment() -> dict[str, dict[str, str]]:
    """Return what `sam local invoke --env-vars` takes: each function's variables, to be replaced by your stack's."""
    both = {"TABLE_NAME": "Social", "COUNTERS": DEFAULT_COUNTERS, "COUNTING_PATH": "stream"}
    queue = "https://sqs.eu-west-1.amazonaws.com/111122223333/FailedBatches"
    return {"AggregatorFunction": {**both, "FAILED_BATCHES_URL": queue}, "LikesApiFunction": both}


def build() -> dict[str, str]:
    """Return the text of each file by its name."""
    like_of_one = {"postId": "sample-api", "userId": "user-1"}
    contents: dict[str, Event] = {
        "like-burst": like_burst(),
        "likes-and-unlikes": likes_and_unlikes(),
        "like-and-unlike-of-one-user": like_and_unlike_of_one_user(),
        "ttl-expiry": ttl_expiry(),
        "modify": overwritten(),
        "foreign-item": foreign_item(),
        "poison-record": poison_record(),
        "windowed-batch": windowed_batch(),
        "final-window": windowed(final=True),
        "api-put-like": http_event("PUT /posts/{postId}/likes/{userId}", path_parameters=like_of_one),
        "api-get-post": http_event("GET /posts/{postId}", path_parameters={"postId": "sample-api"}),
        "env": environment(),
    }
    return {f"{name}.json": text(content) for name, content in contents.items()}


def text(content: Mapping[str, object]) -> str:
    """Return an object as JSON with a line a member, and one a record."""
    members = []
    for name, value in content.items():
        if isinstance(value, list) and value:
            rows = ",\n".join(f"    {json.dumps(row)}" for row in value)
            members.append(f"  {json.dumps(name)}: [\n{rows}\n  ]")
        else:
            members.append(f"  {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(members) + "\n}\n"


def main() -> None:
    """Write the files, or check them. Exit code 1 if one differs, is missing or is not made here."""
    parser = argparse.ArgumentParser(description="Make the sample events from the builders of the tests.")
    parser.add_argument("--check", action="store_true", help="only say whether the files are what would be made")
    built = build()
    if not parser.parse_args().check:
        for name, content in built.items():
            (FOLDER / name).write_text(content)
        return
    found = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    different = sorted(name for name in built.keys() | found.keys() if built.get(name) != found.get(name))
    if different:
        sys.exit(f"not what `make events` makes: {', '.join(different)}")


if __name__ == "__main__":
    main()
