"""What an audit has found so far and how far it has come, in little memory, and in a file if it may be interrupted.

One SQLite database holds both. A round of the audit is one transaction, so that the findings and the places where the
scan goes on always belong together, whenever the process ends.
"""

import contextlib
import csv
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from tallyctl.comparison.costs import PRICES
from tallyctl.errors import TallyctlError
from tallystream.auditor import Report
from tallystream.changes import ParentKey

COLUMNS = ("finding", "PK", "SK", "attribute", "tally", "truth", "drift", "repaired", "children", "reason")
"""Of the CSV."""

_TABLES = """
CREATE TABLE plan (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE place (segment INTEGER PRIMARY KEY, pk TEXT, sk TEXT, done INTEGER);
CREATE TABLE total (name TEXT PRIMARY KEY, value REAL);
CREATE TABLE drifting (pk TEXT, sk TEXT, attribute TEXT, tally TEXT, truth INTEGER, size REAL, repaired INTEGER,
    reason TEXT, PRIMARY KEY (pk, sk, attribute));
CREATE TABLE unjudged (pk TEXT, sk TEXT, reason TEXT, PRIMARY KEY (pk, sk));
CREATE TABLE orphaned (pk TEXT, sk TEXT, children INTEGER, PRIMARY KEY (pk, sk));
"""


class Place(NamedTuple):
    """Where one segment of a scan goes on."""

    after: ParentKey | None
    """The key of the last item that is settled; None at the beginning."""
    done: bool


class Drift(NamedTuple):
    """One tally that was found wrong."""

    parent: ParentKey
    attribute: str
    tally: int
    truth: int
    repaired: bool
    reason: str | None
    """Why a repair was tried and did not succeed."""

    @property
    def drift(self) -> int:
        """How much too high the tally is, or was."""
        return self.tally - self.truth


