"""The protocol tests of the same name, in every setting."""

from tests.protocol.test_limits import *  # noqa: F403
