"""bridge.yaml, its included files and the environment → `Config`, or everything that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workflow_bridge.adapter import Adapter, Json
from workflow_bridge.config import checks
from workflow_bridge.config.database_urls import check_database
from workflow_bridge.config.document import Document
from workflow_bridge.config.issues import ConfigError, Issue, KeyPath
from workflow_bridge.config.kinds import Kinds
from workflow_bridge.config.models import (
    Backend,
    BackendKeys,
    Config,
    KeepAliveLimits,
    Root,
    Tool,
    ToolKeys,
)
from workflow_bridge.config.source import read_document
from workflow_bridge.config.verdicts import nearest_key

_BACKEND_KEYS = tuple(BackendKeys.model_fields)


def load(path: Path, env: Mapping[str, str], *, kinds: Kinds | None = None) -> Config:
    """Read the configuration. Reads files; asks no network.

    ``kinds`` are the adapters to choose from: the installed ones unless told otherwise.
    Raises `ConfigError` with everything that is wrong.
    """
    loading = _Loading(kinds or Kinds())
    config = loading.run(path, env)
    if config is None or loading.issues:
        raise ConfigError(loading.issues)
    return config


def open_adapters(config: Config, *, kinds: Kinds | None = None) -> dict[str, Adapter]:
    """Make the adapter of every backend, by the backend's name. No I/O."""
    known = kinds or Kinds()
    return {
        name: known.factory(backend.adapter)(backend.settings)
        for name, backend in config.backends.items()
    }


@dataclass(slots=True)
class _Loading:
    """One run of `load`: what was found so far, over all files."""

    kinds: Kinds
    documents: list[Document] = field(default_factory=list)
    backends: dict[str, Backend] = field(default_factory=dict)
    tools: dict[str, Tool] = field(default_factory=dict)
    places: dict[tuple[str, str], str] = field(default_factory=dict)
    keep_alive: KeepAliveLimits | None = None

    @property
    def issues(self) -> list[Issue]:
        return [issue for document in self.documents for issue in document.issues]

    def run(self, path: Path, env: Mapping[str, str]) -> Config | None:
        main = read_document(path, env)
        self.documents.append(main)
        keys = checks.mapping(main, ())
        if keys is None:
            return None
        own = checks.without(keys, ["backends"])
        checks.validated(main, (), Root, own, other_keys=["backends"])
        root, wrong = checks.valid_part(Root, own)
        if "limits" not in wrong:
            self.keep_alive = root.limits.keep_alive
            checks.check_limits(main, self.keep_alive)
        if "server" not in wrong:
            checks.check_server(main, root.server)
        database = check_database(main, root.database)
        self._backends(main, keys)
        for file in checks.included(main, root.include):
            self._include(read_document(file, env))
        if not self.backends and not self.issues:
            main.report(("backends",), "is missing: tools belong to backends")
        if database is None:
            return None
        return Config(
            database=database,
            server=root.server,
            limits=root.limits,
            retention=root.retention,
            delete=root.delete,
            backends=self.backends,
            tools=self.tools,
        )

    def _include(self, document: Document) -> None:
        self.documents.append(document)
        keys = checks.mapping(document, ())
        if keys is None:
            return
        for key in keys:
            if key == "include":
                document.report((key,), "an included file includes no others", at_key=True)
            elif key != "backends":
                message = "an included file holds only `backends`"
                document.report((key,), message, at_key=True)
        if "backends" not in keys:
            document.report(("backends",), "is missing")
        self._backends(document, keys)

    def _backends(self, document: Document, keys: Mapping[str, Json]) -> None:
        if "backends" in keys:
            for name in checks.mapping(document, ("backends",)) or ():
                path: KeyPath = ("backends", name)
                self._name_once(document, path, "backend")
                self._backend(document, path)

    def _backend(self, document: Document, path: KeyPath) -> None:
        keys = checks.mapping(document, path)
        if keys is None:
            return
        others = checks.without(keys, _BACKEND_KEYS)
        backend = checks.validated(document, path, BackendKeys, checks.without(keys, others))
        adapter = None
        if isinstance(kind := keys.get("adapter"), str) and kind:
            adapter = self._adapter(document, path, kind, others, backend)
        elif "adapter" not in keys:
            for key in others:  # which of them are right depends on the adapter; typos do not
                if near := nearest_key(key, _BACKEND_KEYS):
                    message = f"unknown key; did you mean {near!r}?"
                    document.report((*path, key), message, at_key=True)
        if isinstance(tools := keys.get("tools"), dict):
            for tool in tools:
                self._tool(document, (*path, "tools", tool), adapter)

    def _adapter(
        self,
        document: Document,
        path: KeyPath,
        kind: str,
        keys: Mapping[str, Json],
        backend: BackendKeys | None,
    ) -> Adapter | None:
        """Check the adapter's own keys and make it; note the backend if all of it is well."""
        factory = checks.find_factory(document, (*path, "adapter"), self.kinds, kind)
        if factory is None:
            return None
        settings = checks.validated(
            document, path, factory.Settings, keys, other_keys=_BACKEND_KEYS
        )
        if settings is None:
            return None
        if backend is not None:
            name = str(path[-1])
            self.backends[name] = Backend(
                name=name, adapter=kind, calls=backend.calls, settings=settings
            )
        return checks.attempt(document, path, lambda: factory(settings))

    def _tool(self, document: Document, path: KeyPath, adapter: Adapter | None) -> None:
        self._name_once(document, path, "tool")
        keys = checks.mapping(document, path)
        if keys is None:
            return
        for key in ("input_schema", "output_schema"):
            checks.check_schema(document, (*path, key), keys.get(key))
        tool = checks.validated(document, path, ToolKeys, keys)
        if self.keep_alive is not None:
            shown = not self.documents[0].variables_of(("limits", "keep_alive"))
            value = keys.get("keep_alive")
            checks.check_keep_alive(document, path, value, self.keep_alive, shown=shown)
        if adapter is not None:
            checks.check_workflow(document, path, keys, adapter)
        if tool is not None:
            name, backend = str(path[-1]), str(path[1])
            self.tools[name] = Tool.model_construct(name=name, backend=backend, **dict(tool))

    def _name_once(self, document: Document, path: KeyPath, noun: str) -> None:
        """Names of backends and of tools are unique over all files."""
        checks.check_name(document, path, noun)
        name = str(path[-1])
        mark = document.mark(path, at_key=True)
        first = self.places.setdefault((noun, name), here := f"{document.file}:{mark.line}")
        if first != here:
            message = f"there is already a {noun} of this name at {first}"
            document.report(path, message, at_key=True)
