"""The command line, and the composition root: here everything is put together.

Exit codes: 0 all is well · 1 the task failed, or a problem was found · 2 the command line, the
configuration or the database cannot be used · 130 interrupted. Data goes to stdout, all else to
stderr.

Hosts wait while we start, so nothing is imported before the command that needs it is known.
"""

from workflow_bridge.cli.running import main

__all__ = ["main"]
