"""Signatures of the HTTP API's requests."""

import hashlib
import hmac
from urllib.parse import quote

import pytest
from botocore.credentials import Credentials

from tallyctl.signing import path_of, signed_headers

CREDENTIALS = Credentials("AKIDEXAMPLE", "secret")
URL = "http://127.0.0.1:4566/_aws/execute-api/a1/$default"


@pytest.mark.parametrize(
    ("identifier", "encoded"),
    [
        ("u1", "u1"),
        ("a b", "a%20b"),
        ("a/b", "a%2Fb"),
        ("a?b#c", "a%3Fb%23c"),
        ("100%", "100%25"),
        ("100%25", "100%2525"),
        ("auth0|1:2", "auth0%7C1%3A2"),
        ("😀", "%F0%9F%98%80"),
        ("..", "%2E%2E"),
        ("a.b", "a.b"),
    ],
)
def test_an_id_is_encoded_once_in_the_path(identifier, encoded):
    """Whatever it holds, it stays one segment, and what the server decodes is the id."""
    assert path_of("posts", identifier) == f"/posts/{encoded}"


def test_a_path_is_signed_encoded_once_more():
    """The signature is the one that AWS's rules for SigV4 give for the path encoded twice."""
    url = URL + path_of("posts", "p1", "likes", "a b")
    headers = signed_headers("PUT", url, b"", CREDENTIALS, "us-east-1")
    stamp, scope = headers["X-Amz-Date"], f"{headers['X-Amz-Date'][:8]}/us-east-1/execute-api/aws4_request"
    path = quote("/_aws/execute-api/a1/$default/posts/p1/likes/a%20b", safe="/")
    canonical = (
        f"PUT\n{path}\n\nhost:127.0.0.1:4566\nx-amz-date:{stamp}\n\nhost;x-amz-date\n{hashlib.sha256(b'').hexdigest()}"
    )
    to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = b"AWS4secret"
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    assert headers["Authorization"].endswith(hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest())


def test_the_body_is_part_of_the_signature():
    """Two bodies, two signatures, at the same moment."""
    first, second = (signed_headers("POST", URL, body, CREDENTIALS, "us-east-1") for body in (b"{}", b"[]"))
    assert first["X-Amz-Date"][:8] == second["X-Amz-Date"][:8]
    assert first["Authorization"] != second["Authorization"]


def test_temporary_credentials_send_their_token():
    """A role's session is refused without it."""
    headers = signed_headers("GET", URL, b"", Credentials("ASIA", "secret", "token"), "us-east-1")
    assert headers["X-Amz-Security-Token"] == "token"
