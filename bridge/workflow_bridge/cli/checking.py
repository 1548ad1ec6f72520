"""What `check` looks at, part by part. Changes nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import anyio

from workflow_bridge.adapter import Adapter, AdapterError, Problem
from workflow_bridge.cli import composing, options
from workflow_bridge.cli.exits import Stop
from workflow_bridge.config import Config, ConfigError, is_postgres, load


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: in which part, what exactly, and what to do about it."""

    part: str
    """``configuration``, ``database``, ``tasks`` or ``backend NAME``."""
    subject: str
    message: str
    action: str


def of_configuration(path: Path) -> tuple[Config | None, list[Finding]]:
    """Read the configuration; None, and all that is wrong with it, if it cannot be used."""
    try:
        return load(path, os.environ), []
    except ConfigError as exc:
        return None, [
            Finding(
                "configuration",
                f"{issue.file}:{issue.line}:{issue.column}" if issue.line else str(issue.file),
                f"{issue.path}: {issue.message}" if issue.path else issue.message,
                "correct the file; docs/configuration.md has every key",
            )
            for issue in exc.issues
        ]


def of_database(config: Config, path: Path) -> list[Finding]:
    """Look at the database, and at tasks that nobody will look after. Blocks."""
    where = config.database
    try:
        standing = composing.standing(where)
    except Stop as exc:
        return [_refused(exc)]
    if not standing.current and is_postgres(where.url):
        has = f"has schema revision {standing.revision}, this build wants {standing.head}"
        return [
            Finding(
                "database",
                standing.database,
                has if standing.revision else "holds no tables of the bridge yet",
                f"run: workflow-bridge db upgrade{options.config_argument(path)}",
            )
        ]
    if standing.revision is None:
        return _of_absent_file(where.url)
    if not standing.current:
        return []  # SQLite, which whatever opens it brings up to date
    return _of_tasks(config)


def _of_absent_file(url: str) -> list[Finding]:
    folder = Path(url.removeprefix("sqlite:///")).parent
    if url == "sqlite" or folder.is_dir():
        return []
    return [Finding("database", str(folder), "there is no such folder", "make it")]


def _of_tasks(config: Config) -> list[Finding]:
    async def count() -> dict[str, int]:
        try:
            return dict(await store.unfinished())
        finally:
            await store.aclose()

    try:
        store = composing.open_store(config.database)
        with composing.database_errors():
            unfinished = anyio.run(count)
    except Stop as exc:
        return [_refused(exc)]
    return [
        Finding(
            "tasks",
            backend,
            f"{count} {'task' if count == 1 else 'tasks'} not over yet, of a backend that this"
            " configuration does not have",
            "put the backend back, or run a bridge that has it; see: workflow-bridge tasks list",
        )
        for backend, count in sorted(unfinished.items())
        if backend not in config.backends
    ]


def _refused(exc: Stop) -> Finding:
    """Take a sentence apart that says what is the case and, after its last mark, what to do."""
    message, _, action = exc.message.rpartition("; ")
    if not message:
        message, _, action = exc.message.rpartition(": ")
    return Finding("database", "as a whole", message, action)


async def of_backends(config: Config) -> list[Finding]:
    """Ask every engine, all at once."""
    workflows = composing.workflows(config)
    found: list[Finding] = []

    async def ask(name: str, adapter: Adapter) -> None:
        try:
            problems = await adapter.check(workflows[name])
        except AdapterError as exc:
            problems = [Problem(name, str(exc), "Check the network and the credentials.")]
        finally:
            await adapter.aclose()
        found.extend(Finding(f"backend {name}", p.subject, p.message, p.action) for p in problems)

    async with anyio.create_task_group() as group:
        for name, adapter in composing.open_adapters(config).items():
            group.start_soon(ask, name, adapter)
    return sorted(found, key=lambda finding: (finding.part, finding.subject))
