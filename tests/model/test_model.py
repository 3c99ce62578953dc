"""Checks tally.pml with Spin: the algorithm is exact in every reachable state, and each planted bug is found.

Spin makes a C program of the model (`spin -a`), which then searches all states. Nothing is sampled: the search keeps
every state in full, without hashing it to bits and without partial order reduction, so there is nothing to trust but
the model. The model's own comment says what stands for what, and what each switch does.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("tally.pml")
MOST_MEGABYTES = 2000
DEEPEST = 50_000
ONE_FAULT = "-DFAULTS=1"

# Switches, and the fewest states that a search of them must have stored: fewer would mean that the model has shrunk.
# As built the faults are unlimited. So they were, once, for `-DSKIP_ZERO -DNESTED`: 8.3 million states, no error.
EXACT = {
    "as built": ("", 4_000_000),
    "shards replayed from the start, 3 faults": ("-DREPLAY -DFAULTS=3", 4_000_000),
    "cancelled changes skipped, nested redeliveries, 2 faults": ("-DSKIP_ZERO -DNESTED -DFAULTS=2", 1_500_000),
    "no shard id, no parent in both shards": ("-DONE_LANE -DUNSPLIT", 200_000),
    "no fault, so nothing dropped": ("-DNEVER_DROP -DFAULTS=0", 16_000),
}
BUGS = {
    "blind ADD": "-DNO_CONDITION",
    "no shard id": "-DONE_LANE",
    "highest failure reported": "-DREPORT_HIGHEST",
    "tally and mark in two writes": "-DTWO_WRITES",
    "cancelled changes skipped": "-DSKIP_ZERO",
    "cancelled changes skipped across a cut": "-DNO_ZERO_MARK",
}
DENIALS = {
    "no duplicate is ever dropped": "-DNEVER_DROP",
    "no parent's records are dropped in part": "-DNEVER_PART",
    "no batch is cut": "-DNEVER_CUT",
    "no zombie writes": "-DNEVER_ZOMBIE",
    "the end is never reached": "-DNEVER_END",
}


@dataclass(frozen=True)
class Verdict:
    """What a search found."""

    exhaustive: bool
    """All reachable states were searched: no limit of depth or memory was met, and no error ended the search early."""
    errors: int
    violated: str
    """The assertion that does not hold, or "invalid end state" for a deadlock; empty if there was no error."""
    unreached: int
    """How many statements of the model no history came to."""
    states: int
    depth: int
    megabytes: float
    seconds: float

    @property
    def words(self):
        """The verdict, as the table says it."""
        if self.errors:
            return "counterexample"
        return "exact, exhaustive" if self.exhaustive else "no error, search cut short"


def verdict_of(output: str) -> Verdict:
    """Read what the search printed."""

    def figure(pattern: str) -> str:
        found = re.search(pattern, output, re.MULTILINE)
        assert found, f"no {pattern} in the output of Spin's search:\n{output}"
        return found[1]

    errors = int(figure(r"errors: (\d+)"))
    # Without a full search, pan warns ("Search not completed") or says which limit was met.
    cut_short = re.search(r"not completed|max search depth too small|out of memory|reached -DMEMLIM", output)
    full = "Full statespace search" in output and "Partial Order" not in output and "Bit statespace" not in output
    return Verdict(
        exhaustive=full and not cut_short and errors == 0,
        errors=errors,
        violated=figure(r"^pan:1: (.*) \(at depth") if errors else "",
        unreached=sum(map(int, re.findall(r"^\t\((\d+) of \d+ states\)", output, re.MULTILINE))),
        states=int(figure(r"(\d+) states, stored")),
        depth=int(figure(r"depth reached (\d+)")),
        megabytes=float(figure(r"([\d.]+)\ttotal actual memory usage")),
        seconds=float(figure(r"elapsed time ([\d.e+-]+) seconds")),
    )


def require_tools() -> None:
    """Fail if Spin or a C compiler is missing; where CI is not set, on a person's machine, skip instead."""
    missing = [tool for tool in ("spin", "gcc") if shutil.which(tool) is None]
    if missing:
        say = pytest.fail if os.environ.get("CI") else pytest.skip
        say(f"the model needs {' and '.join(missing)}: apt-get install spin gcc")


