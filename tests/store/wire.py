"""A wire between the store and PostgreSQL that can be tapped, frozen and cut."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from enum import Enum
from pathlib import Path
from types import TracebackType

PORT = 5433


class Loss(Enum):
    """What of a COMMIT is lost, with the connection."""

    REQUEST = "request"
    ANSWER = "answer"
    PATIENCE = "patience"
    """The connection, while the server is still at it."""


class Wire:
    """Listens in the server's folder at port `PORT`; used as a context."""

    def __init__(self, folder: Path) -> None:
        self._target = str(folder / ".s.PGSQL.5432")
        self._path = folder / f".s.PGSQL.{PORT}"
        self._ends: set[socket.socket] = set()
        self._open = threading.Event()
        self._open.set()
        self.said: list[tuple[str, str]] = []
        """Each message of the client: its type, and its text where it is SQL."""
        self.loss: Loss | None = None
        """What to lose of the next COMMIT."""

    def __enter__(self) -> Wire:
        self.plug_in()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.thaw()
        self.unplug()

    def plug_in(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._path.chmod(0o777)
        self._listener.listen()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def unplug(self) -> None:
        """Drop all connections, and refuse new ones."""
        self._path.unlink(missing_ok=True)
        for end in (self._listener, *self._ends):
            _drop(end)

    def freeze(self) -> None:
        """Let nothing through, and drop nothing."""
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            self._ends |= {client, server}
            swallow = threading.Event()
            for run in (self._to_server, self._to_client):
                threading.Thread(target=run, args=(client, server, swallow), daemon=True).start()

    def _to_server(
        self, client: socket.socket, server: socket.socket, swallow: threading.Event
    ) -> None:
        kind = ""  # only the first message has none
        with contextlib.suppress(OSError), client.makefile("rb") as stream:
            while head := stream.read(5 if kind else 4):
                kind = head[:-4].decode() or "startup"
                body = stream.read(struct.unpack("!I", head[-4:])[0] - 4)
                self._open.wait()
                text = body.rstrip(b"\0").decode(errors="replace") if kind in "QP" else ""
                self.said.append((kind, text))
                if (kind, text) == ("Q", "COMMIT") and self.loss is not None:
                    loss, self.loss = self.loss, None
                    if loss is Loss.REQUEST:
                        break
                    swallow.set()
                    server.sendall(head + body)
                    if loss is Loss.PATIENCE:
                        break
                    continue
                server.sendall(head + body)
        _drop(server)
        _drop(client)

    def _to_client(
        self, client: socket.socket, server: socket.socket, swallow: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                self._open.wait()
                if swallow.is_set():
                    break
                client.sendall(data)
        _drop(client)
        _drop(server)


def _drop(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
