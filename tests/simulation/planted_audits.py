"""Bugs that people write into audits and repairs, planted one at a time, to see that the simulation finds each.

As in `planted`: a bug is a function that patches the product's own code through pytest's monkeypatch.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tallystream import audit, auditor, streams
from tallystream.auditor import Auditor
from tallystream.counters import Retryable
from tallystream.dynamodb import DynamoDbItems
from tallystream.streams import TableStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pytest

    from tallystream.audit import Mark, Reading, Streamed, Tally, Verdict
    from tallystream.changes import ParentKey

_tallies, _uncounted, _repair_request = audit._tallies, audit.uncounted, audit.repair
_outcomes, _read, _repair = Auditor._outcomes, Auditor._read, Auditor._repair
_children, _describe, _is_ready = DynamoDbItems.children, TableStream._describe, TableStream._is_ready
_recover = TableStream._recover


class _AsItWas:
    """A stream that is not read any further."""

    def __init__(self, stream: Any) -> None:
        self.shards = stream.shards
        self.changes = stream.changes

    def catch_up(self, *_: Any) -> None:
        """Do nothing."""


def stream_before_the_children(patch: pytest.MonkeyPatch) -> None:
    """The stream is read first, and then the parent and its children: what comes in between is nowhere."""

    def outcomes(self: Auditor, parents: Any) -> Any:
        self.stream.catch_up()
        return _outcomes(replace(self, stream=_AsItWas(self.stream)), parents)

    patch.setattr(Auditor, "_outcomes", outcomes)


def children_before_the_parent(patch: pytest.MonkeyPatch) -> None:
    """What is counted between the two readings is in the tally, and behind its marks, but not in the children."""

    class ChildrenFirst:
        def __init__(self, items: Any, parent: ParentKey) -> None:
            self.item = items.item
            self.pages = list(items.children(parent[0], "LIKE#USER#"))

        def children(self, *_: Any) -> Iterator[list[str]]:
            return iter(self.pages)

    def read(self: Auditor, parent: ParentKey) -> Reading:
        return _read(replace(self, items=ChildrenFirst(self.items, parent)), parent)

    patch.setattr(Auditor, "_read", read)


def last_change_for_the_first(patch: pytest.MonkeyPatch) -> None:
    """Of several changes of one child, the last one tells what the child was before."""

    def tallies(reading: Reading, item: Any, waiting: Iterable[Streamed], rules: Any) -> Iterator[Tally]:
        return _tallies(reading, item, reversed(list(waiting)), rules)

    patch.setattr(audit, "_tallies", tallies)


def first_page_only(patch: pytest.MonkeyPatch) -> None:
    """A Query is asked once: what does not fit into its page is not there."""

    def children(self: DynamoDbItems, *arguments: str) -> Iterator[list[str]]:
        yield next(_children(self, *arguments))

    patch.setattr(DynamoDbItems, "children", children)


def open_shards_only(patch: pytest.MonkeyPatch) -> None:
    """A closed shard is taken for one that has been dealt with."""

    def describe(self: TableStream) -> Iterator[Any]:
        return (shard for shard in _describe(self) if "EndingSequenceNumber" not in shard["SequenceNumberRange"])

    patch.setattr(TableStream, "_describe", describe)


def children_of_shards_at_once(patch: pytest.MonkeyPatch) -> None:
    """All shards are read at the same time: a child's changes come out of order."""
    patch.setattr(TableStream, "_is_ready", lambda _, reader: not reader.ended and not reader.caught_up)


def no_wait_for_the_delay(patch: pytest.MonkeyPatch) -> None:
    """What was written a moment ago is not in the stream yet."""
    patch.setattr(streams, "STREAM_DELAY_S", 0.0)


def first_empty_page_is_the_end(patch: pytest.MonkeyPatch) -> None:
    """A page without records is taken for the end of an open shard."""
    patch.setattr(streams, "EMPTY_READS", 1)


def expired_iterator_starts_again(patch: pytest.MonkeyPatch) -> None:
    """A new iterator begins at the trim horizon, and brings everything once more."""

    def recover(self: TableStream, error: Any, reader: Any) -> None:
        _recover(self, error, reader)
        if reader.iterator is None:
            reader.last = None

    patch.setattr(TableStream, "_recover", recover)


