"""bridge.yaml: what it may say, reading it, and the adapters it names."""

from workflow_bridge.config.editor_schema import json_schema
from workflow_bridge.config.issues import ConfigError, Issue
from workflow_bridge.config.kinds import Kinds
from workflow_bridge.config.loading import load, open_adapters
from workflow_bridge.config.models import (
    RESERVED_TOOLS,
    Backend,
    Config,
    Delete,
    KeepAliveLimits,
    Limits,
    PlainCall,
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
    "Delete",
    "Issue",
    "KeepAliveLimits",
    "Kinds",
    "Limits",
    "PlainCall",
    "Retention",
    "Server",
    "Tool",
    "json_schema",
    "load",
    "open_adapters",
    "parse_duration",
    "parse_rate",
    "parse_size",
]
