"""The tools as MCP clients see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from mcp_types import ListToolsResult, Tool, ToolAnnotations

from workflow_bridge.protocol.errors import invalid
from workflow_bridge.protocol.schema import Schema, fault_of


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """One tool: what is listed of it, and how its calls are answered."""

    name: str
    title: str | None = None
    description: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] | None = None
    task: Literal["optional", "required", "never"] = "optional"
    inline: bool = False
    expose_cause: bool = True
    """Whether clients see the cause of a failure; its name they always see."""
    max_text: int = 100_000
    """The most bytes of text content in a result; what is longer is cut to a preview."""
    annotations: ToolAnnotations | None = None
    """Hints to hosts of what calling it does."""

    @cached_property
    def _input(self) -> Schema:
        return Schema(self.input_schema)

    @cached_property
    def _output(self) -> Schema | None:
        return None if self.output_schema is None else Schema(self.output_schema)

    def check_arguments(self, arguments: object) -> None:
        """Raise `Refused` (-32602) for arguments that must not reach the workflow."""
        fault = fault_of(arguments)
        if fault is not None:
            raise invalid("arguments", f"Invalid arguments for tool '{self.name}': $ {fault}")
        fault = self._input.fault(arguments)
        if fault is not None:
            raise invalid("arguments", f"Invalid arguments for tool '{self.name}': {fault}")

    def output_fault(self, structured: object) -> str | None:
        """Say why a result's structure is not what ``output_schema`` promised to clients."""
        return None if self._output is None else self._output.fault(structured)


def listed(tools: Iterable[ToolSpec]) -> ListToolsResult:
    """Return the answer to `tools/list`, in this order, all on one page."""
    return ListToolsResult(
        tools=[
            Tool(
                name=tool.name,
                title=tool.title,
                description=tool.description,
                input_schema=dict(tool.input_schema),
                output_schema=None if tool.output_schema is None else dict(tool.output_schema),
                annotations=tool.annotations,
            )
            for tool in tools
        ]
    )
