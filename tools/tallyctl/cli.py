"""The command line: what it takes and what it prints. What it does is in the modules beside this one."""

import itertools
import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, NoReturn

import httpx
import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tallyctl import audit as audits
from tallyctl import bundle, compare_command, emulator, local, planning_command
from tallyctl import demo as demos
from tallyctl import invoke as invocations
from tallyctl import redrive as redrives
from tallyctl.errors import TallyctlError
from tallyctl.findings import Findings
from tallyctl.stack import Place, Stack, connect, counting, counting_of, resolve
from tallystream.keys import InvalidId, check_id

TROUBLE = 2
"""The exit code of a command that could not do what it was asked to; 1 is for one that did, and found a fault."""

WAITS_LONG_S = 900
"""A change that waits longer than this is worth a word: the iterator age's alarm goes off after five minutes."""

_FEW_ROWS = 20

TERMINATED = 128 + signal.SIGTERM
"""What a shell reports of a program that was ended by SIGTERM."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # the lines of a docstring's paragraph flow on in the terminal's width
    help="Run, demonstrate and check a Tallystream stack.",
)
local_app = typer.Typer(no_args_is_help=True, help="The app on an embedded AWS on this machine.")
app.add_typer(local_app, name="local")

to_people = Console(stderr=True)

StackName = Annotated[str, typer.Option("--stack-name", help="The stack; names are resolved from its outputs.")]
TableName = Annotated[
    str | None, typer.Option("--table-name", help="Find the stack by its table instead.", show_default=False)
]
EndpointUrl = Annotated[
    str,
    typer.Option(
        "--endpoint-url", envvar="AWS_ENDPOINT_URL", help="Of an emulator; or the word aws, for your account on AWS."
    ),
]
Region = Annotated[str, typer.Option("--region", envvar=["AWS_REGION", "AWS_DEFAULT_REGION"], help="The AWS region.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON object on standard output, everything else on standard error.")
]

DEFAULT_ENDPOINT = f"http://{emulator.LOOPBACK}:{emulator.DEFAULT_PORT}"


def main() -> None:
    """Run the command line. An expected failure is one line on standard error and exit code 2; no traceback."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # so that what was started is stopped
    try:
        app()
    except (TallyctlError, BotoCoreError, ClientError, httpx.HTTPError) as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _fail("interrupted")


def _fail(message: str) -> NoReturn:
    line = " ".join(message.split())
    print(f"tallyctl: {line}", file=sys.stderr)
    if "--json" in sys.argv:
        print(json.dumps({"error": line}))
    sys.exit(TROUBLE)


def print_json(figures: Mapping[str, Any]) -> None:
    """Print the one JSON object of a command."""
    print(json.dumps(figures))


def say(line: str) -> None:
    """Tell people what is going on."""
    to_people.print(f"[dim]{line}[/dim]")


def find(endpoint_url: str, region: str, stack_name: str, table_name: str | None) -> tuple[Place, Stack]:
    """Return the place and the stack that the common options name."""
    place = connect(endpoint_url, region)
    return place, resolve(place, stack_name, table_name)


def _parameters(pairs: list[str]) -> dict[str, str]:
    parameters = dict(pair.partition("=")[::2] for pair in pairs)
    if not all("=" in pair for pair in pairs):
        raise TallyctlError("--parameter takes NAME=VALUE, such as CountingPath=transaction")
    return parameters


