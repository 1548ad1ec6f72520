"""By which names the server may be called, and from which pages."""

from __future__ import annotations

import pytest

from workflow_bridge.http.names import Names


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1", "127.0.0.9"])
@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("localhost", True),
        ("LocalHost:8080", True),
        ("127.0.0.1:1", True),
        ("[::1]:8080", True),
        ("evil.example", False),
        ("evil.example:8080", False),
        ("localhost.evil.example", False),
        ("localhost:8080.evil.example", False),
        ("evil.example:localhost", False),
        ("127.0.0.1@evil.example", False),
        ("localhost:", False),
        ("", False),
    ],
)
def test_a_loopback_address_answers_to_names_of_this_machine(
    address: str, host: str, allowed: bool
) -> None:
    assert Names(address, (), ()).host_allowed([host]) is allowed


def test_another_address_answers_to_itself_and_to_the_names_it_is_given() -> None:
    names = Names("10.0.0.7", ["bridge.example.com", "other.example.com:8443"], ())
    for host in ("10.0.0.7", "10.0.0.7:8080", "bridge.example.com:1", "other.example.com:8443"):
        assert names.host_allowed([host])
    for host in ("localhost", "127.0.0.1:8080", "other.example.com", "example.com"):
        assert not names.host_allowed([host])
    assert Names("2001:db8::1", (), ()).host_allowed(["[2001:db8::1]:8080"])


def test_a_request_has_one_host() -> None:
    names = Names("127.0.0.1", (), ())
    assert not names.host_allowed([])
    assert not names.host_allowed(["localhost", "evil.example"])
    assert Names("0.0.0.0", ["*"], ()).host_allowed(["whatever"])


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost:3000", True),
        ("https://127.0.0.1", True),
        ("http://[::1]:8080", True),
        ("https://app.example.com", True),
        ("https://app.example.com:444", False),
        ("http://app.example.com", False),
        ("http://evil.example", False),
        ("http://localhost.evil.example", False),
        ("http://localhost@evil.example", False),
        ("http://localhost/path", False),
        ("file://localhost", False),
        ("http://[::1", False),
        ("null", False),
        ("", False),
    ],
)
def test_pages_of_this_machine_and_those_allowed_may_call(origin: str, allowed: bool) -> None:
    names = Names("127.0.0.1", (), ["https://app.example.com"])
    assert names.origins_allowed([origin]) is allowed


def test_what_comes_from_no_page_may_call() -> None:
    assert Names("10.0.0.7", ["*"], ()).origins_allowed([])
    assert not Names("10.0.0.7", ["*"], ()).origins_allowed(["http://localhost"])
    assert not Names("127.0.0.1", (), ()).origins_allowed(
        ["http://localhost", "http://evil.example"]
    )
    assert Names("10.0.0.7", (), ["*"]).origins_allowed(["http://evil.example"])
