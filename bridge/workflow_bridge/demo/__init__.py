"""The demo: an embedded engine, a bridge as a child process, and a client that plays a script.

Everything is real but the cloud: the bridge is the installed command, the protocol goes over its
stdin and stdout, and the state machines run in an emulator inside this process.
"""

from workflow_bridge.demo.playing import play

__all__ = ["play"]
