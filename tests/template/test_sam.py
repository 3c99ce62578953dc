"""What the real SAM CLI says of the template, and how samconfig.toml has it deployed."""

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAM = ROOT / ".tools" / "sam" / "bin" / "sam"
ENVIRONMENTS = ("default", "local", "prod")


@pytest.fixture(scope="module")
def samconfig():
    """The SAM CLI's own file, by environment."""
    return tomllib.loads((ROOT / "samconfig.toml").read_text())


def overrides(section):
    """Parameter overrides of a deploy section as a map."""
    return dict(pair.split("=", 1) for pair in section["parameter_overrides"].split())


def test_sam_finds_nothing_to_complain_about():
    """`sam validate --lint` translates nothing but runs all of cfn-lint's rules, each transform applied."""
    assert SAM.exists(), f"{SAM} is missing: run `make setup`"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ.get("HOME", str(ROOT)),
        "SAM_CLI_TELEMETRY": "0",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    result = subprocess.run(
        [SAM, "validate", "--lint", "--template", ROOT / "template.yaml"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "is a valid SAM Template" in result.stdout + result.stderr


def test_samconfig_has_the_three_environments(samconfig):
    """The default for a person with an account, local for the embedded AWS, prod."""
    assert samconfig.keys() == {"version", *ENVIRONMENTS}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_each_environment_builds_and_deploys_without_further_options(samconfig, environment):
    """python-uv is a beta build method, the bucket is SAM's own, and roles need the capability."""
    assert samconfig[environment]["build"]["parameters"]["beta_features"] is True
    deploy = samconfig[environment]["deploy"]["parameters"]
    assert deploy["resolve_s3"] is True
    assert deploy["capabilities"] == "CAPABILITY_IAM"
    assert deploy["fail_on_empty_changeset"] is False


def test_only_the_embedded_aws_is_changed_without_asking(samconfig):
    """A change set of a real account is shown first."""
    asks = {e: samconfig[e]["deploy"]["parameters"]["confirm_changeset"] for e in ENVIRONMENTS}
    assert asks == {"default": True, "local": False, "prod": True}


def test_each_environment_has_a_stack_of_its_own_and_its_stage(samconfig):
    """No environment can overwrite another one's stack, and only prod is prod."""
    names = [samconfig[e]["global"]["parameters"]["stack_name"] for e in ENVIRONMENTS]
    assert len(set(names)) == 3
    stages = [overrides(samconfig[e]["deploy"]["parameters"])["Stage"] for e in ENVIRONMENTS]
    assert stages == ["dev", "dev", "prod"]


def test_overrides_name_parameters_and_values_of_the_template(samconfig, template):
    """A misspelled override is ignored by SAM, and a wrong value is refused only at deployment."""
    for environment in ENVIRONMENTS:
        for name, value in overrides(samconfig[environment]["deploy"]["parameters"]).items():
            assert value in [str(allowed) for allowed in template["Parameters"][name]["AllowedValues"]]
