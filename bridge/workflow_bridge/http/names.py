"""Host and Origin: by which names, and from which web pages, the server may be called.

A page that has its own name resolve to our address (DNS rebinding) still sends its own name. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

ANY: Final = "*"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


class Names:
    """The names a server answers to.

    One that listens on a loopback address answers to the names of that, and to pages of this
    machine; one that listens on another address answers to it. The rest is ``allowed``.
    """

    def __init__(
        self, host: str, allowed_hosts: Iterable[str], allowed_origins: Iterable[str]
    ) -> None:
        self._local = host == "localhost" or ip_address(host).is_loopback
        own = (*_LOOPBACK, _bracketed(host)) if self._local else (_bracketed(host),)
        self._hosts = {name.lower() for name in (*own, *allowed_hosts)}
        self._origins = {origin.lower() for origin in allowed_origins}

    def host_allowed(self, values: Sequence[str]) -> bool:
        """Whether a request with these Host headers means this server."""
        if ANY in self._hosts:
            return True
        if len(values) != 1:
            return False
        host = values[0].lower()
        return host in self._hosts or _without_port(host) in self._hosts

    def origins_allowed(self, values: Sequence[str]) -> bool:
        """Whether a request with these Origin headers may be served; none is no web page's."""
        return ANY in self._origins or all(self._origin_allowed(value) for value in values)

    def _origin_allowed(self, value: str) -> bool:
        origin = value.lower()
        if origin in self._origins:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        page = parts.scheme in ("http", "https") and f"{parts.scheme}://{parts.netloc}" == origin
        return self._local and page and _without_port(parts.netloc) in _LOOPBACK


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
