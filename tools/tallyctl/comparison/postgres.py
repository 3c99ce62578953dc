"""Counts kept in PostgreSQL, in four ways, on a server that lives for as long as the comparison does.

The like and its count change in one transaction, so that neither a client that dies nor one that repeats itself can
make them differ. What differs is how concurrent likes of one post stay out of each other's way:

- `update`: `UPDATE ... SET n = n + 1`, which holds the count's row lock until the commit;
- `for update`: the count is locked and read first, then written, so that the lock is held one round trip longer;
- `version`: nothing is locked while it is read; who then finds a newer version rolls back and does it all again;
- `queue`: the change is queued beside the like, and the one worker of the post's queue adds up what it takes from it.

Each statement is one round trip, BEGIN and COMMIT too, as with most drivers. One statement with a CTE, or a pipeline,
would save round trips in all four alike. Counts are in a table of their own beside the likes: a lock on a count then
stops nobody who reads or changes the post.

The figures of a run are kept apart: `seeded` ones follow from the operations alone, `measured` ones are of this machine
and this run. The server is on the same machine and its disk may answer before anything is durable, so that the
measured ones compare these four paths with each other, and with nothing else.
"""

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, LiteralString, NoReturn, Protocol, TypeAlias

import tenacity

from tallyctl.demo import percentile
from tallyctl.errors import TallyctlError
from tallyctl.workload import Operation

try:
    import psycopg
except ImportError:  # not installed, or without the libpq that its pure Python part needs
    psycopg = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from psycopg.rows import TupleRow

DEFAULT_OPERATIONS = 1_000
"""So many took 6 to 26 s on two cores that others used too: all paths, with and without faults. One hot post takes
longest: its likes wait for each other, so that each waits for every process that is in between to get a core."""

DEFAULT_CONCURRENCY = 4

FAULTY = 0.1
"""The share of the operations that meet a fault, in the run with faults."""

COMMIT_UNANSWERED = 0
"""The fault of a client that dies after it sent COMMIT. Any other fault is the number of the statement of its
transaction (BEGIN is 1) that a client dies before."""

FAULTS = (2, 3, 4, 5, COMMIT_UNANSWERED)

WORKERS = 2
"""Threads that work off the queues. A post's queue has one worker; a worker has many posts' queues."""

_DEBIAN = Path("/usr/lib/postgresql")
_OTHER_USERS = ("postgres", "nobody")
_USER = "tally"
_PORT = 5432
_START_S = 30
_STOP_S = 20
_POLL_S = 0.002
_SAMPLE_S = 0.02
_FAULT_SEED = 5

_TABLES: LiteralString = """
DROP TABLE IF EXISTS likes, counts, queue;
CREATE TABLE likes (post integer, user_id integer, PRIMARY KEY (post, user_id));
CREATE TABLE counts (post integer PRIMARY KEY, n bigint NOT NULL DEFAULT 0, version bigint NOT NULL DEFAULT 0);
CREATE TABLE queue (post integer NOT NULL, delta integer NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE INDEX ON queue (post);
"""


class AnyOperation(Protocol):
    """A user likes a post, or takes the like back; whatever names them, in the workloads of the demo and of compare."""

    @property
    def like(self) -> bool:
        """Whether it is a like."""

    @property
    def post(self) -> Hashable:
        """The post's id."""

    @property
    def user(self) -> Hashable:
        """The user's id."""


# ------------------------------------------------------------------------------------------------------- the server


def unavailable() -> str | None:
    """Return one sentence on what is missing for these rows and how to get it; None if nothing is."""
    if _binaries() is None:
        return "PostgreSQL is not installed: run `apt-get install postgresql`, or put `postgres` on the PATH."
    if psycopg is None:
        return "psycopg 3 is not installed: run `make setup`."
    if os.geteuid() == 0 and _other_user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres or nobody: run this as another user."
    return None


