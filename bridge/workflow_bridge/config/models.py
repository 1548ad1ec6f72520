"""What bridge.yaml may say, with every default, and what the rest of the bridge gets to see."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from workflow_bridge.config.addresses import a_host, an_address, an_origin, is_loopback
from workflow_bridge.config.issues import Unfit
from workflow_bridge.config.units import (
    Duration,
    PerSecond,
    Size,
    at_least,
    format_duration,
    format_size,
)

RESERVED_TOOLS = ("task_status", "task_result", "task_cancel", "task_list")
"""Names that the bridge keeps for tools of its own."""

_PollInterval: TypeAlias = Annotated[Duration, at_least("100ms"), PlainSerializer(format_duration)]
_TextSize: TypeAlias = Annotated[Size, at_least("1KB"), PlainSerializer(format_size)]
_BodySize: TypeAlias = Annotated[Size, at_least("64KB"), PlainSerializer(format_size)]

Text: TypeAlias = Annotated[str, Field(min_length=1)]
Schema: TypeAlias = dict[str, Any]


def _not_yet(*words: str) -> BeforeValidator:
    """Refuse what a later version will accept, in words that say so."""

    def refuse(value: object) -> object:
        if isinstance(value, str) and value in words:
            raise Unfit(f"{value!r} is not in this version", blind="is not in this version")
        return value

    return BeforeValidator(refuse)


def _not_empty(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise Unfit("must not be empty", blind="must not be empty")
    return value


class Model(BaseModel):
    """A frozen mapping that refuses keys it does not know and never shows values in errors."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
    )


class Pool(Model):
    """Connections to PostgreSQL."""

    size: Annotated[int, Field(ge=2, le=1000)] = 10
    """Connections of one process at most; half of them write, half read."""
    connect_timeout: Duration = timedelta(seconds=5)
    """Longest wait for a connection to be made."""
    statement_timeout: Duration = timedelta(seconds=10)
    """Longest that the server works on a statement."""
    lock_timeout: Duration = timedelta(seconds=5)
    """Longest that a statement waits for a lock."""
    idle: Duration = timedelta(minutes=5)
    """A connection unused for longer is replaced."""
    recycle: Duration = timedelta(minutes=30)
    """A connection older than that is replaced."""
    patience: Duration = timedelta(seconds=15)
    """Longest that one call tries in all, the time it queues included."""
    application_name: Annotated[Text, Field(max_length=63)] = "workflow-bridge"
    """What the server shows in pg_stat_activity."""


class Database(Model):
    """Where tasks are kept."""

    url: Annotated[Text, Field(repr=False)]
    """As `database` alone would say it."""
    pool: Pool = Pool()
    """PostgreSQL only."""


class _OrItsUrl:
    """Lets the text of its URL stand for a database."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string", "minLength": 1}, handler(schema)]}


def _database(value: object) -> object:
    return {"url": value} if not isinstance(value, dict | Database) else value


class PlainCall(Model):
    """Calls by clients that know no tasks."""

    max_wait: Duration = timedelta(seconds=45)
    """How long such a call waits for its execution before it answers with the task's id."""
    facade: bool = True
    """Whether they get tools to look after their tasks: task_status, task_result, task_cancel,
    task_list."""


class Server(Model):
    """How clients reach the bridge."""

    transport: Literal["stdio", "http"] = "stdio"
    """`stdio`: by the process that started it. `http`: as Streamable HTTP, at /mcp."""
    host: Annotated[Text, AfterValidator(an_address)] = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """The port to listen on; 0 is any free one, which the log names."""
    isolation: Annotated[Literal["auto", "session", "none"], _not_yet("principal")] = "auto"
    """Who sees which tasks: each session its own, or all see all (`none`)."""
    sessions: Literal["stateful", "stateless"] = "stateful"
    """`stateless`: no sessions, so that any replica can answer any request; with isolation none."""
    allowed_hosts: tuple[Annotated[Text, AfterValidator(a_host)], ...] = ()
    """What clients may call this server (Host), beside what `host` says by itself."""
    allowed_origins: tuple[Annotated[Text, AfterValidator(an_origin)], ...] = ()
    """Web pages that may call it (Origin), beside those of this machine where it listens there."""
    max_body: _BodySize = 4_000_000
    """The largest request."""
    max_streams: Annotated[int, Field(ge=1)] = 1000
    """Requests open at once."""
    max_session_streams: Annotated[int, Field(ge=1)] = 200
    """Requests open at once in one session."""
    max_sessions: Annotated[int, Field(ge=1)] = 2000
    """Sessions open at once."""
    session_idle: Annotated[Duration, at_least("1s")] = timedelta(minutes=30)
    """A session ends when it has had no request open for so long."""
    dialects: Annotated[
        tuple[Annotated[Literal["a"], _not_yet("b", "c")], ...], AfterValidator(_not_empty)
    ] = ("a",)
    """Which forms of MCP tasks are spoken."""
    plain_call: PlainCall = PlainCall()

    @property
    def loopback(self) -> bool:
        """True if only programs on this machine can reach it."""
        return is_loopback(self.host)


