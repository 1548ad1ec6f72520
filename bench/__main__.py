"""Run all benches, or those that are named: python -m bench [NAME]…

Prints Markdown. Takes about five minutes.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from pathlib import Path

from bench.reporting import machine

BENCHES = ("starting", "creating", "polling", "crowd", "memory")

if __name__ == "__main__":
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as name:
        folder = Path(name)
        print(machine(folder), flush=True)
        for bench in sys.argv[1:] or BENCHES:
            importlib.import_module(f"bench.{bench}").main(folder)
    print(f"Took {time.monotonic() - began:.0f} s.")