def numbers_not_padded(patch: pytest.MonkeyPatch) -> None:
    """The stream's numbers are compared with the marks in whatever width they have."""
    patch.setattr(streams, "padded", lambda number: number and number.lstrip("0"))


def passed_over_taken_for_waiting(patch: pytest.MonkeyPatch) -> None:
    """A change that no tally will ever contain is taken for one that is still to come."""

    def uncounted(*arguments: Any) -> tuple[list[Streamed], dict[str, Mark]]:
        parent, item, changes, shards, rules, _ = arguments
        return _uncounted(parent, item, changes, replace(shards, parents={}), rules, -math.inf)

    patch.setattr(audit, "uncounted", uncounted)
    patch.setattr(auditor, "uncounted", uncounted)


def given_up_by_age_alone(patch: pytest.MonkeyPatch) -> None:
    """A batch that was given up, and whose shard is finished, is waited for until it is old."""
    patch.setattr(audit.Shards, "ancestors", lambda *_: iter(()))


def overdue_as_of_the_verdict(patch: pytest.MonkeyPatch) -> None:
    """Records grow too old while the children are read; the aggregator has counted them meanwhile."""
    right = Auditor._overdue_before
    patch.setattr(Auditor, "_overdue_before", lambda self, _: right(self, self.now()))


def nothing_is_waited_for_without_a_mapping(patch: pytest.MonkeyPatch) -> None:
    """Where nothing is counted, all changes are passed over, those that came during the reading too."""
    right = Auditor._overdue_before
    patch.setattr(Auditor, "_overdue_before", lambda self, began: right(self, began) if self.overdue_s else math.inf)


def proved_right_by_the_scan_alone(patch: pytest.MonkeyPatch) -> None:
    """A tally that equals its children, as a scan saw them one after the other, is taken for right."""

    def proved_right(self: Auditor, group: Any, parent: ParentKey, _: Any) -> bool:
        tally = group.parents.get(parent[1], {}).get("likeTally", {})
        return bool(self.rules) and tally == {"N": str(group.counts.get((parent[1], "likeTally"), 0))}

    patch.setattr(Auditor, "_proved_right", proved_right)


def proved_right_while_changes_wait(patch: pytest.MonkeyPatch) -> None:
    """A tally that happens to equal its children is taken for right, though more is to come to it."""
    patch.setattr(auditor, "uncounted", lambda *_: ([], {}))


def proved_right_while_children_change(patch: pytest.MonkeyPatch) -> None:
    """Nobody asks whether children came and went while the scan went on."""
    right = auditor.CLOCKS_DIFFER_S
    patch.setattr(auditor, "CLOCKS_DIFFER_S", -math.inf)
    patch.setattr(
        Auditor,
        "_overdue_before",
        lambda self, began: int(began) - max(self.overdue_s, right),
    )


def everything_is_asked_again(patch: pytest.MonkeyPatch) -> None:
    """No parent is proved right by the scan: each costs a Query of all its children."""
    patch.setattr(Auditor, "_proved_right", lambda *_: False)


def transactions_read_in_motion(patch: pytest.MonkeyPatch) -> None:
    """A tally by transactions is compared with children that come and go meanwhile."""
    patch.setattr(audit, "_CLOCKS_DIFFER_S", -math.inf)


def _with_repair(patch: pytest.MonkeyPatch, change: Callable[[dict[str, Any], Verdict], None]) -> None:
    def repair(verdict: Verdict, name: str, now: int) -> dict[str, Any]:
        made = _repair_request(verdict, name, now)
        change(made, verdict)
        words = made["UpdateExpression"] + " " + made["ConditionExpression"]
        for kind in ("ExpressionAttributeNames", "ExpressionAttributeValues"):
            made[kind] = {name: value for name, value in made[kind].items() if name in words}
        return made

    patch.setattr(auditor, "repair", repair)


def _without(made: dict[str, Any], *signs: str) -> None:
    """Take the conditions that hold a sign out of a request."""
    conditions = made["ConditionExpression"].split(" AND ")
    made["ConditionExpression"] = " AND ".join(
        condition for condition in conditions if not any(sign in condition for sign in signs)
    )


def repair_sets(patch: pytest.MonkeyPatch) -> None:
    """The tally is set to what the children were: what was counted since is lost."""

    def change(made: dict[str, Any], verdict: Verdict) -> None:
        setting, _, _ = made["UpdateExpression"].partition(" ADD ")
        made["UpdateExpression"] = f"{setting}, #a0 = :d0"
        made["ExpressionAttributeValues"][":d0"] = {"N": str(verdict.tallies[0].truth)}

    _with_repair(patch, change)


