"""The protocol tests of the same name, in every setting."""

from tests.protocol.test_facade import *  # noqa: F403
