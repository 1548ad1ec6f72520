"""What a wrong configuration is told: every kind of error, with its place."""

from __future__ import annotations

import errno
from pathlib import Path
from textwrap import dedent
from typing import NoReturn

import pytest

from tests.config.adapters import kinds
from tests.config.conftest import Problems
from workflow_bridge.config import ConfigError, Issue, load

BACKENDS = """\
backends:
  orders:
    adapter: plain
    region: eu-west-1
    tools:
      settle:
        workflow: flow:settle
        description: Settle an order
        input_schema: {type: object}
"""
"""Nine lines; what a test puts before them starts at line 1, what it puts behind at line 10."""

SUPPORTED = "must be `sqlite`, `sqlite:///` and the path of a file, or `postgresql://…`"
POSTGRES = "postgresql://user:password@host:port/database"
ESCAPED = "write %40 for @, %3A for :, %2F for /, %23 for # and %3F for ? in user and password"


def told(issues: list[Issue]) -> list[str]:
    return [f"{issue.line}:{issue.column} {issue.path}: {issue.message}" for issue in issues]


def test_everything_wrong_is_reported_at_once_in_order_of_place(problems: Problems) -> None:
    issues = problems(
        """\
        databse: sqlite
        limits: {create: 10, keep_alive: {max: 1h}}
        include: [no/*.yaml]
        backends:
          orders:
            adapter: plain
            regoin: eu-west-1
            tools:
              settle: {workflow: x, poll: 5, input_schema: {type: strin}}
              task_list: {workflow: 'flow:x', description: '', input_schema: {type: object}}
        """
    )
    assert told(issues) == [
        "1:1 databse: unknown key; did you mean 'database'?",
        "2:18 limits.create: '10' needs a unit: say 10/s or 10/min",
        "3:11 include[0]: matches no file; paths are relative to this file's folder",
        "5:3 backends.orders.region: is missing",
        "7:5 backends.orders.regoin: unknown key; did you mean 'region'?",
        "9:7 backends.orders.tools.settle.description: is missing",
        "9:35 backends.orders.tools.settle.poll: '5' needs a unit: say 5s or 5ms",
        "9:59 backends.orders.tools.settle.input_schema.type: "
        "must be `type: object`: arguments have names",
        "10:7 backends.orders.tools.task_list: "
        "this name is reserved for a tool of the bridge's own",
        "10:52 backends.orders.tools.task_list.description: must not be empty",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("limit: {}", "1:1 limit: unknown key; did you mean 'limits'?"),
        (
            "xyzzy: 1",
            "1:1 xyzzy: unknown key; known here: backends, database, delete, include, limits, "
            "retention, server",
        ),
        (
            "limits: {concurent_tasks: 5}",
            "1:10 limits.concurent_tasks: unknown key; did you mean 'concurrent_tasks'?",
        ),
        (
            "limits: {keep_alive: {mx: 1d}}",
            "1:23 limits.keep_alive.mx: unknown key; did you mean 'max'?",
        ),
        ("limits:", "1:8 limits: must be a mapping of keys to values, is empty"),
        ("limits: [1]", "1:9 limits: must be a mapping of keys to values, is a list"),
        (
            "limits: {concurrent_tasks: 0}",
            "1:28 limits.concurrent_tasks: must be greater than or equal to 1",
        ),
        (
            "limits: {concurrent_tasks: many}",
            "1:28 limits.concurrent_tasks: must be a whole number, is 'many'",
        ),
        (
            "limits: {concurrent_tasks: 1.5}",
            "1:28 limits.concurrent_tasks: must be a whole number, is a number",
        ),
        (
            "limits: {poll: 5/day}",
            "1:16 limits.poll: unknown unit '/day': the units of a rate are /s, /min and /h",
        ),
        ("limits: {poll: 0/s}", "1:16 limits.poll: '0/s' must be above 0"),
        (
            "limits: {poll: true}",
            "1:16 limits.poll: must be a rate such as 10/s or 600/min",
        ),
        (
            "limits: {keep_alive: {max: 1h}}",
            "1:10 limits.keep_alive.default: is longer than max: 1d against 1h",
        ),
        (
            "limits: {keep_alive: {default: 30s}}",
            "1:32 limits.keep_alive.default: is shorter than min: 30s against 1m",
        ),
        (
            "limits: {keep_alive: {min: 60d}}",
            "1:28 limits.keep_alive.min: is longer than max: 60d against 30d",
        ),
        (
            "retention: {events: 30}",
            "1:21 retention.events: '30' needs a unit: say 30s or 30ms",
        ),
        (
            "retention: {events: 0s}",
            "1:21 retention.events: '0s' must be at least 1ms, in whole milliseconds",
        ),
        ("retention: {events: 9999d}", "1:21 retention.events: '9999d' must be at most 3650d"),
        (
            "retention: {events: 1 week}",
            "1:21 retention.events: unknown unit 'week': the units of a duration are ms, s, m, h "
            "and d",
        ),
        (
            "retention: {events: -1s}",
            "1:21 retention.events: '-1s' is not a duration: say 5s or 500ms",
        ),
        (
            "retention: {events: }",
            "1:21 retention.events: must be a duration such as 5s or 500ms",
        ),
        (
            "delete: {running: refus}",
            "1:19 delete.running: must be 'refuse' or 'cancel', is 'refus'; did you mean 'refuse'?",
        ),
        (
            "delete: {running: false}",
            "1:19 delete.running: must be 'refuse' or 'cancel', is true or false",
        ),
        (
            "server: {transport: tcp}",
            "1:21 server.transport: must be 'stdio' or 'http', is 'tcp'",
        ),
        (
            "server: {port: 9090}",
            "1:10 server.port: belongs to transport http: say `transport: http` too",
        ),
        (
            "server: {transport: http, host: bridge.local}",
            "1:33 server.host: must be an IP address or localhost, is 'bridge.local'",
        ),
        (
            "server: {transport: http, port: 65536}",
            "1:33 server.port: must be less than or equal to 65535",
        ),
        (
            "server: {transport: http, allowed_hosts: ['http://x']}",
            "1:43 server.allowed_hosts[0]: must be a host such as bridge.example.com or"
            " [::1]:8080, or `*`, is 'http://x'",
        ),
        (
            "server: {transport: http, allowed_origins: [x.example]}",
            "1:45 server.allowed_origins[0]: must be an origin such as https://app.example.com,"
            " or `*`, is 'x.example'",
        ),
        (
            "server: {transport: http, isolation: principal}",
            "1:38 server.isolation: 'principal' is not in this version",
        ),
        ("server: {dialects: [a, b]}", "1:24 server.dialects[1]: 'b' is not in this version"),
        ("server: {dialects: [c]}", "1:21 server.dialects[0]: 'c' is not in this version"),
        ("server: {dialects: []}", "1:20 server.dialects: must not be empty"),
        ("server: {dialects: a}", "1:20 server.dialects: must be a list, is text"),
        (
            "server: {isolation: session}",
            "1:21 server.isolation: over stdio there is one user, and no session: say auto or none",
        ),
        ("include: x.yaml", "1:10 include: must be a list, is text"),
        (
            "include: [x.yaml]",
            "1:11 include[0]: matches no file; paths are relative to this file's folder",
        ),
        ("include: ['']", "1:11 include[0]: must not be empty"),
        (
            'include: ["a\\0b"]',
            "1:11 include[0]: matches no file; paths are relative to this file's folder",
        ),
        (
            'database: "sqlite:///a\\0b"',
            "1:11 database: must name a file without `?`, `#` or `%` in its path",
        ),
        ("include: [bridge.yaml]", "1:11 include[0]: matches this file itself"),
        ("include: ['${HOME}/*']", "1:11 include[0]: variables are not supported here"),
        ("database: 5", "1:11 database: must be text, is a number: put it in quotes"),
        (
            "database: mysql://u:pw@h/d",
            f"1:11 database: {SUPPORTED}",
        ),
        (
            "database: postgresql+asyncpg://u:pw@h/d",
            "1:11 database: PostgreSQL is spoken to by psycopg alone: say"
            " postgresql://user:password@host:port/database",
        ),
        ("database: postgresql://u:p w@h/d", f"1:11 database: must be {POSTGRES}, without blanks"),
        ("database: 'postgresql://'", f"1:11 database: must be {POSTGRES}"),
        ("database: postgresql://u:p@w@h/d", f"1:11 database: must be {POSTGRES}; {ESCAPED}"),
        ("database: postgresql://u:p/w@h/d", f"1:11 database: must be {POSTGRES}; {ESCAPED}"),
        ("database: postgresql://u:p#w@h/d", f"1:11 database: must be {POSTGRES}; {ESCAPED}"),
        ("database: postgresql://h:port/d", f"1:11 database: must be {POSTGRES}; {ESCAPED}"),
        ("database: [sqlite]", "1:11 database: must be text, is a list"),
        ("database: {pool: {}}", "1:1 database.url: is missing"),
        ("database: {url: 5}", "1:17 database.url: must be text, is a number: put it in quotes"),
        (
            "database: {url: mysql://u:pw@h/d}",
            f"1:17 database.url: {SUPPORTED}",
        ),
        (
            "database: {url: sqlite, pool: {size: 5}}",
            "1:25 database.pool: SQLite has no pool of connections: leave it out, or name"
            " postgresql://…",
        ),
        (
            "database: {url: postgresql://h/d, pool: {idel: 5m}}",
            "1:42 database.pool.idel: unknown key; did you mean 'idle'?",
        ),
        (
            "database: {url: postgresql://h/d, pol: {}}",
            "1:35 database.pol: unknown key; did you mean 'pool'?",
        ),
        (
            "database: {url: postgresql://h/d, pool: {idle: 5}}",
            "1:48 database.pool.idle: '5' needs a unit: say 5s or 5ms",
        ),
        (
            "database: {url: postgresql://h/d, pool: {size: 1}}",
            "1:48 database.pool.size: must be greater than or equal to 2",
        ),
        (
            "database: bridge.db",
            f"1:11 database: {SUPPORTED}",
        ),
        (
            "database: sqlite://bridge.db",
            f"1:11 database: {SUPPORTED}",
        ),
        (
            "database: 'sqlite:///:memory:'",
            "1:11 database: must name a file: tasks outlive the process",
        ),
        ("database: sqlite:///", "1:11 database: must name a file: tasks outlive the process"),
        (
            "database: sqlite:///~/b.db",
            "1:11 database: `~` is not expanded; say sqlite:///${HOME}/…",
        ),
        (
            "database: sqlite:///b.db?mode=ro",
            "1:11 database: must name a file without `?`, `#` or `%` in its path",
        ),
    ],
)
def test_keys_of_the_file(problems: Problems, line: str, expected: str) -> None:
    assert told(problems(f"{line}\n{BACKENDS}", {"HOME": "/root"})) == [expected]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pol: 5s", "10:9 {tool}.pol: unknown key; did you mean 'poll'?"),
        ("poll: 5", "10:15 {tool}.poll: '5' needs a unit: say 5s or 5ms"),
        ("poll: '5'", "10:15 {tool}.poll: '5' needs a unit: say 5s or 5ms"),
        ("poll: 50ms", "10:15 {tool}.poll: must be at least 100ms"),
        ("poll: [5s]", "10:15 {tool}.poll: must be a duration such as 5s or 500ms"),
        (
            "max_text: 100000",
            "10:19 {tool}.max_text: '100000' needs a unit: say 100000KB or 100000MB",
        ),
        ("max_text: 10B", "10:19 {tool}.max_text: must be at least 1KB"),
        ("max_text: 0.5B", "10:19 {tool}.max_text: '0.5B' must be at least 1B, in whole bytes"),
        (
            "max_text: 1GB",
            "10:19 {tool}.max_text: unknown unit 'GB': the units of a size are B, KB, MB, KiB "
            "and MiB",
        ),
        ("title: 5", "10:16 {tool}.title: must be text, is a number: put it in quotes"),
        ("title: true", "10:16 {tool}.title: must be text, is true or false: put it in quotes"),
        ("title: [a]", "10:16 {tool}.title: must be text, is a list"),
        ("title: ''", "10:16 {tool}.title: must not be empty"),
        ("idempotent: sure", "10:21 {tool}.idempotent: must be true or false, is 'sure'"),
        ("idempotent: {}", "10:21 {tool}.idempotent: must be true or false, is a mapping"),
        (
            "task: require",
            "10:15 {tool}.task: must be 'optional', 'required' or 'never', is 'require'; "
            "did you mean 'required'?",
        ),
        ("mode: inline", "10:15 {tool}.mode: this kind of adapter has no inline mode"),
        (
            "keep_alive: 31d",
            "10:21 {tool}.keep_alive: is longer than limits.keep_alive.max (30d)",
        ),
        (
            "keep_alive: 59s",
            "10:21 {tool}.keep_alive: is shorter than limits.keep_alive.min (1m)",
        ),
        (
            "output_schema: {type: array}",
            "10:31 {tool}.output_schema.type: must be `type: object`: arguments have names",
        ),
        (
            "output_schema: []",
            "10:24 {tool}.output_schema: must be a mapping of keys to values, is a list",
        ),
        (
            "title: a\n        title: b",
            "11:9 {tool}.title: appears twice in this mapping; first on line 10",
        ),
        ("5: a", "10:9 {tool}.?: a key must be text: put it in quotes"),
        ("title: ${NOPE}", "10:16 {tool}.title: the environment variable NOPE is not set"),
        (
            "title: a ${0} b",
            "10:16 {tool}.title: has a `${{` that is no ${{NAME}} or "
            "${{NAME:-default}}; write $${{",
        ),
        (
            "title: !!python/object:os.system x",
            "10:16 {tool}.title: has a tag (!!python/object:os.system); tags are not supported",
        ),
        ("title: !secret x", "10:16 {tool}.title: has a tag (!secret); tags are not supported"),
        (
            "title: !!binary eA==",
            "10:16 {tool}.title: has a tag (!!binary); tags are not supported",
        ),
        (
            "output_schema: !!set {a}",
            "10:24 {tool}.output_schema: has a tag (!!set); tags are not supported",
        ),
        ("title: !!int x", "10:16 {tool}.title: is not the number or word that its form says"),
        ("title: 1e999", "10:16 {tool}.title: is too large a number"),
    ],
)
def test_keys_of_a_tool(problems: Problems, line: str, expected: str) -> None:
    expected = expected.format(tool="backends.orders.tools.settle")
    assert told(problems(f"{BACKENDS}        {line}\n")) == [expected]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("workflow: flow:settle", "workflow: settle", "7:19 backends.orders.tools.settle.workflow: "
         "'settle' is no workflow: say flow:NAME"),
        ("        workflow: flow:settle\n", "", "6:7 backends.orders.tools.settle.workflow: is "
         "missing"),
        ("      settle:", "      settle order:", "6:7 backends.orders.tools.settle order: a tool "
         "name is 1 to 128 of A-Z, a-z, 0-9, `_`, `-` and `.`"),
        ("      settle:", f"      {'x' * 129}:", f"6:7 backends.orders.tools.{'x' * 129}: a tool "
         "name is 1 to 128 of A-Z, a-z, 0-9, `_`, `-` and `.`"),
        ("      settle:", "      task_result:", "6:7 backends.orders.tools.task_result: this name "
         "is reserved for a tool of the bridge's own"),
        ("  orders:", "  o/1:", "2:3 backends.o/1: a backend name is 1 to 128 of A-Z, a-z, 0-9, "
         "`_`, `-` and `.`"),
        ("adapter: plain", "adapter: plane", "3:14 backends.orders.adapter: no such kind of "
         "adapter; did you mean 'plain'? (installed: absent, broken, plain, plain-inline)"),
        ("adapter: plain", "adapter: absent", "3:14 backends.orders.adapter: adapter 'absent' "
         "needs tests.config.no_such_module, which is not installed"),
        ("adapter: plain", "adapter: broken", "3:14 backends.orders.adapter: adapter 'broken' "
         "cannot be loaded: AttributeError: module 'tests.config.adapters' has no attribute "
         "'Broken'"),
        ("adapter: plain", "adapter: ''", "3:14 backends.orders.adapter: must not be empty"),
        ("adapter: plain", "adapter: [plain]", "3:14 backends.orders.adapter: must be text, is a "
         "list"),
        ("region: eu-west-1", "region: europe", "4:13 backends.orders.region: 'europe' is no "
         "region: say eu-west-1"),
        ("region: eu-west-1", "region: no-land", "2:3 backends.orders: no-land cannot be served"),
        ("region: eu-west-1", "region: 5", "4:13 backends.orders.region: must be text, is a "
         "number: put it in quotes"),
        ("    region: eu-west-1\n", "", "2:3 backends.orders.region: is missing"),
        ("region: eu-west-1", "region: a-b\n    calls: 5", "5:12 backends.orders.calls: '5' needs "
         "a unit: say 5/s or 5/min"),
        ("region: eu-west-1", "region: a-b\n    call: 5/s", "5:5 backends.orders.call: unknown "
         "key; did you mean 'calls'?"),
        ("region: eu-west-1", "region: a-b\n    secret: short", "2:3 backends.orders: secret "
         "'short' is too short"),
        ("region: eu-west-1", "region: a-b\n    retries: {atempts: 3}", "5:15 "
         "backends.orders.retries.atempts: unknown key; did you mean 'attempts'?"),
        ("region: eu-west-1", "region: a-b\n    retries: {attempts: 9}", "5:25 "
         "backends.orders.retries.attempts: must be less than or equal to 5"),
        ("region: eu-west-1", "region: a-b\n    zones: [{}, {atempts: 3}]", "5:18 "
         "backends.orders.zones[1].atempts: unknown key; did you mean 'attempts'?"),
        ("region: eu-west-1", "region: a-b\n    retries: {pause: long}", "5:22 "
         "backends.orders.retries.pause: must be a number, is 'long'"),
    ],
)  # fmt: skip
def test_keys_of_a_backend(problems: Problems, old: str, new: str, expected: str) -> None:
    assert old in BACKENDS
    assert told(problems(BACKENDS.replace(old, new))) == [expected]


