"""The whole app on the embedded AWS: started, built, deployed by the SAM CLI, and stopped again."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tallyctl import bundle, emulator
from tallyctl.errors import TallyctlError
from tallyctl.stack import Place, Stack, api_url, connect, host_and_port, resolve

STACK_NAME = "tallystream-local"
REGION = "us-east-1"

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Local:
    """A running local stack."""

    place: Place
    stack: Stack
    started: bool
    """Whether the emulator was started just now, rather than found."""


def port_of(endpoint_url: str) -> int:
    """Return the port of this machine that an endpoint URL names.

    Raises:
        TallyctlError: the URL names another machine, or the real AWS.
    """
    host, port = host_and_port(endpoint_url)
    if host not in _LOOPBACK_NAMES:
        raise TallyctlError(f"the local stack runs on this machine only, so not at {endpoint_url}")
    return port


def up(
    port: int,
    stack_name: str,
    parameters: dict[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Local:
    """Have the stack deployed on an emulator on the port, with the sources as they are now.

    May be called again at any time: what is there already stays, with its data.

    Args:
        port: on 127.0.0.1.
        stack_name: of the stack to make or update.
        parameters: of the template; those not given keep the values that they have.
        say: told what is being done.

    Raises:
        TallyctlError: see `emulator.start`, `bundle.ensure` and `bundle.run_sam`.
    """
    say(f"embedded AWS on port {port}")
    with ExitStack() as undo:
        started = emulator.start(port)
        if started:  # whatever happens below, an interrupt too, must leave no emulator running
            undo.callback(emulator.stop, port)
        bundle.ensure(say)
        say(f"sam deploy {stack_name}")
        place = connect(f"http://{emulator.LOOPBACK}:{port}", REGION)
        bundle.run_sam(
            deploy_arguments(stack_name, parameters or {}),
            deploy_environment(port),
            emulator.folder(port) / f"deploy-{stack_name}.log",
        )
        found = Local(place, resolve(place, stack_name), started)
        undo.pop_all()
    return found


def deploy_arguments(stack_name: str, parameters: dict[str, str]) -> list[str]:
    """Return how `sam deploy` is called."""
    arguments = ["deploy", "--config-file", str(bundle.CONFIG), "--config-env", "local"]
    arguments += ["--template-file", str(bundle.TEMPLATE), "--stack-name", stack_name]
    if parameters:
        arguments += ["--parameter-overrides", *(f"{name}={_quoted(value)}" for name, value in parameters.items())]
    return arguments


def _quoted(value: str) -> str:
    """Return a parameter's value as the SAM CLI takes it: it splits what it is given at spaces, but for quotes."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if " " in value else value


def deploy_environment(port: int) -> dict[str, str]:
    """Return the variables that make the SAM CLI deploy to the emulator, and to nothing else."""
    return {
        "AWS_ENDPOINT_URL": f"http://{emulator.LOOPBACK}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_REGION": REGION,
    }


def status(port: int, stack_name: str) -> dict[str, object]:
    """Return whether an emulator runs on the port, its URL, and the outputs of the stack if it is deployed.

    `ApiUrl` is the address as this machine reaches it, not the emulator's host name, which few resolvers know.
    """
    endpoint_url = f"http://{emulator.LOOPBACK}:{port}"
    if emulator.listener(port) is not emulator.Listener.AWS:
        return {"running": False, "endpoint_url": endpoint_url, "outputs": {}}
    try:
        place = connect(endpoint_url, REGION)
        stack = resolve(place, stack_name)
        outputs = {**stack.outputs, "ApiUrl": api_url(place, stack)}
    except TallyctlError:
        outputs = {}  # not deployed yet: a state of its own, and no failure
    return {"running": True, "endpoint_url": endpoint_url, "outputs": outputs}


@contextmanager
def running(
    port: int,
    stack_name: str,
    parameters: dict[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Local]:
    """Have the stack deployed for as long as the block runs; stop the emulator afterwards if it was started here."""
    local = up(port, stack_name, parameters, say)
    try:
        yield local
    finally:
        if local.started:
            emulator.stop(port)


def usable_port(wanted: int) -> int:
    """Return the wanted port if it is free or has an emulator, and any free one otherwise."""
    return emulator.free_port() if emulator.listener(wanted) is emulator.Listener.OTHER else wanted
