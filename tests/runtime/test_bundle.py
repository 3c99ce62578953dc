"""What `sam build` made is complete, and is what runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tallyctl import bundle
from tallyctl.rie import Function, environment

pytestmark = [pytest.mark.runtime, pytest.mark.usefixtures("built")]
ASK = """
import importlib, json, sys
modules = [sys.argv[1], "tallystream", "aws_lambda_powertools", "jmespath", "typing_extensions"]
print(json.dumps({name: importlib.import_module(name).__file__ for name in modules}))
"""
BUNDLES = pytest.mark.parametrize(
    ("logical_id", "module"),
    [("AggregatorFunction", "aggregator"), ("LikesApiFunction", "likes_api"), ("DriftWatchFunction", "drift_watch")],
)


@BUNDLES
def test_b39_a_handler_and_all_it_imports_come_from_its_bundle(aws, logical_id, module):
    """Nothing is taken from beside it except boto3, which Lambda's runtime has."""
    folder = bundle.folder(logical_id)
    asked = subprocess.run(
        [sys.executable, "-c", ASK, module],
        cwd=folder,
        env=environment(Function(folder, f"{module}.handler", aws.environment)),
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(asked.stdout)
    assert {name: Path(path).is_relative_to(folder) for name, path in found.items()} == dict.fromkeys(found, True)


@BUNDLES
def test_a_bundle_holds_nothing_native_and_no_boto3(logical_id, module):
    """It is for arm64 and another Python, so what is built here must run there; and it stays small."""
    folder = bundle.folder(logical_id)
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert Path(f"{module}.py") in files
    assert [path for path in files if path.suffix in {".so", ".pyd", ".dylib"}] == []
    assert not {"boto3", "botocore", "aws_xray_sdk"} & {path.parts[0] for path in files}
    assert sum((folder / path).stat().st_size for path in files) < 15_000_000