class KeepAliveLimits(Model):
    """How long results are kept after a task has ended; a client's wish is fitted between."""

    default: Duration = timedelta(days=1)
    """Where neither the client nor the tool says."""
    min: Duration = timedelta(minutes=1)
    max: Duration = timedelta(days=30)


class Limits(Model):
    """What one owner may ask for."""

    create: PerSecond = 10.0
    """Tasks created."""
    poll: PerSecond = 50.0
    """Requests for a task's state."""
    result: PerSecond = 50.0
    """Requests for a task's result."""
    list: PerSecond = 10.0
    """Requests for the list of tasks."""
    concurrent_tasks: Annotated[int, Field(ge=1)] = 100
    """Tasks whose execution has not ended."""
    keep_alive: KeepAliveLimits = KeepAliveLimits()


class Retention(Model):
    """What is remembered once a task is gone."""

    tombstone: Duration = timedelta(days=1)
    """How long the id of an expired or deleted task stays taken."""
    events: Duration = timedelta(days=30)
    """How long the audit trail of a removed task is kept."""


class Delete(Model):
    """What deleting a task means."""

    running: Literal["refuse", "cancel"] = "refuse"
    """A task that has not ended: refuse to delete it, or cancel it first."""


class ToolKeys(Model):
    """One tool, as YAML says it."""

    workflow: Text
    """The workflow it starts, as its engine names it."""
    description: Text
    """What the model reads to decide whether to call it."""
    title: Text | None = None
    """What people read."""
    input_schema: Schema
    """JSON Schema of its arguments: an object."""
    output_schema: Schema | None = None
    """JSON Schema of its result: an object."""
    task: Literal["optional", "required", "never"] = "optional"
    """Whether a call may, must or must not be a task."""
    mode: Literal["standard", "inline"] = "standard"
    """`inline`: a short run whose call waits for the end (EXPRESS state machines)."""
    poll: _PollInterval = timedelta(seconds=5)
    """How often an execution is looked at, and how often clients are asked to poll."""
    keep_alive: Duration | None = None
    """How long its results are kept where the client does not say."""
    on_failure: Literal["failed", "tool_error"] = "failed"
    """What a failed execution makes of its task: failed, or completed with a tool error."""
    expose_cause: bool = True
    """Whether clients see why an execution failed."""
    idempotent: bool = False
    """Whether running it twice does no harm, so that a start that got lost may be repeated."""
    max_text: _TextSize = 100_000
    """The longest text content of a result; what is longer is cut to a preview."""
    start_within: Duration = timedelta(minutes=15)
    """How long a start is retried while the engine is unavailable."""
    missing_after: Duration = timedelta(hours=1)
    """How long an execution must be absent at the engine before it counts as lost."""


class BackendKeys(Model):
    """What every backend has; the other keys are its adapter's."""

    adapter: Text
    """Which kind of engine it is."""
    calls: PerSecond = 10.0
    """How many calls the bridge makes to it."""
    tools: Annotated[dict[str, Any], Field(min_length=1)]
    """Its tools, by name."""


class Root(Model):
    """The keys of bridge.yaml itself."""

    database: Annotated[Database, BeforeValidator(_database), _OrItsUrl()] = Database(url="sqlite")
    """`sqlite`: in the user's data directory. `sqlite:///path`: a file beside this one.
    `postgresql://user:password@host/database`; or `{url: …, pool: …}`."""
    server: Server = Server()
    limits: Limits = Limits()
    retention: Retention = Retention()
    delete: Delete = Delete()
    include: tuple[Text, ...] = ()
    """Files that hold more `backends`: patterns, relative to this file."""


class Tool(ToolKeys):
    """One tool: what MCP clients see, and the workflow behind it."""

    name: str
    backend: str

    @property
    def inline(self) -> bool:
        """True if the call itself waits for the end, and there is no execution to observe."""
        return self.mode == "inline"


class Backend(Model):
    """One configured instance of an engine. ``calls`` is its budget of calls per second."""

    name: str
    adapter: str
    calls: float
    settings: Annotated[BaseModel, Field(repr=False)]


class Config(Model):
    """Everything the bridge is told.

    The database's URL is one of SQLAlchemy's, or ``sqlite``: the file in the user's data directory.
    """

    database: Database
    server: Server
    limits: Limits
    retention: Retention
    delete: Delete
    backends: Mapping[str, Backend]
    tools: Mapping[str, Tool]
