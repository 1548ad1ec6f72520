"""Benches: plain scripts that print ratios, each measured side by side in one run."""
