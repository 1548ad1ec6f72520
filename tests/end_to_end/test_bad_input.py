"""What cannot work is said in one sentence, with exit code 2, and nothing is written.

The same through the command's own function, and more of it, is in `tests/cli`.
"""

from __future__ import annotations

import sqlite3

import pytest

from tests.end_to_end.site import Site


def _refused(site: Site, *args: str) -> str:
    before = {path: path.stat().st_mtime_ns for path in site.folder.rglob("*")}
    done = site.run(*args)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert {path: path.stat().st_mtime_ns for path in site.folder.rglob("*")} == before
    return done.stderr


def test_a_configuration_that_cannot_be_used(site: Site) -> None:
    text = site.config.read_text().replace("200ms", "${POLL_INTERVAL}", 1)
    site.config.write_text(text.replace('"database"', '"databse"'))
    said = _refused(site, "serve")
    assert "POLL_INTERVAL" in said
    assert "databse" in said
    assert "'database'" in said


def test_a_folder_in_the_databases_place(site: Site) -> None:
    site.database.unlink()
    site.database.mkdir()
    assert "it is a folder" in _refused(site, "serve")


@pytest.mark.parametrize(
    ("folder", "says"),
    [("{folder}/bridge.yaml", "there is no folder"), ("/proc", "make the folder writable")],
)
def test_a_folder_in_which_nobody_can_make_a_file(site: Site, folder: str, says: str) -> None:
    where = f"sqlite:///{folder.format(folder=site.folder)}/bridge.db"
    assert says in _refused(site, "db", "upgrade", "--database", where)


def test_a_database_of_a_newer_build_is_named_as_such_and_left_alone(site: Site) -> None:
    with sqlite3.connect(site.database) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    done = site.run("call", "echo")
    assert done.returncode == 2
    assert "newer than this build" in done.stderr
