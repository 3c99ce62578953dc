"""The template as CloudFormation sees it: loaded with cfn-lint's decoder, and resolved for given parameters."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cfnlint.decode import cfn_yaml

ROOT = Path(__file__).parents[2]
NO_VALUE = object()


class Resolver:
    """Resolves parameters, conditions and mappings of a template; references to resources stay as they are."""

    def __init__(self, template: dict[str, Any], parameters: dict[str, Any]) -> None:
        unknown = parameters.keys() - template["Parameters"].keys()
        assert not unknown, f"the template has no parameter {unknown}"
        defaults = {name: body["Default"] for name, body in template["Parameters"].items()}
        self.parameters = defaults | parameters
        self.template = template

    def resolve(self, value: Any) -> Any:
        """The value without Fn::If, Fn::FindInMap, Fn::Equals, Fn::Not and references to parameters."""
        if isinstance(value, list):
            return [item for item in map(self.resolve, value) if item is not NO_VALUE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            (function, argument), *_ = value.items()
            if handler := getattr(self, "_" + function.removeprefix("Fn::").lower(), None):
                return handler(argument)
        resolved = {name: self.resolve(item) for name, item in value.items()}
        return {name: item for name, item in resolved.items() if item is not NO_VALUE}

    def _ref(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return NO_VALUE
        return self.parameters.get(name, {"Ref": name})

    def _if(self, argument: list[Any]) -> Any:
        condition, when_true, when_false = argument
        return self.resolve(when_true if self.resolve(self.template["Conditions"][condition]) else when_false)

    def _equals(self, argument: list[Any]) -> bool:
        left, right = map(self.resolve, argument)
        return str(left) == str(right)  # CloudFormation compares what it was given as strings

    def _not(self, argument: list[Any]) -> bool:
        return not self.resolve(argument[0])

    def _findinmap(self, argument: list[Any]) -> Any:
        name, top, second = map(self.resolve, argument)
        return self.template["Mappings"][name][top][second]


def merged(common: Any, own: Any) -> Any:
    """What SAM makes of a value in Globals and the same value in a function: maps merge, the rest is replaced."""
    if isinstance(common, dict) and isinstance(own, dict):
        return {name: merged(common.get(name), own.get(name)) for name in common.keys() | own.keys()}
    return common if own is None else own


@pytest.fixture(scope="session")
def template() -> dict[str, Any]:
    """template.yaml with its functions in their long form."""
    return cfn_yaml.load(str(ROOT / "template.yaml"))


@pytest.fixture(scope="session")
def deployed(template) -> Callable[..., dict[str, Any]]:
    """Resources by logical id, as a deployment with the given parameters (and defaults) would make them."""

    def resources(**parameters: Any) -> dict[str, Any]:
        resolver = Resolver(template, parameters)
        resolved = resolver.resolve({"Globals": template["Globals"]["Function"], "Resources": template["Resources"]})
        conditions = {name: resolver.resolve(condition) for name, condition in template["Conditions"].items()}
        made = {
            name: resource
            for name, resource in resolved["Resources"].items()
            if conditions.get(resource.get("Condition"), True)
        }
        for resource in made.values():
            if resource["Type"] == "AWS::Serverless::Function":
                resource["Properties"] = merged(resolved["Globals"], resource["Properties"])
        return made

    return resources


@pytest.fixture(scope="session")
def dashboard(deployed) -> Callable[..., list[dict[str, Any]]]:
    """The dashboard's widgets, as a deployment with the given parameters would show them."""

    def widgets(**parameters: Any) -> list[dict[str, Any]]:
        text, parts = deployed(**parameters)["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
        for name, part in parts.items():
            text = text.replace(f"${{{name}}}", part["Fn::Sub"] if isinstance(part, dict) else part)
        return json.loads(text)["widgets"]

    return widgets


@pytest.fixture(scope="session")
def values() -> Callable[[Any], Iterator[tuple[str, Any]]]:
    """Walks a document: every key with its value, however deep."""

    def walk(document: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(document, dict):
            for name, item in document.items():
                yield name, item
                yield from walk(item)
        elif isinstance(document, list):
            for item in document:
                yield from walk(item)

    return walk