def repair_without_its_guard(patch: pytest.MonkeyPatch) -> None:
    """The drift is taken out whatever has happened since."""
    _with_repair(patch, lambda made, _: made.update(ConditionExpression="attribute_exists(PK)"))


def repair_after_another(patch: pytest.MonkeyPatch) -> None:
    """Nobody asks whether the drift was repaired since."""
    _with_repair(patch, lambda made, _: _without(made, "#repair"))


def repair_of_what_was_counted_since(patch: pytest.MonkeyPatch) -> None:
    """Nobody asks whether what was taken for passed over has been counted since."""
    _with_repair(patch, lambda made, _: _without(made, "#p"))


def repair_of_a_post_made_anew(patch: pytest.MonkeyPatch) -> None:
    """Nobody asks whether it is still the post that was judged."""
    _with_repair(patch, lambda made, _: _without(made, "#created", "#latest", "#a"))


def repair_leaves_the_marks(patch: pytest.MonkeyPatch) -> None:
    """What was passed over is repaired, and counted as well when it is delivered after all."""

    def change(made: dict[str, Any], verdict: Verdict) -> None:
        for number in range(len(verdict.passed_over)):
            made["UpdateExpression"] = made["UpdateExpression"].replace(f", #p{number} = :p{number}", "")

    _with_repair(patch, change)


def repair_by_half(patch: pytest.MonkeyPatch) -> None:
    """The sign is right, and the amount is not."""
    _with_repair(patch, lambda made, _: made["ExpressionAttributeValues"].update({":d0": {"N": "1"}}))


def lost_answer_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    """A repair without an answer is reported as done."""

    def repair(self: Auditor, verdict: Verdict, name: str, report: Any) -> bool:
        with contextlib.suppress(Retryable):
            self.table.update(audit.repair(verdict, name, int(self.now())))
        report.repaired.add(verdict.parent)
        return True

    patch.setattr(Auditor, "_repair", repair)


def lost_answer_repaired_again(patch: pytest.MonkeyPatch) -> None:
    """A repair without an answer is sent again as it is, under another name."""

    def repair(self: Auditor, verdict: Verdict, name: str, report: Any) -> bool:
        done = _repair(self, verdict, name, report)
        if not done:
            request = audit.repair(verdict, name + " again", int(self.now()))
            _without(request, "#repair")
            names, values = request["ExpressionAttributeNames"], request["ExpressionAttributeValues"]
            words = request["UpdateExpression"] + " " + request["ConditionExpression"]
            request["ExpressionAttributeNames"] = {key: value for key, value in names.items() if key in words}
            request["ExpressionAttributeValues"] = {key: value for key, value in values.items() if key in words}
            try:
                self.table.update(request)
            except Retryable:
                return False
        return done

    patch.setattr(Auditor, "_repair", repair)


def deleted_post_reported(patch: pytest.MonkeyPatch) -> None:
    """The drift of a post stays in the report when the post is gone at the next look."""
    right = auditor._add_unjudged

    def add(report: Any, outcome: Any, parent: ParentKey, *, seen: bool) -> None:
        drifting = dict(report.drifting)
        right(report, outcome, parent, seen=seen)
        report.drifting |= drifting

    patch.setattr(auditor, "_add_unjudged", add)


BUGS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    stream_before_the_children,
    children_before_the_parent,
    last_change_for_the_first,
    first_page_only,
    open_shards_only,
    children_of_shards_at_once,
    no_wait_for_the_delay,
    first_empty_page_is_the_end,
    expired_iterator_starts_again,
    numbers_not_padded,
    passed_over_taken_for_waiting,
    given_up_by_age_alone,
    overdue_as_of_the_verdict,
    nothing_is_waited_for_without_a_mapping,
    proved_right_by_the_scan_alone,
    proved_right_while_changes_wait,
    proved_right_while_children_change,
    everything_is_asked_again,
    transactions_read_in_motion,
    repair_sets,
    repair_without_its_guard,
    repair_after_another,
    repair_of_what_was_counted_since,
    repair_of_a_post_made_anew,
    repair_leaves_the_marks,
    repair_by_half,
    lost_answer_taken_for_done,
    lost_answer_repaired_again,
    deleted_post_reported,
)
