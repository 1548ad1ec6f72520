"""``python -m workflow_bridge`` is the command ``workflow-bridge``."""

from workflow_bridge.cli import main

if __name__ == "__main__":
    main()