def _binaries() -> Path | None:
    """Return the folder of the newest PostgreSQL: Debian keeps its versions off the PATH; else what is on the PATH."""
    versions = sorted(_DEBIAN.glob("[0-9]*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    on_path = shutil.which("postgres")
    folders = [*versions, *([Path(on_path).parent] if on_path else [])]
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


def _other_user() -> pwd.struct_passwd | None:
    """Return the user that root starts the server as: both initdb and postgres refuse root."""
    users = {entry.pw_name: entry for entry in pwd.getpwall()}
    return next((users[name] for name in _OTHER_USERS if name in users), None)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server, to be reached through the Unix socket in its folder only."""

    folder: Path
    process: subprocess.Popen[bytes]

    def connect(self) -> "psycopg.Connection[TupleRow]":
        """Return a new connection; each statement is one round trip and, outside BEGIN and COMMIT, a transaction."""
        return psycopg.connect(
            host=str(self.folder),
            port=_PORT,
            user=_USER,
            dbname="postgres",
            autocommit=True,  # otherwise psycopg sends a BEGIN of its own
            prepare_threshold=None,  # otherwise it sends a PREPARE of its own, once a statement was seen five times
        )


@contextmanager
def serving(connections: int) -> Iterator[Server]:
    """Have a server of its own for as long as the block runs, in a temporary folder, with fsync on and no TCP.

    After: it is stopped and its folder is gone, whatever ended the block, an interrupt too.

    Args:
        connections: how many it takes at a time.

    Raises:
        TallyctlError: it does not come up; the line says why.
    """
    binaries = _binaries()
    if binaries is None:
        raise TallyctlError(str(unavailable()))
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="tallyctl-")))
        log = undo.enter_context((folder / "log").open("wb"))
        how: dict[str, Any] = {
            "cwd": folder,
            "env": {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
            "stdin": subprocess.DEVNULL,
            "stdout": log,
            "stderr": log,
            "start_new_session": True,  # an interrupt is for tallyctl, which stops the server when it is through
        }
        user = _other_user() if os.geteuid() == 0 else None
        if user is not None:
            os.chown(folder, user.pw_uid, user.pw_gid)
            how |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        _initdb(binaries, folder, how)
        settings = {"listen_addresses": "", "port": _PORT, "fsync": "on", "max_connections": connections}
        arguments = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        process = subprocess.Popen([binaries / "postgres", "-D", folder / "data", "-k", folder, *arguments], **how)
        undo.callback(_stop, process)
        server = Server(folder, process)
        _wait_until_up(server)
        yield server


def _initdb(binaries: Path, folder: Path, how: Mapping[str, Any]) -> None:
    # The folder lets nobody else in, so that whoever reaches the socket in it may be trusted.
    options = ["--username", _USER, "--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-instructions"]
    with (
        subprocess.Popen([binaries / "initdb", "--pgdata", folder / "data", *options], **how) as process,
        ExitStack() as undo,
    ):
        # An interrupt must leave none of its children, which write into the folder that is about to be removed.
        undo.callback(_kill, process)
        failed = process.wait()
        undo.pop_all()
    if failed:
        raise _not_up(folder)


def _wait_until_up(server: Server) -> None:
    def worth_waiting(error: BaseException) -> bool:
        return isinstance(error, psycopg.OperationalError) and server.process.poll() is None

    attempts = tenacity.Retrying(
        retry=tenacity.retry_if_exception(worth_waiting),
        wait=tenacity.wait_fixed(0.05),
        stop=tenacity.stop_after_delay(_START_S),
        reraise=True,
    )
    try:
        attempts(server.connect).close()
    except psycopg.OperationalError as error:
        raise _not_up(server.folder) from error


def _not_up(folder: Path) -> TallyctlError:
    """Return the error that says why; seen were a name too long for a socket, and a folder closed to other users."""
    lines = (folder / "log").read_text(errors="replace").splitlines()
    why = next((line for line in lines if "FATAL" in line or "error:" in line), "it does not say why")
    return TallyctlError(f"PostgreSQL did not come up in {folder.parent}: {why}; TMPDIR=... chooses another place")


def _stop(process: subprocess.Popen[Any]) -> None:
    """End the server and all its processes: SIGINT is its fast shutdown, which does not wait for clients.

    https://www.postgresql.org/docs/current/server-shutdown.html
    """
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        _kill(process)
        process.wait()


def _kill(process: subprocess.Popen[Any]) -> None:
    """End a process that leads a group, and the group."""
    with suppress(ProcessLookupError):  # on an interrupt, Popen waits for a moment itself, and may have seen the end
        os.killpg(process.pid, signal.SIGKILL)


# -------------------------------------------------------------------------------------------------------- a session


class Killed(Exception):
    """The client met its fault and is back with a new connection, without knowing what became of its transaction."""


class Session:
    """One client of the server: it counts its round trips, and dies where a fault is planted."""

    def __init__(self, server: Server) -> None:
        self.round_trips = 0
        self.faults = 0
        """How many it met."""
        self.fault: int | None = None
        """See COMMIT_UNANSWERED. It is met once; one that the transaction is too short for is forgotten at its end."""
        self._server = server
        self._connection = server.connect()
        self._statement = 0

    def begin(self) -> None:
        """Begin a transaction."""
        self._statement = 0
        self.ask("BEGIN")

    def commit(self) -> None:
        """Commit it: it is durable when this returns, and may be if this raises Killed."""
        if self.fault == COMMIT_UNANSWERED:
            # What was sent before the connection ends reaches the server, which commits, and has nobody to tell.
            self._connection.pgconn.send_query(b"COMMIT")
            self._connection.pgconn.flush()
            self._die()
        self.ask("COMMIT")
        self.fault = None

    def ask(self, statement: LiteralString, *parameters: object) -> "psycopg.Cursor[TupleRow]":
        """Send one statement and wait for its answer.

        Raises:
            Killed: the planted fault.
        """
        self._statement += 1
        if self.fault == self._statement:
            self._die()
        self.round_trips += 1
        return self._connection.execute(statement, parameters or None)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _die(self) -> NoReturn:
        # The kernel ends the connection of a killed process; closing it properly would say good-bye to the server.
        with socket.socket(fileno=os.dup(self._connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._connection = self._server.connect()
        self.fault = None
        self.faults += 1
        raise Killed


# ---------------------------------------------------------------------------------------------------- the four paths

Step: TypeAlias = Callable[[Session, int, int], bool]
"""What a path does to a post's count (session, post, delta) in the transaction that changed a like.

False: somebody else was faster, so that the transaction must be rolled back and done again.
"""


def update(session: Session, post: int, delta: int) -> bool:
    """Let the server add: it locks the row, and reads it when it has the lock."""
    session.ask("UPDATE counts SET n = n + %s WHERE post = %s", delta, post)
    return True


def for_update(session: Session, post: int, delta: int) -> bool:
    """Lock the row while reading it, so that what is written is still based on what it holds."""
    [(n,)] = session.ask("SELECT n FROM counts WHERE post = %s FOR UPDATE", post).fetchall()
    session.ask("UPDATE counts SET n = %s WHERE post = %s", n + delta, post)
    return True


def version(session: Session, post: int, delta: int) -> bool:
    """Write only if the row still has the version that was read."""
    [(n, seen)] = session.ask("SELECT n, version FROM counts WHERE post = %s", post).fetchall()
    written = session.ask(
        "UPDATE counts SET n = %s, version = %s WHERE post = %s AND version = %s", n + delta, seen + 1, post, seen
    )
    return written.rowcount == 1


def queue(session: Session, post: int, delta: int) -> bool:
    """Leave it to the post's worker: see `add_queued`."""
    session.ask("INSERT INTO queue (post, delta) VALUES (%s, %s)", post, delta)
    return True


PATHS: Mapping[str, Step] = MappingProxyType(
    {"update": update, "for update": for_update, "version": version, "queue": queue}
)


def perform(session: Session, step: Step, operation: Operation) -> int:
    """Do an operation, again and again until it is committed and its answer was seen; return how often it conflicted.

    After: the like is there (or gone), and the count (or the queue) has changed if and only if the like has.
    """
    conflicts = 0
    while True:
        try:
            session.begin()
            if not _change(session, operation) or step(session, operation.post, 1 if operation.like else -1):
                session.commit()
                return conflicts
            session.ask("ROLLBACK")
            conflicts += 1
        except Killed:
            continue  # the like's own row says whether it was done


def _change(session: Session, operation: Operation) -> bool:
    """Insert or delete the like; return whether that changed anything."""
    key = (operation.post, operation.user)
    if operation.like:
        return session.ask("INSERT INTO likes VALUES (%s, %s) ON CONFLICT DO NOTHING", *key).rowcount == 1
    return session.ask("DELETE FROM likes WHERE post = %s AND user_id = %s", *key).rowcount == 1


def add_queued(session: Session, post: int) -> list[float]:
    """Add what is in a post's queue to its count; return when each change was queued, in epoch seconds.

    Deleted and added in one transaction, each change is added exactly once. It deletes what it sees rather than what is
    below some number: numbers are given out before the commit, so that a smaller one can still come to light.
    """
    while True:
        try:
            session.begin()
            taken = session.ask(
                "DELETE FROM queue WHERE post = %s RETURNING delta, extract(epoch FROM at)::float8", post
            ).fetchall()
            session.ask("UPDATE counts SET n = n + %s WHERE post = %s", sum(delta for delta, _ in taken), post)
            session.commit()
            return [queued_at for _, queued_at in taken]
        except Killed:
            continue  # the queue says what is still to be added


# ----------------------------------------------------------------------------------------------------------- running


@dataclass(slots=True)
class Played:
    """What one run of a path did, and what it left behind."""

    seconds: float
    """Until the last client had its last answer."""
    latencies_s: list[float]
    """How long the user waited for each operation, conflicts included."""
    round_trips: list[int]
    """Of each operation, those of its conflicts left out."""
    all_round_trips: int
    conflicts: int
    client_faults: int
    worker_faults: int
    staleness_s: list[float]
    """Of each change that went through the queue: from there into the count."""
    lock_waiters: float | None
    """How many clients waited for a row lock, on average over the samples; None without a sample."""
    tallies: dict[int, int]
    """By the posts' numbers, in the order in which the operations name them."""
    drift: int
    """Sum over the posts of |count - likes|."""


@dataclass(slots=True)
class _Client:
    """One client's operations, and what it saw."""

    session: Session
    operations: list[tuple[Operation, int | None]] = field(default_factory=list)
    """Each with the fault that it is to meet, if any."""
    latencies_s: list[float] = field(default_factory=list)
    round_trips: list[int] = field(default_factory=list)
    conflicts: int = 0

    def play(self, step: Step, stop: threading.Event) -> None:
        for operation, fault in self.operations:
            if stop.is_set():
                return
            self.session.fault = fault
            before, began = self.session.round_trips, time.perf_counter()
            conflicts = perform(self.session, step, operation)
            self.latencies_s.append(time.perf_counter() - began)
            # A try that conflicts takes as many round trips as the one that succeeds: ROLLBACK instead of COMMIT.
            self.round_trips.append((self.session.round_trips - before) // (1 + conflicts))
            self.conflicts += conflicts


def play(server: Server, step: Step, operations: Sequence[AnyOperation], concurrency: int, *, faults: bool) -> Played:
    """Run the operations through one path, on tables that it makes anew, and look at what is left.

    A user's operations are sent one after the other, by one client, so that how they end does not depend on luck.

    Args:
        server: to run on; nothing else may use it.
        step: the path.
        operations: in their order.
        concurrency: how many clients there are, each with a connection and a thread of its own.
        faults: whether clients (and the queue's workers) die: at seeded statements of seeded operations.
    """
    rng = random.Random(_FAULT_SEED)
    planted = [rng.choice(FAULTS) if faults and rng.random() < FAULTY else None for _ in operations]
    with ExitStack() as undo:
        looking = undo.enter_context(server.connect())
        looking.execute(_TABLES)
        posts, users = _numbers(o.post for o in operations), _numbers(o.user for o in operations)
        looking.execute("INSERT INTO counts (post) SELECT generate_series(0, %s)", [len(posts) - 1])
        clients = [_Client(undo.enter_context(closing(Session(server)))) for _ in range(concurrency)]
        for operation, fault in zip(operations, planted, strict=True):
            numbered = Operation(operation.like, posts[operation.post], users[operation.user])
            clients[numbered.user % concurrency].operations.append((numbered, fault))
        workers = [undo.enter_context(closing(Session(server))) for _ in range(WORKERS if step is queue else 0)]
        with ExitStack() as working:
            staleness_s = working.enter_context(_working(workers, faults=faults))
            samples = working.enter_context(_sampling_locks(server))
            pool = working.enter_context(ThreadPoolExecutor(concurrency))
            stop = threading.Event()
            working.callback(stop.set)  # an interrupt, or one client's failure, is the end for all of them
            began = time.perf_counter()
            for done in [pool.submit(client.play, step, stop) for client in clients]:
                done.result()
            seconds = time.perf_counter() - began
        tallies: dict[int, int] = dict(looking.execute("SELECT post, n FROM counts").fetchall())
        likes: dict[int, int] = dict(looking.execute("SELECT post, count(*) FROM likes GROUP BY post").fetchall())
    return Played(
        seconds=seconds,
        latencies_s=[latency for client in clients for latency in client.latencies_s],
        round_trips=[round_trips for client in clients for round_trips in client.round_trips],
        all_round_trips=sum(client.session.round_trips for client in clients),
        conflicts=sum(client.conflicts for client in clients),
        client_faults=sum(client.session.faults for client in clients),
        worker_faults=sum(worker.faults for worker in workers),
        staleness_s=staleness_s,
        lock_waiters=round(sum(samples) / len(samples), 2) if samples else None,
        tallies=tallies,
        drift=sum(abs(tallies.get(post, 0) - likes.get(post, 0)) for post in tallies.keys() | likes.keys()),
    )


def _numbers(ids: Iterable[Hashable]) -> dict[Hashable, int]:
    """Number the ids from 0 in the order in which they are first met."""
    return {found: number for number, found in enumerate(dict.fromkeys(ids))}


@contextmanager
def _working(workers: Sequence[Session], *, faults: bool) -> Iterator[list[float]]:
    """Work off the queues while the block runs, and then until they are empty; give the staleness of each change."""
    staleness_s: list[float] = []
    ended = threading.Event()

    def work(number: int, session: Session) -> None:
        rng = random.Random(number)
        while True:
            last = ended.is_set()  # before looking: what is queued after the look is still to be worked off
            posts = session.ask(
                "SELECT DISTINCT post FROM queue WHERE mod(post, %s) = %s", len(workers), number
            ).fetchall()
            for (post,) in posts:
                session.fault = rng.choice(FAULTS) if faults and rng.random() < FAULTY else None
                queued_at = add_queued(session, post)
                now = time.time()
                staleness_s.extend(now - since for since in queued_at)
            if not posts and last:
                return
            if not posts:
                ended.wait(_POLL_S)

    with ThreadPoolExecutor(WORKERS) as pool:
        running = [pool.submit(work, number, session) for number, session in enumerate(workers)]
        try:
            yield staleness_s
        finally:
            ended.set()
        for worker in running:
            worker.result()


@contextmanager
def _sampling_locks(server: Server) -> Iterator[list[int]]:
    """Give, for as long as the block runs, samples of how many sessions wait for a row's lock.

    PostgreSQL keeps no sum of lock waits. A waiter for a row waits for the transaction that holds it, or for its turn:
    https://www.postgresql.org/docs/current/monitoring-stats.html
    """
    samples: list[int] = []
    ended = threading.Event()

    def sample() -> None:
        with server.connect() as looking:
            while not ended.wait(_SAMPLE_S):
                waiting = looking.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event IN ('transactionid', 'tuple')"
                ).fetchall()
                samples.append(waiting[0][0])

    with ThreadPoolExecutor(1) as pool:
        sampler = pool.submit(sample)
        try:
            yield samples
        finally:
            ended.set()
        sampler.result()


def run(
    operations: Sequence[AnyOperation],
    concurrency: int = DEFAULT_CONCURRENCY,
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None,
) -> dict[str, dict[str, Any]]:
    """Run the operations through the four paths, each without and with faults; return a row a path, by its name.

    A row is `{"seeded": {...}, "measured": {...}}`, for JSON; or `{"unavailable": sentence}`, where nothing can be run.
    `seeded` is the same for the same operations, whatever the concurrency. Its `round_trips` are those of an operation
    that changes a count and meets no conflict; with conflicts and repeated likes in it, the mean is in `measured`.
    `faults` counts the clients that died; `worker_faults`, the queue's workers. `lock_waiters` is how many clients
    waited for a row's lock, on average. Latencies are what one operation's user waits for, in milliseconds.

    Args:
        operations: in their order; DEFAULT_OPERATIONS says how long they take.
        concurrency: how many clients send them, from 1.
        progress: told what is being run, how many runs are done, and of how many.

    Raises:
        TallyctlError: the server does not come up, or there is nothing to run, or nobody to run it.
    """
    if (sentence := unavailable()) is not None:
        return {name: {"unavailable": sentence} for name in PATHS}
    if not operations or concurrency < 1:
        raise TallyctlError("the PostgreSQL rows need at least one operation and one client")
    rows = {}
    total = 2 * len(PATHS)
    with serving(connections=2 * concurrency + WORKERS + 20) as server:  # one that was killed may linger for a moment
        for number, (name, step) in enumerate(PATHS.items()):
            progress(name, 2 * number, total)
            calm = play(server, step, operations, concurrency, faults=False)
            progress(f"{name}, with faults", 2 * number + 1, total)
            rows[name] = _row(calm, play(server, step, operations, concurrency, faults=True), concurrency)
        with server.connect() as looking:
            major, minor = divmod(looking.info.server_version, 10_000)
    progress("PostgreSQL", total, total)
    for row in rows.values():
        row["measured"]["server"] = f"PostgreSQL {major}.{minor}"
    return rows


def _row(calm: Played, faulty: Played, concurrency: int) -> dict[str, Any]:
    operations = len(calm.latencies_s)
    return {
        "seeded": {
            "operations": operations,
            "round_trips": max(calm.round_trips),
            "likes": sum(calm.tallies.values()),
            "hottest_post_likes": max(calm.tallies.values()),
            "drift": calm.drift,
            "faults": faulty.client_faults,
            "drift_after_faults": faulty.drift,
        },
        "measured": {
            "concurrency": concurrency,
            "seconds": round(calm.seconds, 2),
            "operations_per_second": round(operations / calm.seconds),
            "latency_p50_ms": percentile([1000 * latency for latency in calm.latencies_s], 50),
            "latency_p99_ms": percentile([1000 * latency for latency in calm.latencies_s], 99),
            "round_trips_per_operation": round(calm.all_round_trips / operations, 2),
            "conflicts": calm.conflicts,
            "worker_faults": faulty.worker_faults,
            "lock_waiters": calm.lock_waiters,
            # Where the count is written with the like, it is never older than the answer.
            "staleness_p50_s": percentile(calm.staleness_s, 50) if calm.staleness_s else 0.0,
            "staleness_p99_s": percentile(calm.staleness_s, 99) if calm.staleness_s else 0.0,
        },
    }
