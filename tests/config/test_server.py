"""Who can reach the bridge, and what has to be said before others than this machine can."""

from __future__ import annotations

import pytest

from tests.config.conftest import Load, Problems
from tests.config.test_loading import SMALLEST


def server(keys: str) -> str:
    return f"{SMALLEST}\n    server: {{transport: http, {keys}}}\n"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "localhost", "::1"])
def test_this_machine_may_be_served_without_a_word(read: Load, host: str) -> None:
    made = read(server(f"host: '{host}'")).server
    assert made.loopback
    assert (made.isolation, made.port) == ("auto", 8080)


@pytest.mark.parametrize("host", ["10.0.0.7", "192.0.2.1", "2001:db8::1", "0.0.0.0", "::"])
def test_others_are_served_only_when_isolation_is_chosen(
    read: Load, problems: Problems, host: str
) -> None:
    (issue,) = problems(server(f"host: '{host}', allowed_hosts: [bridge.example.com]"))
    assert issue.path == "server.host"
    assert "isolation: session" in issue.message
    assert "isolation: none" in issue.message
    for word in ("session", "none"):
        chosen = f"host: '{host}', allowed_hosts: [bridge.example.com], isolation: {word}"
        assert not read(server(chosen)).server.loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_all_addresses_together_have_no_name_of_their_own(
    read: Load, problems: Problems, host: str
) -> None:
    (issue,) = problems(server(f"host: '{host}', isolation: none"))
    assert "allowed_hosts" in issue.message
    for name in ("bridge.example.com", "'[::1]:8080'", "'*'"):
        read(server(f"host: '{host}', isolation: none, allowed_hosts: [{name}]"))


def test_a_file_may_leave_the_transport_to_the_environment(read: Load) -> None:
    text = f"{SMALLEST}\n    server: {{transport: '${{T:-stdio}}', port: 9090}}\n"
    assert read(text).server.transport == "stdio"
    assert read(text, {"T": "http"}).server.transport == "http"


def test_an_address_from_the_environment_is_not_shown(problems: Problems) -> None:
    text = f"{SMALLEST}\n    server: {{transport: http, host: '${{H}}'}}\n"
    (issue,) = problems(text, {"H": "bridge.secret"})
    assert issue.message == "must be an IP address or localhost (its value comes from ${H})"


@pytest.mark.parametrize("isolation", ["auto", "session"])
def test_without_sessions_all_have_to_see_all(
    read: Load, problems: Problems, isolation: str
) -> None:
    (issue,) = problems(server(f"sessions: stateless, isolation: {isolation}"))
    assert issue.path == "server.sessions"
    assert "isolation: none" in issue.message
    made = read(server("sessions: stateless, isolation: none")).server
    assert made.sessions == "stateless"
