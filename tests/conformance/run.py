"""Run the official conformance suite against the real command, on an emulated engine.

`make conformance` installs the suite, and a Node for it, into build/conformance. Exits with 1 if a
scenario fails. A new lock file is made with `npm install --omit-lockfile-registry-resolved`: it
names no registry.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workflow_bridge.testing.moto_engine import CREDENTIALS, MotoEngine

HERE = Path(__file__).parent
SUITE = HERE.parents[1] / "build/conformance/node_modules"
SCENARIOS = (
    ("dns-rebinding-protection", "2025-11-25"),
    ("dns-rebinding-protection", "2026-07-28"),
    ("server-session-lifecycle", "2025-11-25"),
    ("http-header-validation", "2026-07-28"),
    ("server-sse-multiple-streams", "2025-11-25"),
    ("server-sse-multiple-streams", "2026-07-28"),
)
"""Those of the transport that need no tasks, each at the revisions it is made for."""

MACHINES = {
    "greet": {"StartAt": "Say", "States": {"Say": {"Type": "Pass", "End": True}}},
    "slow_compute": {
        "StartAt": "Wait",
        "States": {"Wait": {"Type": "Wait", "Seconds": 2, "End": True}},
    },
}


def node() -> str:
    """Return a Node of version 22 or later: that of the lock file where there is one for us."""
    ours = next(SUITE.glob("node-*/bin/node"), None)
    found = str(ours) if ours else shutil.which("node")
    if found is None:
        raise SystemExit("there is no Node; install version 22 or later")
    return found


@contextmanager
def served(engine: str, state: Path) -> Iterator[str]:
    """Serve; yield the address."""
    log = state / "log.jsonl"
    env = {
        **os.environ,
        **CREDENTIALS,
        "CONFORMANCE_ENGINE": engine,
        "CONFORMANCE_STATE": str(state),
    }
    command = [sys.executable, "-m", "workflow_bridge", "serve", "-c", str(HERE / "bridge.yaml")]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=errors, env=env) as process,
        log.open(encoding="utf-8") as lines,
    ):
        try:
            while True:
                line = lines.readline()
                if line and (said := json.loads(line))["event"] == "listening":
                    break
                if process.poll() is not None:
                    raise SystemExit(f"serve ended:\n{log.read_text()}")
            yield said["url"]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(20)


def run(url: str, scenario: str, version: str) -> bool:
    """Run a scenario and print what it says; return whether it passed."""
    command = [node(), str(SUITE / "@modelcontextprotocol/conformance/dist/index.js")]
    command += ["server", "--url", url, "--scenario", scenario, "--spec-version", version]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    print(f"== {scenario} at {version}: {'passed' if done.returncode == 0 else 'FAILED'}")
    print(done.stdout, done.stderr, sep="", flush=True)
    return done.returncode == 0


def main() -> None:
    with MotoEngine() as engine, tempfile.TemporaryDirectory() as state:
        for name, definition in MACHINES.items():
            engine.create_state_machine(name, definition)
        with served(engine.url, Path(state)) as url:
            results = {pair: run(url, *pair) for pair in SCENARIOS}
    for (scenario, version), passed in results.items():
        print(f"{'ok  ' if passed else 'FAIL'} {scenario} {version}")
    sys.exit(not all(results.values()))


if __name__ == "__main__":
    main()
