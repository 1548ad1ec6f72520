"""Streamable HTTP: one ASGI app in front of the protocol, and the server that runs it.

`app` guards and routes, `serving` listens and ends in order; the rest is what they are made of.
"""
