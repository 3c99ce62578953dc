"""Stream records and events, built: nobody pastes JSON. The sample events are made by the same functions."""

from __future__ import annotations

from typing import Any

STREAM_ARN = "arn:aws:dynamodb:eu-west-1:111122223333:table/T/stream/2026-01-01T00:00:00.000"
SHARD = "shardId-00000001769432789123-0a1b2c3d"
NOW = 1_796_040_000
"""2026-11-30T12:00:00Z, in epoch seconds: when the deliveries of the tests come."""


def record(name: str, number: int | str | None, keys: tuple[str, str], *, at: float | None = None) -> dict[str, Any]:
    """Return a stream record with KEYS_ONLY view, as Lambda delivers it."""
    data: dict[str, Any] = {
        "Keys": {"PK": {"S": keys[0]}, "SK": {"S": keys[1]}},
        "SizeBytes": sum(len(key.encode()) for key in keys) + 4,
        "StreamViewType": "KEYS_ONLY",
    }
    if number is not None:
        data["SequenceNumber"] = number if isinstance(number, str) else f"{number:021d}"
    if at is not None:
        data["ApproximateCreationDateTime"] = at
    return {
        "eventID": f"e{number}",
        "eventName": name,
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "eu-west-1",
        "eventSourceARN": STREAM_ARN,
        "dynamodb": data,
    }


def like(number: int | str | None, post: str = "p1", user: str = "u1", *, at: float | None = None) -> dict[str, Any]:
    """Return the record of a like that was stored: `I(number, post, user)` in the cases."""
    return record("INSERT", number, (f"POST#{post}", f"LIKE#USER#{user}"), at=at)


def unlike(number: int | str | None, post: str = "p1", user: str = "u1", *, at: float | None = None) -> dict[str, Any]:
    """Return the record of a like that was removed: `D(number, post, user)` in the cases."""
    return record("REMOVE", number, (f"POST#{post}", f"LIKE#USER#{user}"), at=at)


def modify(number: int | str | None, post: str = "p1", user: str = "u1", *, at: float | None = None) -> dict[str, Any]:
    """Return the record of a like that was overwritten: `M(number, post, user)` in the cases."""
    return record("MODIFY", number, (f"POST#{post}", f"LIKE#USER#{user}"), at=at)


def expired(number: int | str | None, post: str = "p1", user: str = "u1", *, at: float | None = None) -> dict[str, Any]:
    """Return the record of a like that DynamoDB removed because its time to live was over."""
    identity = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    return {**unlike(number, post, user, at=at), "userIdentity": identity}


def foreign(number: int | str | None) -> dict[str, Any]:
    """Return the record of a table with other keys, such as AWS's stock sample event has."""
    return {**record("INSERT", number, ("", "")), "dynamodb": {"Keys": {"Id": {"N": "101"}}, "SequenceNumber": "111"}}


def batch(*records: dict[str, Any]) -> dict[str, Any]:
    """Return the event of a mapping without a tumbling window."""
    return {"Records": list(records)}


def windowed(*records: dict[str, Any], shard: str = SHARD, final: bool = False) -> dict[str, Any]:
    """Return the event of a mapping with a tumbling window; the last one of a window may have no records."""
    return {
        "Records": list(records),
        "shardId": shard,
        "eventSourceARN": STREAM_ARN,
        "window": {"start": "2026-11-30T12:00:00Z", "end": "2026-11-30T12:01:00Z"},
        "state": {},
        "isFinalInvokeForWindow": final,
        "isWindowTerminatedEarly": False,
    }
