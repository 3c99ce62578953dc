"""How a batch is grouped: stream records in, changes per parent out.

This is the hot path: one invocation groups up to 10,000 records. Records stay the plain dicts that Lambda made of the
JSON, and a change is a plain tuple: Powertools' data classes take several times as long (`make bench`).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from tallystream.rules import Rules

# DynamoDB's sequence numbers are decimal strings of 21 to 40 digits
# (https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_streams_StreamRecord.html). Padded to 40, they
# compare as strings as they do as numbers, in Python and in a condition expression.
SEQUENCE_DIGITS = 40

_DELTAS = {"INSERT": 1, "REMOVE": -1, "MODIFY": 0}

Record: TypeAlias = dict[str, Any]
ParentKey: TypeAlias = tuple[str, str]
"""Partition key and sort key. Kept apart: joined with `#`, ("A#", "B") and ("A", "#B") would be one."""
Change: TypeAlias = tuple[str, str, int, int]
"""Padded sequence number, attribute, delta, position of the record in the batch."""


class Grouped(NamedTuple):
    """A batch, sorted out. `ignored`, `malformed`, `repeated` and `unnumbered` hold positions in the batch."""

    parents: dict[ParentKey, list[Change]]
    """Each parent's changes: ascending sequence numbers, no change twice."""
    ignored: int
    """How many records count nowhere, malformed ones included."""
    malformed: list[int]
    """Records that are no stream record of a table with the keys PK and SK."""
    repeated: set[int]
    """Records that stand in this batch a second time."""
    unnumbered: list[int]
    """Records that count somewhere but have no usable sequence number: no mark can hold them."""


def padded(sequence_number: object) -> str | None:
    """Return a sequence number as 40 digits, or None if it is none: not a string of at most 40 decimal digits."""
    if type(sequence_number) is not str or not (sequence_number.isdigit() and sequence_number.isascii()):
        return None
    number = sequence_number.lstrip("0").zfill(SEQUENCE_DIGITS)
    return number if len(number) == SEQUENCE_DIGITS else None


def group(records: Sequence[Record], rules: Rules) -> Grouped:  # noqa: C901 - a call a record costs a third
    """Group the records of one batch by the parents they count on.

    INSERT counts +1 and REMOVE -1, by the keys alone: no image is needed, so that every stream view type serves, and
    a removal by TTL counts as any other. MODIFY and keys that no rule matches count nothing. Whatever is no proper
    record is listed as malformed and stops nobody.
    """
    parents: dict[ParentKey, list[Change]] = {}
    ignored = 0
    malformed: list[int] = []
    unnumbered: list[int] = []
    # Asked of the batch as a whole, which a shard delivers in order: asked of each parent, it costs twice as much.
    in_order, previous = True, ""
    # One rule without segments is what most tables have: asked in this loop, it saves a call a record.
    only_prefix: str | None = None
    only_targets: tuple[tuple[str, str], ...] = ()
    if rules.only:
        only_prefix, only_targets = rules.only
    known, deltas = parents.get, _DELTAS
    for position, record in enumerate(records):
        try:
            delta = deltas[record["eventName"]]
            data = record["dynamodb"]
            keys = data["Keys"]
            partition_key = keys["PK"]["S"]
            sort_key = keys["SK"]["S"]
            targets = only_targets if only_prefix and sort_key.startswith(only_prefix) else rules.parents_of(sort_key)
            if type(partition_key) is not str:
                raise TypeError  # noqa: TRY301 - one place lists what is malformed
        except (KeyError, TypeError, AttributeError):
            ignored += 1
            malformed.append(position)
            continue
        if not targets or not delta:
            ignored += 1
            continue
        number = data.get("SequenceNumber")
        # What `padded` does, for the usual number without the call.
        if type(number) is str and len(number) <= SEQUENCE_DIGITS and number.isdigit() and number.isascii():
            number = number.zfill(SEQUENCE_DIGITS)
        elif (number := padded(number)) is None:
            unnumbered.append(position)
            continue
        if number <= previous:
            in_order = False
        previous = number
        for parent_sort_key, attribute in targets:
            parent = (partition_key, parent_sort_key)
            changes = known(parent)
            if changes is None:
                parents[parent] = [(number, attribute, delta, position)]
            else:
                changes.append((number, attribute, delta, position))
    repeated: set[int] = set()
    if not in_order:
        parents = {parent: _in_order(changes, repeated) for parent, changes in parents.items()}
    return Grouped(parents, ignored, malformed, repeated, unnumbered)


def _in_order(changes: list[Change], repeated: set[int]) -> list[Change]:
    """Return the changes by ascending sequence number, each once; add the positions of repetitions to `repeated`."""
    once: dict[tuple[str, str], Change] = {}
    for change in sorted(changes):
        if once.setdefault((change[0], change[1]), change) is not change:
            repeated.add(change[3])
    return list(once.values())


def net(changes: Sequence[Change]) -> dict[str, int]:
    """Return what the changes add up to per attribute; 0 where they cancel out."""
    totals: dict[str, int] = {}
    for _, attribute, delta, _ in changes:
        totals[attribute] = totals.get(attribute, 0) + delta
    return totals
