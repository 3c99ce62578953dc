"""The PostgreSQL rows: four paths that stay exact under faults, and planted bugs that do not."""

import contextlib
import json
import os
import shutil
import signal
import tempfile
import threading
from pathlib import Path

import pytest

from tallyctl.comparison import postgres
from tallyctl.comparison.postgres import COMMIT_UNANSWERED, PATHS, Session, perform, play
from tallyctl.errors import TallyctlError
from tallyctl.workload import Operation, workload

MISSING = postgres.unavailable()
needs_postgres = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

LIKE = Operation(like=True, post=0, user=1)
UNLIKE = Operation(like=False, post=0, user=1)
SMALL = workload(posts=3, users=40, size=300, seed=4)

each_path = pytest.mark.parametrize("step", PATHS.values(), ids=PATHS)


@pytest.fixture(scope="module")
def shared():
    """Give one server to all tests of this module: it takes a second to start."""
    with postgres.serving(connections=60) as server:
        yield server


@pytest.fixture
def server(shared):
    """Give the server with the tables made anew, and a count for post 0."""
    with shared.connect() as connection:
        connection.execute(postgres._TABLES)
        connection.execute("INSERT INTO counts (post) VALUES (0)")
    return shared


@pytest.fixture
def session(server):
    """Give one client."""
    session = Session(server)
    yield session
    session.close()


@pytest.fixture
def other(server):
    """Give another client."""
    session = Session(server)
    yield session
    session.close()


def asked(server, statement):
    """Return the one value that a statement gives, to somebody who looks from outside."""
    with server.connect() as connection:
        return connection.execute(statement).fetchone()[0]


def count(server):
    """Return the count of post 0."""
    return asked(server, "SELECT n FROM counts WHERE post = 0")


def before_its_update(session, do):
    """Have `do()` happen once, when the session has read the count and is about to write it."""
    original, waiting = session.ask, [do]

    def ask(statement, *parameters):
        if statement.startswith("UPDATE") and waiting:
            waiting.pop()()
        return original(statement, *parameters)

    session.ask = ask


# Without PostgreSQL.


