"""The MCP side: recognises a request's dialect, has the core do it, and says it in that dialect."""
