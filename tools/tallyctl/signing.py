"""Signed calls of the HTTP API, as the app's back end makes them."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials

from tallyctl.errors import TallyctlError
from tallyctl.stack import Place, Stack, api_url

_TIMEOUT_S = 30
"""As long as API Gateway lets an integration run."""


def path_of(*segments: str) -> str:
    """Return the path with these segments, each percent-encoded once, so that an id may hold any character.

    Dots are encoded where a segment is `.` or `..`: clients and servers would take them for steps in the path.
    """
    return "".join(f"/{quote(part, safe='') if part.strip('.') else part.replace('.', '%2E')}" for part in segments)


def signed_headers(
    method: str, url: str, body: bytes, credentials: Credentials | ReadOnlyCredentials, region: str
) -> dict[str, str]:
    """Return the headers that authorize one request to an API with `AuthorizationType: AWS_IAM`.

    The URL's path is percent-encoded once, as it is sent. As for every service but S3, SigV4 signs it encoded once
    more (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html), which botocore
    does here, and the embedded AWS in its check.
    """
    request = AWSRequest(method, url, data=body, headers={"content-type": "application/json"} if body else {})
    SigV4Auth(credentials, "execute-api", region).add_auth(request)
    return dict(request.headers)


class Api:
    """The HTTP API of one stack. Safe to use from several threads."""

    def __init__(self, place: Place, stack: Stack, *, connections: int = 8) -> None:
        """Open a client for at most `connections` requests at a time; close it with `close`.

        Raises:
            TallyctlError: there are no credentials to sign with.
        """
        credentials = place.session.get_credentials()
        if credentials is None:
            raise TallyctlError("there are no AWS credentials: set AWS_PROFILE, or log in with `aws configure sso`")
        self._credentials = credentials
        self._region = place.region
        self.url = api_url(place, stack)
        limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._client = httpx.Client(timeout=_TIMEOUT_S, limits=limits)

    def call(self, method: str, *segments: str, body: Mapping[str, Any] | None = None) -> httpx.Response:
        """Send one signed request and return the answer, whatever its status.

        Args:
            method: the HTTP method.
            *segments: of the path, such as `"posts", "p1"`; not encoded.
            body: sent as JSON.

        Raises:
            httpx.TransportError: no answer came.
        """
        url = self.url + path_of(*segments)
        data = b"" if body is None else json.dumps(body).encode()
        headers = signed_headers(method, url, data, self._credentials, self._region)
        return self._client.request(method, url, content=data, headers=headers)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
