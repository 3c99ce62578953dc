"""Audits at random moments of thousands of busy schedules: what they report is exact, and repairs leave no drift."""

import dataclasses
import os

import pytest

from simulation import planted_audits
from simulation.auditing import AUDIT_FEATURES, AuditedWorld, AuditSchedule
from simulation.world import FEATURES, INVOCATION_FAULTS, SDK_FAULTS, failure_of, run, shortest, story

SCHEDULES = 2000
GROUPS = 10
FIRST_SEED = int(os.environ.get("FIRST_SEED", "0"))

SEEDS = range(150)
FORCED = {
    planted_audits.repair_of_a_post_made_anew: ("plant", "mend", "delete_post"),
    planted_audits.deleted_post_reported: ("plant", "mend", "delete_post", "second_auditor"),
}
"""Bugs that take a coincidence, and what makes it likely: all schedules have these features then, and no others."""
RARE = {
    planted_audits.proved_right_while_children_change: range(440, 2000),
}
"""Bugs that take a coincidence, and from which seed on to look for it."""


def play(seed, features=None):
    """Return what goes wrong in the schedule of a seed, or None."""
    schedule = AuditSchedule.from_seed(seed)
    if features:
        schedule = dataclasses.replace(schedule, posts=1, audits=6, features=features)
    return failure_of(schedule, AuditedWorld)


@pytest.mark.parametrize("group", range(GROUPS))
def test_every_audit_is_exact_and_every_repair_leaves_no_drift(group, record_property):
    """Each reported drift is what went wrong, nothing else is reported, and no like is lost or doubled by a repair."""
    seeds = range(FIRST_SEED + group, FIRST_SEED + SCHEDULES, GROUPS)
    for seed in seeds:
        if play(seed):
            short = shortest(AuditSchedule.from_seed(seed), AuditedWorld)
            pytest.fail(f"seed {seed}; the shortest schedule found:\n{story(short, AuditedWorld)}")
    record_property("audited schedules", len(seeds))


def test_a_schedule_with_audits_always_plays_the_same():
    """A seed is a bug report, with two auditors at once too."""
    for seed in range(25):
        schedule = AuditSchedule.from_seed(seed)
        assert run(schedule, AuditedWorld).trace == run(schedule, AuditedWorld).trace


def test_the_audits_meet_everything_that_may_happen():
    """Verdicts, drift of each kind, changes that wait and repairs without an answer occur, or nothing is shown."""
    worlds = [run(AuditSchedule.from_seed(seed), AuditedWorld) for seed in range(150)]
    seen = sum((world.seen for world in worlds), start=type(worlds[0].seen)())
    often = ("verdicts", "audited", "drifts", "waiting", "passed over", "planted", "silent", "repaired")
    assert all(seen[sign] > 100 for sign in (*often, "asked for no children", "unjudged")), seen
    assert seen["repair without an answer"] > 5, seen
    assert seen["orphans"] > 5, seen
    lines = {line for world in worlds for line in world.trace}
    for sign in ("a second auditor comes", "a long while passes", "audit denied"):
        assert sign in lines, sign
    ways = {line.removesuffix(" and repair") for line in lines if line.startswith("audit by")}
    assert ways == {"audit by scan", "audit by posts", "audit by collections"}
    for name in (*SDK_FAULTS, *INVOCATION_FAULTS, *FEATURES, *AUDIT_FEATURES):
        parts = (
            world.schedule.sdk_faults + world.schedule.invocation_faults + world.schedule.features for world in worlds
        )
        assert sum(name in part for part in parts) > 5, name


@pytest.mark.parametrize("bug", planted_audits.BUGS, ids=lambda bug: bug.__name__)
def test_a_bug_planted_into_audit_or_repair_is_found(bug, monkeypatch, record_property):
    """The bug makes a schedule go wrong; after how many is told at the end of the run."""
    seeds, features = RARE.get(bug, SEEDS), FORCED.get(bug)
    assert not play(seeds[0], features)
    bug(monkeypatch)
    found = next((seed for seed in seeds if play(seed, features)), None)
    assert found is not None
    record_property("planted bug found", f"{bug.__name__}: by schedule {found}, the first played was {seeds[0]}")
