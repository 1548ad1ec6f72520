"""Addresses to listen on, and the names by which clients may call them. Pure."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final

from workflow_bridge.config.issues import Unfit

ANY: Final = "*"
"""In a list of names: whatever is sent is accepted."""

_NAME = r"(?:[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])"
_HOST = re.compile(rf"{_NAME}(?::[0-9]{{1,5}})?")
_ORIGIN = re.compile(rf"[a-z][a-z0-9+.-]*://{_NAME}(?::[0-9]{{1,5}})?")


def an_address(text: str) -> str:
    """Refuse what is no address: a name may lead anywhere, tomorrow elsewhere than today."""
    if text == "localhost":
        return text
    try:
        ip_address(text)
    except ValueError:
        message = "must be an IP address or localhost"
        raise Unfit(f"{message}, is {text[:80]!r}", blind=message) from None
    return text


def a_host(text: str) -> str:
    """Refuse what no Host header can be."""
    if text != ANY and not _HOST.fullmatch(text):
        message = "must be a host such as bridge.example.com or [::1]:8080, or `*`"
        raise Unfit(f"{message}, is {text[:80]!r}", blind=message)
    return text


def an_origin(text: str) -> str:
    """Refuse what no Origin header can be."""
    if text != ANY and not _ORIGIN.fullmatch(text):
        message = "must be an origin such as https://app.example.com, or `*`"
        raise Unfit(f"{message}, is {text[:80]!r}", blind=message)
    return text


def is_loopback(address: str) -> bool:
    """Whether only programs on this machine can reach an address."""
    return address == "localhost" or ip_address(address).is_loopback


def is_wildcard(address: str) -> bool:
    """Whether it stands for all addresses of this machine."""
    return address != "localhost" and ip_address(address).is_unspecified
