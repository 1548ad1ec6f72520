"""The protocol tests of the same name, in every setting."""

from tests.protocol.test_cancelling import *  # noqa: F403