def _show_status(state: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(state)
        return
    print(f"running   {'yes' if state['running'] else 'no'}")
    print(f"endpoint  {state['endpoint_url']}")
    for name, value in state["outputs"].items():
        print(f"{name}  {value}")


@local_app.command("up")
def local_up(
    *,
    stack_name: StackName = local.STACK_NAME,
    endpoint_url: EndpointUrl = DEFAULT_ENDPOINT,
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", help="NAME=VALUE of the template; those not given stay.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start the embedded AWS, build the app, deploy it with the SAM CLI and print its outputs. May be repeated."""
    port = local.port_of(endpoint_url)
    local.up(port, stack_name, _parameters(parameter or []), say)
    _show_status(local.status(port, stack_name), as_json=as_json)


@local_app.command("down")
def local_down(
    *,
    endpoint_url: EndpointUrl = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Stop the embedded AWS if tallyctl started it, and everything in it. May be repeated."""
    port = local.port_of(endpoint_url)
    stopped = emulator.stop(port)
    left = not stopped and emulator.listener(port) is not emulator.Listener.NOBODY
    if as_json:
        print_json({"stopped": stopped, "running": left, "endpoint_url": f"http://{emulator.LOOPBACK}:{port}"})
    else:
        print("stopped" if stopped else "not started by tallyctl: left running" if left else "not running")


@local_app.command("status")
def local_status(
    *,
    stack_name: StackName = local.STACK_NAME,
    endpoint_url: EndpointUrl = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Print whether the embedded AWS runs, where, and the outputs of the stack in it."""
    _show_status(local.status(local.port_of(endpoint_url), stack_name), as_json=as_json)


@app.command("build")
def build() -> None:
    """Build what the functions run (sam build), unless nothing that goes into it has changed."""
    bundle.ensure(say)


@app.command("demo")
def demo(  # noqa: PLR0913 - the options of the command line
    *,
    posts: Annotated[int, typer.Option(min=1, help="Posts to create; their popularity follows Zipf's law.")] = 20,
    likes: Annotated[int, typer.Option(min=1, help="Likes and unlikes to send, repeated ones included.")] = 2000,
    users: Annotated[int, typer.Option(min=1, help="Users who like.")] = 1000,
    seed: Annotated[int, typer.Option(help="Of the workload: the same seed sends the same likes.")] = 1,
    concurrency: Annotated[int, typer.Option(min=1, max=256, help="Requests under way at a time.")] = 4,
    settle: Annotated[float, typer.Option(min=0, help="Seconds that tallies may take to become right.")] = 60,
    start: Annotated[
        bool, typer.Option("--start", help="Deploy the local stack first, and stop it afterwards unless it ran before.")
    ] = False,
    stack_name: StackName = local.STACK_NAME,
    table_name: TableName = None,
    endpoint_url: EndpointUrl = DEFAULT_ENDPOINT,
    region: Region = local.REGION,
    as_json: AsJson = False,
) -> None:
    """Have many users like posts over signed HTTP, wait until the tallies settle, and compare them with the likes.

    Exit code 1 if any tally differs. Where the figures come from:

    write units a like: each request is one write, times the units that DynamoDB reports (ReturnConsumedCapacity) for
    such a write on this table; and the UpdateItem calls in the aggregator's log (its field `writes`), times the units
    reported for one of those. Over all requests sent, repeated ones included.

    batches, and records and parents a batch: the aggregator's log, batches without likes left out. The embedded AWS
    ignores the batching window of the stream mapping, so the demo stands in for it there: it switches the mapping off
    for as long as the window is.

    staleness: probes, four a second during the likes. Each is a like of a post that only probes like, timed from its
    answer until GET shows a tally with it.
    """
    plan = demos.Plan(posts, likes, users, seed, concurrency, settle)
    if start:
        port = local.usable_port(local.port_of(endpoint_url))
        with local.running(port, stack_name, say=say) as running:
            result = _demonstrate(running.place, running.stack, plan)
    else:
        result = _demonstrate(*find(endpoint_url, region, stack_name, table_name), plan)
    if as_json:
        print_json(result.figures())
    else:
        _show_demo(result)
    raise typer.Exit(1 if result.wrong else 0)


def _demonstrate(place: Place, stack: Stack, plan: demos.Plan) -> demos.Result:
    columns = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=to_people) as progress:
        return demos.run(place, stack, plan, progress)


def _show_demo(result: demos.Result) -> None:
    console = Console()
    table = Table(title=f"Likes in the table, and what the posts show (counted by {result.path})")
    table.add_column("post")
    for column in ("likes now", "tally", "difference"):
        table.add_column(column, justify="right")
    for post in (*result.posts, result.probe):
        difference = post.tally - post.likes
        shown = f"[red]{difference:+d}[/red]" if difference else "0"
        table.add_row(post.post_id, str(post.likes), str(post.tally), shown)
    console.print(table)
    figures = result.figures()
    summary = Table(show_header=False, box=None)
    for label, value in (
        ("likes and unlikes sent", figures["likes"]),
        ("probes sent", figures["probes"]),
        ("write units a like", figures["write_units_per_like"]),
        ("batches", figures["batches"]),
        ("records a batch", figures["records_per_batch"]),
        ("parents a batch", figures["parents_per_batch"]),
        ("staleness p50 (s)", figures["staleness_p50_s"]),
        ("staleness p99 (s)", figures["staleness_p99_s"]),
        ("seconds", figures["seconds"]),
        ("posts with a wrong tally", figures["wrong"]),
    ):
        summary.add_row(label, "-" if value is None else str(value))
    console.print(summary)


@app.command("invoke")
def invoke(  # noqa: PLR0913 - the options of the command line
    *,
    event: Annotated[Path, typer.Argument(help="A file with one event, such as events/burst.json.")],
    create_posts: Annotated[
        bool, typer.Option(help="First create the parents that the event's likes belong to, where missing.")
    ] = True,
    start: Annotated[
        bool, typer.Option("--start", help="Deploy the local stack first unless it is up; it stays up.")
    ] = False,
    stack_name: StackName = local.STACK_NAME,
    table_name: TableName = None,
    endpoint_url: EndpointUrl = DEFAULT_ENDPOINT,
    region: Region = local.REGION,
    as_json: AsJson = False,
) -> None:
    """Run one event through the built bundle in AWS's Lambda runtime, against a deployed stack, without Docker.

    Prints the answer, and the tallies of the event's parents before and after. Run twice, a batch of the stream
    changes nothing the second time: its sequence numbers are in the marks of its parents.
    """
    sample = invocations.read_event(event)
    if start and not local.status(port := local.port_of(endpoint_url), stack_name)["outputs"]:
        local.up(port, stack_name, say=say)
    bundle.ensure(say)
    place, stack = find(endpoint_url, region, stack_name, table_name)
    done = invocations.invoke(place, stack, sample, create_posts=create_posts)
    to_people.print(done.log, markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print_json(
            {
                "handler": done.handler,
                "answer": done.answer,
                "parents": [
                    {
                        "PK": parent[0],
                        "SK": parent[1],
                        "created": parent in done.created,
                        "before": done.before[parent],
                        "after": done.after[parent],
                    }
                    for parent in done.before
                ],
                "note": done.note,
            }
        )
    else:
        print(json.dumps(done.answer, indent=2, ensure_ascii=False))
        for parent in done.before:
            made = " (created)" if parent in done.created else ""
            print(f"{invocations.shown(parent)}{made}: {_shown(done.before[parent])} -> {_shown(done.after[parent])}")
        if done.note:
            print(done.note)
    raise typer.Exit(1 if done.failed else 0)


def _shown(tallies: Mapping[str, int] | None) -> str:
    if tallies is None:
        return "missing"
    return ", ".join(f"{name} {tally}" for name, tally in tallies.items()) or "no tally"


@app.command("audit")
def audit(  # noqa: PLR0913 - the options of the command line
    *,
    post: Annotated[
        list[str] | None,
        typer.Option("--post", help="Audit this post only; may be repeated. Without it: the whole table."),
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Take the drift out of every tally that has one.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing: say what --repair would do. As without --repair.")
    ] = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Write the findings as CSV to this file, or to standard output if -.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, max=64, help="Requests at a time, and segments of the scan.")
    ] = audits.WORKERS,
    resume: Annotated[
        Path | None, typer.Option(help="Keep what was done in this file until it is finished, and go on from there.")
    ] = None,
    overdue: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Seconds after which a change that still waits to be counted counts as missed. "
            "Without it: as long as the stream mapping may deliver it.",
        ),
    ] = None,
    counters: Annotated[
        str | None, typer.Option(help="The rules in JSON, for a --table-name that no stack has.", show_default=False)
    ] = None,
    stack_name: StackName = local.STACK_NAME,
    table_name: Annotated[
        str | None, typer.Option("--table-name", help="Audit this table, of a stack or not.", show_default=False)
    ] = None,
    endpoint_url: EndpointUrl = DEFAULT_ENDPOINT,
    region: Region = local.REGION,
    as_json: AsJson = False,
) -> None:
    """Compare every tally with its children, exactly and while traffic flows; repair what drifts on request.

    Exit code 0: nothing drifts, or all that did was repaired. 1: something drifts. 2: it could not be told.

    A repair adds minus the drift in one guarded UpdateItem, so likes and other repairs may come at the same time. A
    table that never had tallies is filled by the same --repair, while likes keep coming: it needs a stream, and
    --table-name if no stack has it. What the stream brings after that is left to the aggregator.

    A change that waits in the stream is no drift: the aggregator is still to count it. Some wait in vain, such as likes
    that came before their post. With --overdue 60, those older than a minute count as missed. To repair them is safe in
    any case: what a repair has counted, the aggregator does not count again.

    Reads are strongly consistent. A run that was interrupted may simply be repeated, since what was repaired drifts no
    more; with --resume FILE it goes on where it was. Reading the stream costs little (GetRecords: 2.5 million a month
    are free) and is not in the estimate.
    """
    if as_json and str(csv) == "-":
        raise TallyctlError("--json and --csv - both want standard output: give a file to one of them")
    try:
        posts = [check_id("--post", one) for one in post or []]
    except InvalidId as error:
        raise TallyctlError(str(error)) from error
    if csv is not None and str(csv) != "-" and not csv.parent.is_dir():
        raise TallyctlError(f"--csv {csv}: there is no folder {csv.parent}")
    place = connect(endpoint_url, region)
    counted = counting_of(place, stack_name, table_name, counters)
    order = audits.Order(posts, repair and not dry_run, workers, resume, overdue)
    columns = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=to_people) as bar:
        task = bar.add_task("items", total=None)
        findings = audits.run(
            place, counted, order, say, lambda known, more: bar.update(task, total=known or None, advance=more)
        )
    with closing(findings):
        figures = findings.figures(time.time())
        if as_json:
            findings.write_json(sys.stdout, figures)
        else:
            _show_audit(findings, figures, Console(stderr=str(csv) == "-"), mend=order.mend)
        if csv is not None:
            _write_csv(findings, csv)
        findings.remove()
    raise typer.Exit(1 if figures["unrepaired"] else TROUBLE if figures["not_judged"] else 0)


def _write_csv(findings: Findings, csv: Path) -> None:
    if str(csv) == "-":
        findings.write_csv(sys.stdout)
        return
    try:
        with csv.open("w", encoding="utf-8", newline="") as file:
            findings.write_csv(file)
    except OSError as error:
        raise TallyctlError(f"--csv {csv}: {error.strerror}") from error


def _show_audit(findings: Findings, figures: Mapping[str, Any], console: Console, *, mend: bool) -> None:
    """Show the first findings of each kind, the sums, and what to do next."""
    table = Table(title="Tallies that are not what their children say")
    table.add_column("parent", overflow="fold")
    table.add_column("attribute")
    for column in ("tally", "truth", "drift"):
        table.add_column(column, justify="right")
    table.add_column("repair", overflow="fold")
    for drift in itertools.islice(findings.drifting(), _FEW_ROWS):
        repair = f"added {-drift.drift:+d}" if drift.repaired else drift.reason or f"would add {-drift.drift:+d}"
        shown = (invocations.shown(drift.parent), drift.attribute)
        table.add_row(*map(escape, shown), str(drift.tally), str(drift.truth), f"{drift.drift:+d}", escape(repair))
    if table.row_count:
        console.print(table)
    others = {
        "not judged": (figures["not_judged"], findings.unjudged()),
        "children without a parent": (figures["orphans"], findings.orphaned()),
    }
    for label, (count, entries) in others.items():
        if count:
            console.print(f"{label}: {count}")
        for parent, what in itertools.islice(entries, _FEW_ROWS):
            console.print(f"  {escape(invocations.shown(parent))}: {escape(str(what))}", soft_wrap=True)
    summary = Table(show_header=False, box=None)
    for label, value in (
        ("parents", figures["parents"]),
        ("children", figures["children"]),
        ("judged by the exact procedure", figures["judged"]),
        ("wrong tallies", figures["wrong"]),
        ("negative tallies", figures["negative"]),
        ("repaired parents", figures["repaired"]),
        ("changes still to be counted", figures["waiting"]),
        ("read units", f"{figures['read_units']:,.1f} (US$ {figures['usd']:.6f})"),
        ("seconds", figures["seconds"]),
    ):
        summary.add_row(label, str(value))
    console.print(summary)
    for line in _advice(figures, mend=mend):
        console.print(line, soft_wrap=True)


def _advice(figures: Mapping[str, Any], *, mend: bool) -> Iterator[str]:
    """Yield what to do next, a line each."""
    if figures["wrong"] > _FEW_ROWS:
        yield f"The {_FEW_ROWS} largest of {figures['wrong']} drifts are shown: --csv FILE has them all."
    if figures["unrepaired"]:
        yield "Some repairs did not succeed: run it again." if mend else "To take the drift out, run it with --repair."
    if figures["not_judged"]:
        yield "Some parents could not be judged, for the reasons above; nothing was done to them."
    if figures["orphans"]:
        yield "Children without a parent count nowhere: create the parent and audit it, or delete them."
    if (figures["waiting_since_s"] or 0) > WAITS_LONG_S:
        yield (
            f"The oldest change has been waiting to be counted for {_duration(figures['waiting_since_s'])}: "
            "is the stream mapping on?"
        )
    if not (figures["wrong"] or figures["not_judged"]):
        yield "Every tally is what its children say."


def _duration(seconds: int) -> str:
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


@app.command("redrive")
def redrive(  # noqa: PLR0913 - the options of the command line
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write and delete nothing: say what would be done.")
    ] = False,
    most: Annotated[int | None, typer.Option("--max", min=1, help="Messages at most; without it: all.")] = None,
    drop_trimmed: Annotated[
        bool,
        typer.Option("--drop-trimmed", help="Delete messages whose records the stream has no more: after an audit."),
    ] = False,
    stack_name: StackName = local.STACK_NAME,
    table_name: TableName = None,
    endpoint_url: EndpointUrl = DEFAULT_ENDPOINT,
    region: Region = local.REGION,
    as_json: AsJson = False,
) -> None:
    """Work off the failure queue: count what its messages name, audit and repair those parents, delete the messages.

    The messages hold no records; the stream has them for 24 hours. Each change is counted once, whatever of it was
    counted before, and a message goes only when every parent that it touches is right. One that stays can be redriven
    again at any time.

    Exit code 0: nothing is left. 2: some messages are kept, and the reasons are shown.
    """
    place, stack = find(endpoint_url, region, stack_name, table_name)
    outcome = redrives.run(place, stack, counting(place, stack), redrives.Order(most, dry_run, drop_trimmed))
    figures = outcome.figures()
    if as_json:
        print_json(figures)
    elif not figures["messages"]:
        print("The failure queue is empty.")
    else:
        console = Console()
        for job in outcome.kept:
            console.print(f"kept {job.message}: {escape(job.reason)}", soft_wrap=True, highlight=False)
        would = "would be " if dry_run else ""
        console.print(
            f"{figures['messages']} messages with {figures['parents']} parents: {figures['counted']} changes "
            f"{would}counted, {figures['drifting']} parents drift, {figures['repaired']} repaired; "
            f"{figures['done']} done, {figures['dropped']} dropped, {len(figures['kept'])} kept",
            soft_wrap=True,
            highlight=False,
        )
    raise typer.Exit(TROUBLE if figures["kept"] else 0)


app.command("compare")(compare_command.compare_command)
app.command("plan")(planning_command.plan_command)
