"""The protocol tests of the same name, in every setting."""

from tests.protocol.test_creating import *  # noqa: F403
