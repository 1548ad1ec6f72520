"""bridge.yaml: what it may say, reading it, and the adapters it names."""

from workflow_bridge.config.database_urls import is_postgres
from workflow_bridge.config.editor_schema import json_schema
from workflow_bridge.config.issues import ConfigError, Issue
from workflow_bridge.config.kinds import Kinds
from workflow_bridge.config.loading import load, open_adapters
from workflow_bridge.config.models import (
    RESERVED_TOOLS,
    Backend,
    Config,
    Database,
    Delete,
    KeepAliveLimits,
    Limits,
    PlainCall,
    Pool,
    Retention,
    Server,
    Tool,
)
from workflow_bridge.config.units import parse_duration, parse_rate, parse_size

__all__ = [
    "RESERVED_TOOLS",
    "Backend",
    "Config",
    "ConfigError",
    "Database",
    "Delete",
    "Issue",
    "KeepAliveLimits",
    "Kinds",
    "Limits",
    "PlainCall",
    "Pool",
    "Retention",
    "Server",
    "Tool",
    "is_postgres",
    "json_schema",
    "load",
    "open_adapters",
    "parse_duration",
    "parse_rate",
    "parse_size",
]