@pytest.fixture
def search(tmp_path, record_property, request):
    """A function that searches the model under some switches, and notes the verdict for the table at the end."""
    require_tools()

    def run(*command):
        done = subprocess.run(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert done.returncode == 0, f"{command[0]} failed: {done.stdout}"
        return done.stdout

    def search(switches, depth=DEEPEST, optimization="-O2"):
        shutil.copy(MODEL, tmp_path)
        run("spin", *switches.split(), "-a", MODEL.name)
        # SAFETY: assertions and deadlocks are all that is asked. NOREDUCE: see above; it saves no state here anyway.
        # -w, since gcc warns of Spin's own code.
        defines = ("-DSAFETY", "-DNOREDUCE", f"-DMEMLIM={MOST_MEGABYTES}")
        run("gcc", "-w", optimization, *defines, "-o", "pan", "pan.c")
        output = run("./pan", f"-m{depth}")
        verdict = verdict_of(output)
        variant = request.node.callspec.id if hasattr(request.node, "callspec") else request.node.name
        # Plain values: pytest-xdist sends them from its workers to the terminal.
        figures = (verdict.states, verdict.depth, verdict.megabytes, verdict.seconds)
        record_property("model", (variant.removeprefix("test_"), verdict.words, *figures))
        if verdict.errors:
            # Shown by pytest where a test fails, and always with -rP.
            print(run("spin", *switches.split(), "-T", "-t", MODEL.name))  # noqa: T201
        return verdict

    return search


@pytest.mark.parametrize(("switches", "fewest_states"), EXACT.values(), ids=EXACT.keys())
def test_tallies_are_exact_in_every_reachable_end(search, switches, fewest_states):
    """Each end has exact tallies and nothing gets stuck, whatever the layout, the batches, the order, the faults."""
    verdict = search(switches)
    assert verdict.errors == 0, verdict
    assert verdict.exhaustive, verdict
    assert verdict.states > fewest_states
    assert verdict.megabytes < MOST_MEGABYTES
    if not switches:
        assert verdict.unreached == 0, "a part of the model is never reached, so nothing is proved about it"


@pytest.mark.parametrize("switch", BUGS.values(), ids=BUGS.keys())
def test_a_planted_bug_is_found_with_one_fault(search, switch):
    """One fault is enough to make the broken variant end with a wrong tally."""
    verdict = search(f"{switch} {ONE_FAULT} -DSTORY", optimization="-O0")
    assert verdict.errors == 1, verdict
    assert verdict.violated.startswith("assertion violated (tally["), verdict


@pytest.mark.parametrize("switch", DENIALS.values(), ids=DENIALS.keys())
def test_what_the_model_is_about_does_happen(search, switch):
    """A variant which asserts that the event never happens is refuted, so the model is not exact for want of faults."""
    verdict = search(f"{switch} {ONE_FAULT} -DSTORY", optimization="-O0")
    assert verdict.errors == 1, verdict
    assert verdict.violated.startswith("assertion violated"), verdict
    assert "tally[" not in verdict.violated, verdict


def test_a_search_cut_short_is_not_taken_for_a_proof(search):
    """Too small a depth leaves states out, and the verdict says so though no error was found."""
    verdict = search("-DONE_LANE -DUNSPLIT", depth=60)
    assert verdict.errors == 0
    assert not verdict.exhaustive


@pytest.mark.parametrize(("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_missing_tools_are_named(monkeypatch, tmp_path, ci, outcome):
    """Without Spin and gcc the tests say how to install them: a failure in CI, a skip on a person's machine."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="needs spin and gcc: apt-get install spin gcc"):
        require_tools()