def test_a_misspelt_adapter_is_pointed_at(problems: Problems) -> None:
    assert told(problems(BACKENDS.replace("adapter:", "adaptor:"))) == [
        "2:3 backends.orders.adapter: is missing",
        "3:5 backends.orders.adaptor: unknown key; did you mean 'adapter'?",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1 : is empty; it needs `backends`"),
        ("# only a comment\n", "1:1 : is empty; it needs `backends`"),
        ("---\n", "2:1 : must be a mapping of keys to values, is empty"),
        ("[]", "1:1 : must be a mapping of keys to values, is a list"),
        ("backends", "1:1 : must be a mapping of keys to values, is text"),
        ("database: sqlite\n", "1:1 backends: is missing: tools belong to backends"),
        ("backends: {}\n", "1:11 backends: is missing: tools belong to backends"),
        ("backends:\n", "1:1 backends: must be a mapping of keys to values, is empty"),
        ("backends: {a: 5}\n", "1:12 backends.a: must be a mapping of keys to values, is a number"),
        (
            "backends: {a: {adapter: plain, region: a-b, tools: {}}}",
            "1:45 backends.a.tools: must not be empty",
        ),
        (
            "backends: {a: {adapter: plain, region: a-b, tools: [x]}}",
            "1:52 backends.a.tools: must be a mapping of keys to values, is a list",
        ),
        (
            "backends: {a: {adapter: plain, region: a-b, tools: {x: }}}",
            "1:53 backends.a.tools.x: must be a mapping of keys to values, is empty",
        ),
        (
            "a: b\n  c: d\n",
            "2:4 : is not valid YAML: mapping values are not allowed in this context",
        ),
        (
            "a: [b\n",
            "2:1 : is not valid YAML: while parsing a flow sequence did not find expected ',' "
            "or ']'",
        ),
        (
            "a: {b: ${C}}\n",
            "1:9 : is not valid YAML: while parsing a flow mapping did not find expected ',' "
            "or '}': inside braces and brackets ${…} needs quotes",
        ),
        (
            "a: @b\n",
            "1:4 : is not valid YAML: while scanning for the next token found character that "
            "cannot start any token: put the text in quotes",
        ),
        ("a: *b\n", "1:4 : is not valid YAML: found undefined alias"),
        (
            "a: 1\n---\nb: 2\n",
            "2:1 : is not valid YAML: expected a single document in the stream but found "
            "another document",
        ),
        (
            "a: 1\nb: \x07\n",
            "2:4 : is not valid YAML: a control character must be written as an escape in quotes",
        ),
        ("a: &x [*x]\n", "1:4 : has an anchor that contains itself"),
        ("a: &x {<<: *x}\n", "1:4 : has an anchor that contains itself"),
        ("a: {<<: 5}\n", "1:4 a: `<<` takes an alias of a mapping, or a list of them"),
        ("[" * 150 + "]" * 150, "1:102 : is nested more than 100 levels deep"),
    ],
)  # fmt: skip
def test_files_that_are_no_configuration(problems: Problems, text: str, expected: str) -> None:
    assert expected in told(problems(text))


