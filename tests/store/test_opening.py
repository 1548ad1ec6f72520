"""Opening a database: the first start, and everything that can be wrong with a path or a URL."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from workflow_bridge.store import DatabaseUnusable, SchemaNewer, open_store, schema
from workflow_bridge.testing.store_contract import added

pytestmark = pytest.mark.anyio


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


async def opened_once(path: Path) -> None:
    store = open_store(url_of(path))
    await added(store)
    await store.aclose()


async def test_the_default_database_is_made_for_its_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("HOME", str(tmp_path))
    store = open_store("sqlite")
    await added(store)
    path = schema.default_path()
    assert path.is_relative_to(tmp_path)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    for file in path.parent.iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
    await store.aclose()


async def test_the_schema_is_made_once_and_rows_are_there_after_opening_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "100% sure? yes #1.db"
    assert schema.check(url_of(tmp_path / "not-yet.db")).revision is None
    assert not (tmp_path / "not-yet.db").exists()
    await opened_once(path)
    assert schema.check(url_of(path)).current
    store = open_store(url_of(path))
    assert await store.get("local", "t") is not None
    await store.aclose()


def test_upgrade_tells_how_the_database_stood_before(tmp_path: Path) -> None:
    url = url_of(tmp_path / "bridge.db")
    assert schema.upgrade(url).revision is None
    assert schema.upgrade(url).current
    assert schema.check(url) == schema.upgrade(url)


@pytest.mark.case("Q2")
async def test_a_newer_schema_is_named_as_such_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "bridge.db"
    await opened_once(path)
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE alembic_version SET version_num = '9999'")
    raw.close()
    for use in (open_store, schema.check, schema.upgrade):
        with pytest.raises(SchemaNewer, match=r"schema.*9999.*newer than this build") as caught:
            use(url_of(path))
        assert str(path) in str(caught.value)


async def test_another_programs_database_is_named_and_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE theirs (x)")
    raw.close()
    before = path.read_bytes()
    for use in (open_store, schema.check, schema.upgrade):
        with pytest.raises(DatabaseUnusable, match="another program's tables"):
            use(url_of(path))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.mkdir(), "it is a folder"),
        (
            lambda path: path.write_text("not a database, but long enough" * 50),
            "no SQLite database",
        ),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000), "SQLite database"),
    ],
)
def test_what_is_no_database_is_named(tmp_path: Path, make: object, reason: str) -> None:
    path = tmp_path / "bridge.db"
    make(path)  # type: ignore[operator]
    for use in (open_store, schema.check, schema.upgrade):
        with pytest.raises(DatabaseUnusable, match=reason) as caught:
            use(url_of(path))
        assert str(path) in str(caught.value)


async def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bridge.db"
    await opened_once(path)
    content = path.read_bytes()
    path.write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    with pytest.raises(DatabaseUnusable, match="damaged"):
        open_store(url_of(path))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    for use in (open_store, schema.upgrade):
        with pytest.raises(DatabaseUnusable, match=f"no folder {tmp_path}/missing; make it"):
            use(url_of(tmp_path / "missing" / "bridge.db"))
    assert list(tmp_path.iterdir()) == []


def test_a_place_where_nothing_can_be_made_is_named() -> None:
    with pytest.raises(DatabaseUnusable, match="cannot be made"):
        open_store("sqlite:////proc/bridge.db")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that a user other than root can reach, unlike pytest's own."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def refusal(path: Path) -> str:
    """Open it as a user whom permissions bind, and return what is said."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(DatabaseUnusable) as caught:
            open_store(url_of(path))
    finally:
        if root:
            os.seteuid(0)
    return str(caught.value)


def test_what_permissions_forbid_is_named(folder: Path) -> None:
    path = folder / "bridge.db"
    folder.chmod(0o555)
    assert "make the folder writable" in refusal(path)
    folder.chmod(0o755)
    schema.upgrade(url_of(path))
    path.chmod(0o444)
    assert "read-only; make the file and its folder writable" in refusal(path)
    path.chmod(0o666)
    folder.chmod(0o555)
    assert "read-only; make the file and its folder writable" in refusal(path)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("bridge.db", "no URL"),
        ("", "no URL"),
        ("mysql://user:s3cret@host/db", "kind mysql are not supported"),
        ("sqlite+aiosqlite:///x.db", "kind sqlite are not supported|write sqlite"),
        ("sqlite://s3cret/x.db", "four slashes"),
        ("sqlite:///x.db?password=s3cret", "nothing after the path"),
    ],
)
def test_a_url_that_is_not_supported_is_refused_without_repeating_it(url: str, reason: str) -> None:
    for use in (open_store, schema.check, schema.upgrade):
        with pytest.raises(DatabaseUnusable, match=reason) as caught:
            use(url)
        assert "s3cret" not in str(caught.value)


def test_the_package_is_imported_without_sqlalchemy_and_a_current_schema_without_alembic(
    tmp_path: Path,
) -> None:
    url = url_of(tmp_path / "bridge.db")
    schema.upgrade(url)
    code = (
        "import sys, workflow_bridge.store as store\n"
        "assert 'sqlalchemy' not in sys.modules\n"
        "store.open_store(sys.argv[1])\n"
        "assert 'alembic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, url], check=True)
