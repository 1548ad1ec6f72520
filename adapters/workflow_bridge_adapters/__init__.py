"""Adapters to workflow engines, one module each."""
