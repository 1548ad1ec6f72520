"""The task core: pure decisions, the service protocols call, the loop that does the work."""
