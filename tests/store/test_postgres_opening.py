"""Opening PostgreSQL: old and new schemas, and everything that can be wrong with a server."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.store.postgres_server import PostgresServer
from workflow_bridge.store import DatabaseUnusable, SchemaNewer, SchemaOlder, open_store, schema
from workflow_bridge.store.postgres_errors import Trouble
from workflow_bridge.testing.store_contract import added

pytestmark = pytest.mark.anyio
SECRET = "s3cret"


def refusal(url: str) -> str:
    """Return what is said on opening it."""
    with pytest.raises(DatabaseUnusable) as caught:
        open_store(url)
    shown = f"{caught.value} {caught.value.__cause__}"
    assert SECRET not in shown
    return str(caught.value)


# --- the schema -----------------------------------------------------------------------------------


@pytest.mark.case("Q2")
async def test_an_empty_database_is_refused_with_the_command_to_run_unless_told_to_migrate(
    server: PostgresServer,
) -> None:
    url = server.empty()
    assert schema.check(url).revision is None
    with pytest.raises(SchemaOlder, match=r"holds no tables.*run: workflow-bridge db upgrade"):
        open_store(url)
    assert schema.check(url).revision is None
    store = open_store(url, migrate=True)
    await added(store)
    await store.aclose()
    assert schema.check(url).current
    store = open_store(url)
    assert await store.get("local", "t") is not None
    await store.aclose()


def test_upgrade_tells_how_the_database_stood_before(server: PostgresServer) -> None:
    url = server.empty()
    assert schema.upgrade(url).revision is None
    assert schema.upgrade(url).current
    assert schema.check(url) == schema.upgrade(url)
    assert str(server.folder) in schema.check(url).database


@pytest.mark.case("Q2")
def test_an_older_schema_is_refused_with_the_command_to_run(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.database()
    server.execute("UPDATE alembic_version SET version_num = '0000'", url)
    monkeypatch.setattr(schema, "REVISIONS", ("0000", *schema.REVISIONS))
    with pytest.raises(SchemaOlder, match=r"revision 0000.*wants 0001.*workflow-bridge db upgrade"):
        open_store(url)


@pytest.mark.case("Q2")
def test_a_newer_schema_is_named_as_such_and_left_alone(server: PostgresServer) -> None:
    url = server.database()
    server.execute("UPDATE alembic_version SET version_num = '9999'", url)
    for use in (open_store, schema.check, schema.upgrade):
        with pytest.raises(SchemaNewer, match=r"schema.*9999.*newer than this build"):
            use(url)
    assert server.execute("SELECT version_num FROM alembic_version", url) == [("9999",)]


@pytest.mark.parametrize(
    "theirs",
    [
        "CREATE TABLE tasks (x int)",
        "CREATE TABLE alembic_version (version_num text); INSERT INTO alembic_version VALUES ('9')",
    ],
)
def test_another_programs_tables_of_our_names_are_named_and_left_alone(
    server: PostgresServer, theirs: str
) -> None:
    url = server.empty()
    server.execute(theirs, url)
    for use in (open_store, schema.check, schema.upgrade):
        with pytest.raises(DatabaseUnusable, match="another program's tables"):
            use(url)


async def test_tables_of_other_names_and_a_schema_of_our_own_are_fine(
    server: PostgresServer,
) -> None:
    url = server.empty()
    server.execute("CREATE TABLE spatial_ref_sys (x int); CREATE SCHEMA bridge", url)
    schema.upgrade(url)
    own = f"{url}&options=-csearch_path%3Dbridge"
    assert schema.check(own).revision is None
    store = open_store(own, migrate=True)
    await added(store)
    await store.aclose()
    assert server.execute("SELECT count(*) FROM bridge.tasks", url) == [(1,)]
    assert server.execute("SELECT count(*) FROM public.tasks", url) == [(0,)]


# --- the server -----------------------------------------------------------------------------------


@pytest.fixture
def with_password(server: PostgresServer) -> Iterator[str]:
    """A role that needs a password and has no rights."""
    server.execute(f"CREATE ROLE with_password LOGIN PASSWORD '{SECRET}'")
    yield "with_password"
    server.execute("DROP OWNED BY with_password; DROP ROLE with_password")


def test_a_wrong_or_missing_password_is_named_and_never_shown(
    server: PostgresServer, with_password: str
) -> None:
    said = refusal(server.url("postgres", f"{with_password}:{SECRET}2"))
    assert "the database postgres on /tmp/" in said
    assert "refuses this user or password" in said
    assert "put one into the URL or PGPASSWORD" in refusal(server.url("postgres", with_password))


def test_missing_databases_and_users_are_named(server: PostgresServer) -> None:
    said = refusal(server.url("nowhere"))
    assert "the database nowhere on" in said
    assert "there is no such database; create it" in said
    assert 'no such user (role "nobody" does not exist)' in refusal(
        server.url("postgres", "nobody")
    )


def test_a_server_that_is_not_there_is_named_with_host_and_port() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        said = refusal(f"postgresql://u:{SECRET}@127.0.0.1:{port}/bridge")
    assert f"the database bridge on 127.0.0.1:{port} cannot be used" in said
    assert "cannot be reached (Connection refused); check" in said
    said = refusal(f"postgresql://u:{SECRET}@nowhere.invalid/bridge")
    assert "bridge on nowhere.invalid" in said
    assert "host is not known" in said


def test_a_server_that_says_nothing_is_given_up(server: PostgresServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        said = refusal(f"postgresql://u:{SECRET}@127.0.0.1:{port}/bridge?connect_timeout=2")
    assert "cannot be reached (connection timeout expired)" in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("server does not support SSL, but SSL was required", "check sslmode and sslrootcert"),
        ("SSL error: certificate verify failed", "check sslmode and sslrootcert"),
        ('root certificate file "/x" does not exist', "check sslmode and sslrootcert"),
        ('FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "u"', "see its pg_hba.conf"),
        ("FATAL:  sorry, too many clients already", "raise max_connections, or lower the pool"),
        ("FATAL:  the database system is starting up", "try again in a moment"),
        ("FATAL:  unsupported startup parameter: options", "PgBouncer refuses a part of the URL"),
        ("session is read-only", "target_session_attrs=read-write"),
        ("FATAL:  irgendetwas auf Deutsch", "cannot be reached (irgendetwas auf Deutsch)"),
    ],
)
def test_what_keeps_us_from_connecting_is_explained(words: str, reason: str) -> None:
    from psycopg import OperationalError

    where = 'connection failed: connection to server at "h" (10.0.0.2), port 5432 failed: '
    said = str(Trouble(OperationalError(f"{where}{words}\nmore")).unusable("bridge on h:5432"))
    assert said.startswith("the database bridge on h:5432 cannot be used: ")
    assert reason in said
    assert "10.0.0.2" not in said


def test_rights_that_are_missing_are_named(server: PostgresServer, with_password: str) -> None:
    url = server.database()
    own = url.replace("postgres@", f"{with_password}:{SECRET}@")
    server.execute(f"GRANT SELECT ON alembic_version, tasks TO {with_password}", url)
    said = refusal(own)
    assert "its user lacks rights (delete on task_payloads, delete on tasks, insert on" in said
    assert "usage on public.task_events_id_seq" in said
    assert "select on tasks" not in said
    server.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {with_password}", url)
    assert "lacks rights (permission denied for table alembic_version)" in refusal(own)
    name = server.execute("SELECT current_database()", url)[0][0]
    server.execute(f"REVOKE CONNECT ON DATABASE {name} FROM PUBLIC")
    assert "GRANT CONNECT ON DATABASE" in refusal(own)


def test_a_user_who_may_not_make_tables_is_told_so(
    server: PostgresServer, with_password: str
) -> None:
    own = server.empty().replace("postgres@", f"{with_password}:{SECRET}@")
    with pytest.raises(
        DatabaseUnusable, match=r"lacks rights .permission denied for schema public"
    ):
        schema.upgrade(own)


def test_a_database_that_cannot_hold_all_texts_is_refused(server: PostgresServer) -> None:
    server.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    assert "its encoding is LATIN1; create it with ENCODING 'UTF8'" in refusal(server.url("latin"))


def test_a_user_without_a_schema_is_told_so(server: PostgresServer) -> None:
    url = f"{server.empty()}&options=-csearch_path%3Dnowhere"
    assert "none of the schemas in the user's search_path" in refusal(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (f"postgresql://u:{SECRET}@{SECRET}@host/db", "an @ too many"),
        (f"postgresql://u:pass@host:{SECRET}/db", "no URL"),
        (f"postgresql+asyncpg://u:{SECRET}@host/db", "kind postgresql.asyncpg are not supported"),
        (f"postgresql://u:{SECRET}@/db?host=/nowhere&nonsense=1", "its driver objects .*nonsense"),
    ],
)
def test_a_url_that_is_wrong_is_refused_without_repeating_it(url: str, reason: str) -> None:
    for use in (open_store, schema.check, schema.upgrade):
        with pytest.raises(DatabaseUnusable, match=reason) as caught:
            use(url)
        assert SECRET not in str(caught.value)


def test_without_the_driver_the_extra_is_named_and_sqlite_works() -> None:
    code = (
        "import sys\n"
        "sys.modules['psycopg'] = None\n"
        "from workflow_bridge.store import DatabaseUnusable, open_store\n"
        "open_store('sqlite://')\n"
        "try:\n"
        "    open_store('postgresql://h/d')\n"
        "except DatabaseUnusable as exc:\n"
        "    assert 'mcp-workflow-bridge[postgres]' in str(exc)\n"
        "else:\n"
        "    raise SystemExit(1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
