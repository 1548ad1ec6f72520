"""moto's Step Functions in its default mode, in which what is started runs for ever.

Makes as many executions as its argument says, named e1, e2, …; prints where it is, and ends with
its stdin.
"""

from __future__ import annotations

import json
import sys

from workflow_bridge.testing.moto_engine import MotoEngine

if __name__ == "__main__":
    with MotoEngine() as engine:
        engine._post("config", {"stepfunctions": {"execute_state_machine": False}})
        machine = {"StartAt": "S", "States": {"S": {"Type": "Pass", "End": True}}}
        workflow = engine.create_state_machine("Run", machine)
        client = engine.client("stepfunctions")
        for n in range(1, int(sys.argv[1]) + 1):
            client.start_execution(stateMachineArn=workflow, name=f"e{n}", input="{}")
        client.close()
        print(json.dumps({"url": engine.url, "workflow": workflow}), flush=True)
        sys.stdin.read()