class Findings:
    """The findings of one audit. Close it in the end; a file that is kept is what another run goes on from."""

    def __init__(self, plan: Mapping[str, str], file: Path | None = None) -> None:
        """Begin, or go on with what the file holds.

        Args:
            plan: what is audited and how. A run goes on only with the findings of the same plan.
            file: where to keep it; None for a temporary file that nobody else sees.

        Raises:
            TallyctlError: the file is no such file, is of another plan, or another run has it open.
        """
        self._file = file
        self.resumed = file is not None and file.exists()
        try:
            # An empty name: in memory, and in a temporary file once it is large. https://www.sqlite.org/inmemorydb.html
            self._db = sqlite3.connect("" if file is None else file, isolation_level=None, timeout=0)
        except sqlite3.OperationalError as error:
            raise TallyctlError(f"--resume {file}: {error}") from error
        with contextlib.ExitStack() as undo:
            undo.callback(self._db.close)
            try:
                self._begin(plan)
            except sqlite3.OperationalError as error:
                raise TallyctlError(f"--resume {file}: {error}; does another audit use it?") from error
            except sqlite3.DatabaseError as error:
                raise TallyctlError(f"--resume {file} is not a file of an interrupted audit: name another") from error
            undo.pop_all()

    def _begin(self, plan: Mapping[str, str]) -> None:
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("BEGIN EXCLUSIVE")
        if not self._db.execute("SELECT 1 FROM sqlite_master").fetchone():
            self.resumed = False
            for statement in filter(str.strip, _TABLES.split(";")):
                self._db.execute(statement)
            self._db.executemany("INSERT INTO plan VALUES (?, ?)", plan.items())
        else:
            found = dict(self._db.execute("SELECT name, value FROM plan"))
            for name in {**plan, **found}:
                if plan.get(name) != found.get(name):
                    raise TallyctlError(
                        f"--resume {self._file} is of an audit with {name} {found.get(name)}, not {plan.get(name)}: "
                        "give the same options again, or name another file"
                    )
        self._db.execute("COMMIT")

    def close(self) -> None:
        """Let go of the findings; what is in a file stays there."""
        self._db.close()

    def remove(self) -> None:
        """Remove the file, if there is one: the audit is finished, and nothing is to go on from."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    # What a round brings.

    def place(self, segment: int) -> Place:
        """Return where a segment's scan begins or goes on."""
        row = self._db.execute("SELECT pk, sk, done FROM place WHERE segment = ?", (segment,)).fetchone()
        if row is None:
            return Place(None, done=False)
        return Place(None if row[0] is None else (row[0], row[1]), bool(row[2]))

    def add(self, report: Report, places: Mapping[int, Place], **spent: float) -> None:
        """Add what a round found and spent, and how far it got: all of it or nothing.

        Of a parent that is found twice, as where a partition lies in two segments, the later finding stands.
        """
        drifting = [
            (
                *parent,
                tally.attribute,
                str(tally.tally),  # a number of 38 digits is more than SQLite's integers hold
                tally.truth,
                float(abs(tally.drift)),
                parent in report.repaired,
                report.unrepaired.get(parent),
            )
            for parent, tallies in report.drifting.items()
            for tally in tallies
        ]
        sums: dict[str, float] = {"parents": report.parents, "children": report.children, "judged": report.judged}
        sums |= {"waiting": report.waiting, **spent}
        with self._db:  # commits, or rolls back whatever stops it
            self._db.execute("BEGIN")
            self._db.executemany("INSERT OR REPLACE INTO drifting VALUES (?, ?, ?, ?, ?, ?, ?, ?)", drifting)
            self._db.executemany(
                "INSERT OR REPLACE INTO unjudged VALUES (?, ?, ?)",
                [(*parent, reason) for parent, reason in report.unjudged.items()],
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO orphaned VALUES (?, ?, ?)",
                [(*parent, children) for parent, children in report.orphans.items()],
            )
            self._db.executemany(
                "INSERT INTO total VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value",
                sums.items(),
            )
            if report.waiting_since is not None:
                self._db.execute(
                    "INSERT INTO total VALUES ('waiting_since', ?) "
                    "ON CONFLICT (name) DO UPDATE SET value = min(value, excluded.value)",
                    (report.waiting_since,),
                )
            self._db.executemany(
                "INSERT OR REPLACE INTO place VALUES (?, ?, ?, ?)",
                [(segment, *(place.after or (None, None)), place.done) for segment, place in places.items()],
            )

    # What was found in the end.

    def drifting(self) -> Iterator[Drift]:
        """Yield the tallies that were found wrong, the wrongest first."""
        for pk, sk, attribute, tally, truth, repaired, reason in self._db.execute(
            "SELECT pk, sk, attribute, tally, truth, repaired, reason FROM drifting "
            "ORDER BY size DESC, pk, sk, attribute"
        ):
            yield Drift((pk, sk), attribute, int(tally), truth, bool(repaired), reason)

    def unjudged(self) -> Iterator[tuple[ParentKey, str]]:
        """Yield the parents that could not be judged, and why."""
        for pk, sk, reason in self._db.execute("SELECT pk, sk, reason FROM unjudged ORDER BY pk, sk"):
            yield (pk, sk), reason

    def orphaned(self) -> Iterator[tuple[ParentKey, int]]:
        """Yield the parents that do not exist and have children, and how many."""
        for pk, sk, children in self._db.execute(
            "SELECT pk, sk, children FROM orphaned ORDER BY children DESC, pk, sk"
        ):
            yield (pk, sk), children

    def figures(self, now: float) -> dict[str, Any]:
        """Return the sums; `now` is in epoch seconds.

        `wrong` and `unrepaired` are tallies, `repaired` and `not_judged` parents, `orphans` children.
        """
        totals = dict(self._db.execute("SELECT name, value FROM total"))
        since = totals.get("waiting_since")
        wrong, unrepaired, negative = self._db.execute(
            "SELECT count(*), coalesce(sum(NOT repaired), 0), coalesce(sum(tally LIKE '-%'), 0) FROM drifting"
        ).fetchone()
        units = totals.get("read_units", 0.0)
        return {
            **{name: int(totals.get(name, 0)) for name in ("parents", "children", "judged", "waiting")},
            "waiting_since_s": None if since is None else max(0, round(now - since)),
            "wrong": wrong,
            "unrepaired": unrepaired,
            "negative": negative,
            "repaired": self._number("SELECT count(*) FROM (SELECT DISTINCT pk, sk FROM drifting WHERE repaired)"),
            "not_judged": self._number("SELECT count(*) FROM unjudged"),
            "orphans": self._number("SELECT coalesce(sum(children), 0) FROM orphaned"),
            "read_units": units,
            "usd": round(units * PRICES["read"].usd, 6),
            "seconds": round(totals.get("seconds", 0.0), 1),
        }

    def write_json(self, file: TextIO, figures: Mapping[str, Any]) -> None:
        """Write figures and findings as one JSON object on one line, entry by entry: there may be very many."""
        drifting = (
            {
                "parent": _keys(drift.parent),
                "attribute": drift.attribute,
                "tally": drift.tally,
                "truth": drift.truth,
                "drift": drift.drift,
                "repaired": drift.repaired,
                **({"reason": drift.reason} if drift.reason else {}),
            }
            for drift in self.drifting()
        )
        unjudged = ({"parent": _keys(parent), "reason": reason} for parent, reason in self.unjudged())
        orphaned = ({"parent": _keys(parent), "children": children} for parent, children in self.orphaned())
        lists: dict[str, Iterable[object]] = {"drifting": drifting, "unjudged": unjudged, "orphaned": orphaned}
        file.write(json.dumps(figures)[:-1])
        for name, entries in lists.items():
            file.write(f', "{name}": [')
            file.writelines((", " if number else "") + json.dumps(entry) for number, entry in enumerate(entries))
            file.write("]")
        file.write("}\n")

    def write_csv(self, file: TextIO) -> None:
        """Write one row a wrong tally, unjudged parent and parent that does not exist; see `COLUMNS`."""
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        for drift in self.drifting():
            figures = drift.attribute, drift.tally, drift.truth, drift.drift, "yes" if drift.repaired else "no"
            rows.writerow(("drifting", *drift.parent, *figures, "", drift.reason or ""))
        for parent, reason in self.unjudged():
            rows.writerow(("unjudged", *parent, "", "", "", "", "", "", reason))
        for parent, children in self.orphaned():
            rows.writerow(("orphaned", *parent, "", "", "", "", "", children, "the parent does not exist"))

    def _number(self, query: str) -> int:
        number: int = self._db.execute(query).fetchone()[0]
        return number


def _keys(parent: ParentKey) -> dict[str, str]:
    return {"PK": parent[0], "SK": parent[1]}
