"""An MCP server that fronts external workflow engines."""

__version__ = "0.1.0"
