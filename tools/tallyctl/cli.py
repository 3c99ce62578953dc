"""The command line: what it takes and what it prints. What it does is in the modules beside this one."""

import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import httpx
import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tallyctl import bundle, emulator, local
from tallyctl import demo as demos
from tallyctl import invoke as invocations
from tallyctl.errors import TallyctlError
from tallyctl.stack import Place, Stack, connect, resolve

TROUBLE = 2
"""The exit code of a command that could not do what it was asked to; 1 is for one that did, and found a fault."""

TERMINATED = 128 + signal.SIGTERM
"""What a shell reports of a program that was ended by SIGTERM."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
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
