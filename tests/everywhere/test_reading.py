"""The protocol tests of the same name, in every setting."""

from tests.protocol.test_reading import *  # noqa: F403