@pytest.mark.parametrize("link", ["[*x{n}, *x{n}, *x{n}, *x{n}]", "{{<<: [*x{n}, *x{n}, *x{n}]}}"])
def test_a_file_that_expands_without_measure_is_refused_soon(problems: Problems, link: str) -> None:
    lines = ["x0: &x0 {a: 1}"]
    lines += [f"x{n + 1}: &x{n + 1} " + link.format(n=n) for n in range(40)]
    assert "expands to more than 100,000 values" in problems("\n".join(lines))[-1].message


class TestFiles:
    def path_issue(self, path: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            load(path, {}, kinds=kinds())
        assert [issue.file for issue in caught.value.issues] == [path]
        return str(caught.value)

    def test_one_that_is_missing(self, tmp_path: Path) -> None:
        path = tmp_path / "absent.yaml"
        assert self.path_issue(path) == f"{path}: there is no such file"

    def test_a_folder(self, tmp_path: Path) -> None:
        assert self.path_issue(tmp_path) == f"{tmp_path}: is a folder; name the YAML file in it"

    def test_one_that_may_not_be_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> NoReturn:  # root, whom nothing else would refuse, runs tests too
            raise PermissionError(errno.EACCES, "Permission denied")

        path = tmp_path / "bridge.yaml"
        path.write_text(BACKENDS)
        monkeypatch.setattr(Path, "open", refuse)
        message = f"{path}: may not be read by this user; check its permissions"
        assert self.path_issue(path) == message

    def test_one_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()
        path = tmp_path / "a" / "b.yaml"
        assert self.path_issue(path) == f"{path}: cannot be read: Not a directory"

    def test_a_name_that_cannot_be_one(self) -> None:
        assert "cannot be read: not a usable file name" in self.path_issue(Path("a\0b"))

    def test_one_that_is_not_utf_8(self, tmp_path: Path) -> None:
        path = tmp_path / "bridge.yaml"
        path.write_bytes(b"database: sqlite\ninclude: [\xff]\n")
        assert self.path_issue(path) == f"{path}:2:11: is not UTF-8; save it as UTF-8"

    def test_one_that_is_too_long(self, tmp_path: Path) -> None:
        path = tmp_path / "bridge.yaml"
        path.write_text("#" * 4_000_001)
        assert "is longer than 4,000,000 bytes" in self.path_issue(path)

    def test_one_without_an_end(self) -> None:
        assert "is longer than 4,000,000 bytes" in self.path_issue(Path("/dev/zero"))


class TestInclude:
    def test_an_included_file_holds_only_backends(self, problems: Problems) -> None:
        issues = problems(
            "include: [more.yaml]", more=f"include: [x]\nlimits: {{}}\ndatabase: x\n{BACKENDS}"
        )
        assert {issue.file.name for issue in issues} == {"more.yaml"}
        assert told(issues) == [
            "1:1 include: an included file includes no others",
            "2:1 limits: an included file holds only `backends`",
            "3:1 database: an included file holds only `backends`",
        ]

    def test_an_included_file_has_backends(self, problems: Problems) -> None:
        issues = problems(f"include: [more.yaml]\n{BACKENDS}", more="{}")
        assert told(issues) == ["1:1 backends: is missing"]

    def test_errors_in_all_files_are_reported_together(self, problems: Problems) -> None:
        issues = problems(
            "include: [one.yaml, two.yaml]\nlimit: {}", one="", two="a: [", three="a: ["
        )
        assert [(issue.file.name, issue.line) for issue in issues] == [
            ("bridge.yaml", 2),
            ("one.yaml", 1),
            ("two.yaml", 2),
        ]

    def test_a_name_used_twice_is_reported_with_both_places(self, problems: Problems) -> None:
        issues = problems(f"include: [more.yaml]\n{BACKENDS}", more="\n" + BACKENDS)
        assert {issue.file.name for issue in issues} == {"more.yaml"}
        first = issues[0].file.with_name("bridge.yaml")
        assert told(issues) == [
            f"3:3 backends.orders: there is already a backend of this name at {first}:3",
            f"7:7 backends.orders.tools.settle: there is already a tool of this name at {first}:7",
        ]

    def test_a_tool_of_another_backend_has_another_name(self, problems: Problems) -> None:
        text = BACKENDS + BACKENDS.partition("\n")[2].replace("orders", "more")
        (issue,) = problems(text)
        assert (issue.line, issue.path) == (14, "backends.more.tools.settle")
        assert issue.message == f"there is already a tool of this name at {issue.file}:6"

    def test_a_file_that_cannot_be_read_is_named(self, problems: Problems, tmp_path: Path) -> None:
        (tmp_path / "sub.yaml").mkdir()
        (issue,) = problems(f"include: [sub.yaml]\n{BACKENDS}")
        assert str(issue) == f"{tmp_path / 'sub.yaml'}: is a folder; name the YAML file in it"


class TestSecrets:
    """A value that came from the environment is in no message, whatever is wrong with it."""

    VALUE = "Sw0rdf1sh/%"

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("title: ${S}\n        title2: x", "unknown key"),
            ("poll: ${S}", "is not a duration: say 5s or 500ms (its value comes from ${S})"),
            ("poll: 5${S}", "is not a duration: say 5s or 500ms (its value comes from ${S})"),
            ("max_text: 5 ${S}", "is not a size: say 100KB or 1MB (its value comes from ${S})"),
            ("idempotent: ${S}", "must be true or false, is text (its value comes from ${S})"),
            (
                "task: ${S}",
                "must be 'optional', 'required' or 'never' (its value comes from ${S})",
            ),
            ("output_schema: {type: '${S}'}", "must be `type: object`"),
            (
                "output_schema: {type: object, pattern: '(${S}'}",
                "is not JSON Schema: it breaks the rule `format` (its value comes from ${S})",
            ),
            (
                "output_schema: {type: object, properties: {a: {type: '${S}'}}}",
                "is not JSON Schema: it breaks the rule",
            ),
            (
                "output_schema: {type: object, properties: {a: {$ref: '${S}'}}}",
                "must stay inside this schema: `#` or `#/…` (its value comes from ${S})",
            ),
            (
                "output_schema: {type: object, properties: {a: {$ref: '#/${S}'}}}",
                "leads nowhere in this schema (its value comes from ${S})",
            ),
            (
                "output_schema: {type: object, $schema: '${S}'}",
                "names no draft of JSON Schema that is known here (its value comes from ${S})",
            ),
        ],
    )
    def test_in_a_tool(self, problems: Problems, line: str, says: str) -> None:
        self.check(problems, f"{BACKENDS}        {line}\n", says)

    @pytest.mark.parametrize(
        ("old", "new", "says"),
        [
            ("flow:settle", "${S}", "is not accepted by the adapter (its value comes from ${S})"),
            ("adapter: plain", "adapter: ${S}", "no such kind of adapter (installed: absent, "),
            ("eu-west-1", "${S}", "is not accepted (its value comes from ${S})"),
            ("eu-west-1", "a-b\n    retries: {attempts: '${S}'}", "must be a whole number"),
            ("eu-west-1", "a-b\n    secret: ${T}", "is not accepted (its value comes from ${T})"),
            ("eu-west-1", "no-${W}", "is not accepted by the adapter"),
            ("Settle an order", "${S} ${NOPE}", "the environment variable NOPE is not set"),
        ],
    )
    def test_in_a_backend(self, problems: Problems, old: str, new: str, says: str) -> None:
        self.check(problems, BACKENDS.replace(old, new), says)

    @pytest.mark.parametrize(
        ("line", "says"),
        [
            ("database: ${S}", "must be `sqlite`"),
            ("database: {url: '${S}'}", "must be `sqlite`"),
            ("database: {url: 'postgresql://h/d', pool: {size: '${S}'}}", "is text"),
            ("database: postgresql://u:${S}@@h/d", "write %40 for @"),
            ("database: sqlite:///${S}", "must name a file without"),
            ("include: ['${S}.yaml']", "variables are not supported here"),
            ("server: {transport: '${S}'}", "must be 'stdio' or 'http'"),
            ("limits: {concurrent_tasks: '${S}'}", "must be a whole number, is text"),
            ("limits: {keep_alive: {max: '${D}'}}", "is longer than max"),
        ],
    )
    def test_in_the_file(self, problems: Problems, line: str, says: str) -> None:
        self.check(problems, f"{line}\n{BACKENDS}", says)

    def check(self, problems: Problems, text: str, says: str) -> None:
        env = {"S": self.VALUE, "T": "Sw0rd", "W": "land", "D": "77s"}
        issues = problems(text, env)
        assert says in str(issues)
        shown = "\n".join(map(str, issues))
        assert not any(value in shown for value in [*env.values(), "Sw0"])

    def test_no_exception_with_values_is_chained(self, tmp_path: Path) -> None:
        path = tmp_path / "bridge.yaml"
        path.write_text(BACKENDS.replace("eu-west-1", "${S}"))
        with pytest.raises(ConfigError) as caught:
            load(path, {"S": self.VALUE}, kinds=kinds())
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None


def test_a_variable_with_bytes_that_are_no_text_is_refused(problems: Problems) -> None:
    text = BACKENDS.replace("Settle an order", "${A}")
    (issue,) = problems(text, {"A": b"\xff".decode("utf-8", "surrogateescape")})
    assert issue.message == "the environment variable A is not UTF-8"


def test_one_wrong_value_used_twice_is_one_issue(problems: Problems) -> None:
    text = dedent(BACKENDS).replace("settle:\n", "settle: &t\n").replace("flow:settle", "settle")
    (issue,) = problems(text + "      again: *t\n")
    assert (issue.line, issue.path) == (7, "backends.orders.tools.settle.workflow")
