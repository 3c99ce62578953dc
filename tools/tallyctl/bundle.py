"""What the functions run: built by the SAM CLI into `.aws-sam/build`."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import yaml

from tallyctl.emulator import ROOT
from tallyctl.errors import TallyctlError

SAM = ROOT / ".tools" / "sam" / "bin" / "sam"
BUILT = ROOT / ".aws-sam" / "build"
CONFIG = ROOT / "samconfig.toml"
TEMPLATE = BUILT / "template.yaml"


def ensure(say: Callable[[str], None] = lambda _: None) -> None:
    """Build the bundle unless nothing that goes into it has changed. One at a time: a build first empties its folder.

    Raises:
        TallyctlError: the SAM CLI or uv is not installed, or the build failed.
    """
    logs = ROOT / ".local"
    logs.mkdir(exist_ok=True)
    with (logs / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # let go of when the file is closed
        if is_stale():
            say("sam build")
            run_sam(["build"], {}, logs / "build.log")


def folder(logical_id: str) -> Path:
    """Return the built folder of a function; functions with the same sources share one.

    Args:
        logical_id: of the function in the template, such as `AggregatorFunction`.

    Raises:
        TallyctlError: nothing is built.
    """
    if not TEMPLATE.exists():
        raise TallyctlError("nothing is built: run `make build`")
    built = yaml.safe_load(TEMPLATE.read_text())
    return BUILT / str(built["Resources"][logical_id]["Properties"]["CodeUri"])


def is_stale() -> bool:
    """Return whether the bundle is missing, or older than something that goes into it."""
    source = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return older(TEMPLATE, [ROOT / "template.yaml", CONFIG, *source])


def older(built: Path, made_of: list[Path]) -> bool:
    """Return whether a built file is missing, or older than something that it is made of."""
    if not built.exists():
        return True
    built_at = built.stat().st_mtime
    return any(path.stat().st_mtime > built_at for path in made_of)


def run_sam(arguments: list[str], environment: dict[str, str], log: Path) -> None:
    """Run the SAM CLI in the project's folder, with all that it says going to a log file.

    Args:
        arguments: the command and its options.
        environment: variables to add. None of the caller's variables for AWS come along: they may mean a real account.
        log: a file, replaced.

    Raises:
        TallyctlError: the SAM CLI is not installed, or it failed; the message has its last line and names the log.
    """
    if not SAM.exists():
        raise TallyctlError(f"the SAM CLI is not installed ({SAM.relative_to(ROOT)}): run `make setup`")
    log.parent.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])  # for uv
    with log.open("w") as output:
        done = subprocess.run(
            [SAM, *arguments],
            cwd=ROOT,
            env={**kept, "PATH": path, "SAM_CLI_TELEMETRY": "0", **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        raise TallyctlError(f"sam {arguments[0]} failed: {last_line(log.read_text())} (all of it is in {log})")


def last_line(text: str) -> str:
    """Return the last line that says something: of a program that failed, most often why."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