@pytest.fixture
def no_postgres(tmp_path, monkeypatch):
    """Hide the installed PostgreSQL; give the folder where its versions would be."""
    monkeypatch.setattr(postgres, "_DEBIAN", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def install(folder):
    """Put what looks like PostgreSQL's programs into a folder."""
    folder.mkdir(parents=True)
    for program in ("initdb", "postgres"):
        (folder / program).touch(mode=0o755)
    return folder


@pytest.mark.usefixtures("no_postgres")
def test_without_postgresql_each_row_says_how_to_get_it():
    """Nothing fails: a comparison without these rows is still one."""
    sentence = postgres.unavailable()
    assert "PostgreSQL is not installed" in sentence
    assert "apt-get install postgresql" in sentence
    assert postgres.run(SMALL) == {name: {"unavailable": sentence} for name in PATHS}


def test_without_psycopg_each_row_says_how_to_get_it(no_postgres, monkeypatch):
    """The server alone is not enough."""
    install(no_postgres / "15" / "bin")
    monkeypatch.setattr(postgres, "psycopg", None)
    assert "make setup" in postgres.unavailable()
    assert postgres.run(SMALL)["queue"] == {"unavailable": postgres.unavailable()}


def test_root_without_another_user_is_told_so(no_postgres, monkeypatch):
    """Neither initdb nor the server runs as root; anybody else needs nobody else."""
    install(no_postgres / "15" / "bin")
    monkeypatch.setattr(postgres, "psycopg", object())
    monkeypatch.setattr(postgres, "_OTHER_USERS", ("no-such-user",))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "does not run as root" in postgres.unavailable()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert postgres.unavailable() is None


def test_the_newest_postgresql_is_taken(no_postgres, monkeypatch):
    """By number, not by letter; one without its server (Debian's client package) does not count."""
    for version in ("9.6", "15"):
        install(no_postgres / version / "bin")
    (no_postgres / "17" / "bin").mkdir(parents=True)
    assert postgres._binaries() == no_postgres / "15" / "bin"
    monkeypatch.setattr(postgres, "_DEBIAN", no_postgres / "none")
    monkeypatch.setenv("PATH", str(install(no_postgres / "elsewhere")))
    assert postgres._binaries() == no_postgres / "elsewhere"


# The server.


@needs_postgres
@pytest.mark.parametrize("end", [None, RuntimeError, KeyboardInterrupt], ids=["well", "error", "interrupt"])
def test_whatever_ends_the_block_the_server_is_gone(end):
    """No process and no folder is left, even with a transaction under way."""
    with contextlib.ExitStack() as after:
        with pytest.raises(end) if end else contextlib.nullcontext(), postgres.serving(connections=10) as server:
            session = after.enter_context(contextlib.closing(Session(server)))
            session.begin()
            session.ask("SELECT 1")
            if end:
                raise end
        assert server.process.returncode is not None
        assert not server.folder.exists()


@needs_postgres
def test_the_server_is_reached_through_its_socket_only_and_is_durable(server):
    """No TCP port that could clash or be found; and what it measures contains the flush of each commit."""
    settings = ("listen_addresses", "fsync", "synchronous_commit", "unix_socket_directories")
    assert [asked(server, f"SHOW {name}") for name in settings] == ["", "on", "on", str(server.folder)]
    assert server.folder.stat().st_mode & 0o077 == 0
    assert server.folder.stat().st_uid == (os.geteuid() or postgres._other_user().pw_uid)


@needs_postgres
def test_a_server_that_does_not_come_up_is_one_clear_line(monkeypatch):
    """A Unix socket's path has 107 bytes at most: the line says so, and what to do; nothing is left."""
    base = Path(tempfile.mkdtemp(prefix="tallyctl-test-"))
    try:
        deep = base / ("x" * 90)
        deep.mkdir()
        for folder in (base, deep):
            folder.chmod(0o755)
        monkeypatch.setattr(tempfile, "tempdir", str(deep))
        with pytest.raises(TallyctlError, match=r"did not come up in .*socket.*TMPDIR"), postgres.serving(10):
            pass
        assert list(deep.iterdir()) == []
    finally:
        shutil.rmtree(base)


@needs_postgres
def test_an_interrupt_ends_the_clients_too(server):
    """Ctrl-C while they run: what is under way ends, what is not begun never does, and nobody has to wait for it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    done = []

    def interrupting(session, post, delta):
        done.append(post)
        if len(done) == 10:
            os.kill(os.getpid(), signal.SIGINT)
        return postgres.update(session, post, delta)

    try:
        with pytest.raises(KeyboardInterrupt):
            play(
                server, interrupting, [Operation(like=True, post=0, user=user) for user in range(5000)], 2, faults=False
            )
    finally:
        signal.signal(signal.SIGINT, before)
    assert 10 <= len(done) < 5000
    assert count(server) == asked(server, "SELECT count(*) FROM likes")


@needs_postgres
def test_one_client_s_failure_is_raised_and_ends_the_others(server):
    """A statement that fails is no figure; the queue's workers and the sampler end as well."""
    threads = threading.active_count()

    def failing(session, post, delta):
        if delta < 0:
            session.ask("SELECT nonsense")
        return postgres.queue(session, post, delta)

    operations = [Operation(like=True, post=0, user=user) for user in range(3000)]
    operations[100:100] = [Operation(like=False, post=0, user=1)]
    with pytest.raises(postgres.psycopg.errors.UndefinedColumn):
        play(server, failing, operations, 2, faults=False)
    assert threading.active_count() == threads
    assert asked(server, "SELECT count(*) FROM likes") < 2900


# One operation.


@needs_postgres
@each_path
def test_a_like_counts_once_and_its_unlike_takes_it_back(server, session, step):
    """Repeated, neither does anything: the like's own row decides."""
    for operation, expected in ((UNLIKE, 0), (LIKE, 1), (LIKE, 1), (UNLIKE, 0), (UNLIKE, 0), (LIKE, 1)):
        assert perform(session, step, operation) == 0
        if step is postgres.queue:
            postgres.add_queued(session, 0)
        assert (count(server), asked(server, "SELECT count(*) FROM likes")) == (expected, expected)


@needs_postgres
@pytest.mark.parametrize(("path", "trips"), [("update", 4), ("for update", 5), ("version", 5), ("queue", 4)])
def test_a_user_waits_for_so_many_round_trips(session, path, trips):
    """BEGIN, the like, the path's own, COMMIT; a like that is there already needs no count."""
    perform(session, PATHS[path], LIKE)
    assert session.round_trips == trips
    perform(session, PATHS[path], LIKE)
    assert session.round_trips == trips + 3


@needs_postgres
@each_path
@pytest.mark.parametrize("fault", [2, 3, 4])
def test_a_client_killed_before_a_statement_has_done_nothing(server, session, step, fault):
    """What it did is rolled back; it comes back, does it again, and it is counted once."""
    seen = []

    def looking(session, post, delta):
        seen.append((asked(server, "SELECT count(*) FROM likes"), count(server)))
        return step(session, post, delta)

    session.fault = fault
    perform(session, looking, LIKE)
    if step is postgres.queue:
        postgres.add_queued(session, 0)
    assert (session.faults, count(server), asked(server, "SELECT count(*) FROM likes")) == (1, 1, 1)
    assert seen == [(0, 0)] * (1 if fault == 2 else 2)


@needs_postgres
@each_path
def test_a_client_killed_before_it_sees_the_answer_to_its_commit_has_done_it_all(server, session, step):
    """The server commits what was sent; the repeat finds the like and leaves the count alone."""
    calls = []

    def counting(*arguments):
        calls.append(arguments)
        return step(*arguments)

    session.fault = COMMIT_UNANSWERED
    perform(session, counting, LIKE)
    if step is postgres.queue:
        postgres.add_queued(session, 0)
    assert (session.faults, len(calls), count(server)) == (1, 1, 1)


@needs_postgres
@pytest.mark.parametrize("fault", [3, 4, COMMIT_UNANSWERED])
def test_a_worker_that_is_killed_adds_each_change_once(server, session, fault):
    """Before its update, before its commit, or after it: the queue and the count never disagree."""
    for user in range(5):
        perform(session, postgres.queue, Operation(like=True, post=0, user=user))
    session.fault = fault
    postgres.add_queued(session, 0)
    assert (session.faults, count(server), asked(server, "SELECT count(*) FROM queue")) == (1, 5, 0)


# Two at once.


@needs_postgres
def test_who_finds_a_newer_version_begins_again(server, session, other):
    """Somebody else's like came between reading and writing: one conflict, and both are counted."""
    before_its_update(session, lambda: perform(other, postgres.version, Operation(like=True, post=0, user=2)))
    assert perform(session, postgres.version, LIKE) == 1
    assert (count(server), asked(server, "SELECT count(*) FROM likes")) == (2, 2)


@needs_postgres
def test_who_reads_for_update_keeps_others_waiting_from_then_on(server, session, other):
    """The lock is held before anything is written: that is its price."""
    other.ask("SET lock_timeout = '50ms'")

    def refused():
        with pytest.raises(postgres.psycopg.errors.LockNotAvailable):
            postgres.update(other, 0, 1)

    before_its_update(session, refused)
    assert perform(session, postgres.for_update, LIKE) == 0
    assert count(server) == 1


@needs_postgres
def test_who_updates_at_once_keeps_nobody_waiting_before(server, session, other):
    """The lock is taken by the write itself, and the server adds to what it finds then."""
    before_its_update(session, lambda: postgres.update(other, 0, 1))
    assert perform(session, postgres.update, LIKE) == 0
    assert count(server) == 2


@needs_postgres
def test_waiting_for_a_row_is_seen(server):
    """On one post, with more clients than may write at once, some sample finds one waiting; alone, none does."""
    operations = [Operation(like=True, post=0, user=user) for user in range(600)]

    def slow(session, post, delta):
        postgres.update(session, post, delta)
        session.ask("SELECT pg_sleep(0.001)")
        return True

    assert play(server, slow, operations, 4, faults=False).lock_waiters > 0.5
    assert play(server, slow, operations[:100], 1, faults=False).lock_waiters == 0


# Many.


@needs_postgres
@each_path
@pytest.mark.parametrize("faults", [False, True], ids=["calm", "faulty"])
def test_each_path_ends_with_the_likes_that_a_set_ends_with(server, step, faults):
    """Whatever the threads and the faults: a user's operations are done in their order, and each count is exact."""
    liked = set()
    for operation in SMALL:
        (liked.add if operation.like else liked.discard)((operation.post, operation.user))
    played = play(server, step, SMALL, 3, faults=faults)
    assert (sum(played.tallies.values()), played.drift) == (len(liked), 0)
    assert (played.client_faults > 10) == faults
    assert (played.worker_faults > 0) == (faults and step is postgres.queue)
    assert len(played.latencies_s) == len(SMALL)


@needs_postgres
def test_the_drift_of_a_count_that_is_committed_after_its_like_is_seen(server):
    """A planted bug: exact as long as nobody dies, and wrong under the same faults that the four paths withstand."""

    def torn(session, post, delta):
        session.commit()
        session.begin()
        return postgres.update(session, post, delta)

    assert play(server, torn, SMALL, 3, faults=False).drift == 0
    assert play(server, torn, SMALL, 3, faults=True).drift > 0


@needs_postgres
def test_the_drift_of_a_worker_that_deletes_after_its_commit_is_seen(server, monkeypatch):
    """A planted bug: killed in between, it adds the same changes again."""

    def torn(session, post):
        while True:
            with contextlib.suppress(postgres.Killed):
                session.begin()
                rows = session.ask("SELECT delta, ctid FROM queue WHERE post = %s", post).fetchall()
                session.ask("UPDATE counts SET n = n + %s WHERE post = %s", sum(delta for delta, _ in rows), post)
                session.commit()
                session.ask("DELETE FROM queue WHERE ctid = ANY(%s::tid[])", [ctid for _, ctid in rows])
                return []

    monkeypatch.setattr(postgres, "add_queued", torn)
    assert play(server, postgres.queue, SMALL, 3, faults=False).drift == 0
    assert play(server, postgres.queue, SMALL, 3, faults=True).drift > 0


@needs_postgres
def test_the_drift_of_a_lost_update_is_seen(server):
    """A planted bug: two read the same count before either has written, and one of the likes is lost."""
    both = threading.Barrier(2, timeout=10)

    def careless(session, post, delta):
        [(n,)] = session.ask("SELECT n FROM counts WHERE post = %s", post).fetchall()
        both.wait()
        session.ask("UPDATE counts SET n = %s WHERE post = %s", n + delta, post)
        return True

    assert (
        play(server, careless, [Operation(like=True, post=0, user=user) for user in range(2)], 2, faults=False).drift
        == 1
    )


# The rows.


@needs_postgres
def test_the_seeded_figures_are_the_same_in_a_second_run_with_other_concurrency():
    """What follows from the operations is kept apart from what this machine did."""
    told = []
    first = postgres.run(SMALL, 2, lambda *what: told.append(what))
    second = postgres.run(SMALL, 5)
    assert {name: row["seeded"] for name, row in first.items()} == {n: row["seeded"] for n, row in second.items()}
    assert list(first) == ["update", "for update", "version", "queue"]
    assert [row["seeded"]["round_trips"] for row in first.values()] == [4, 5, 5, 4]
    for row in first.values():
        assert (row["seeded"]["drift"], row["seeded"]["drift_after_faults"]) == (0, 0)
        assert row["seeded"]["operations"] == len(SMALL)
        assert row["seeded"]["faults"] > 0
        assert 0 < row["measured"]["latency_p50_ms"] <= row["measured"]["latency_p99_ms"]
        assert row["measured"]["server"].startswith("PostgreSQL ")
    assert {name: row["measured"]["staleness_p99_s"] > 0 for name, row in first.items()} == {
        name: name == "queue" for name in PATHS
    }
    assert [done for _, done, _ in told] == list(range(9))
    json.dumps(first)


@needs_postgres
def test_ids_may_be_anything():
    """The workloads of `compare` name posts and users by strings; the figures are the same."""

    class Named:
        def __init__(self, operation):
            self.like, self.post, self.user = operation.like, f"post {operation.post}", f"user {operation.user}"

    operations = SMALL[:60]
    rows, named = postgres.run(operations, 2), postgres.run([Named(operation) for operation in operations], 2)
    assert [row["seeded"] for row in rows.values()] == [row["seeded"] for row in named.values()]


@needs_postgres
@pytest.mark.parametrize(("operations", "concurrency"), [([], 4), (SMALL, 0)], ids=["nothing", "nobody"])
def test_nothing_to_run_is_one_clear_line(operations, concurrency):
    """Rather than a row of figures of nothing."""
    with pytest.raises(TallyctlError, match="at least one operation and one client"):
        postgres.run(operations, concurrency)
