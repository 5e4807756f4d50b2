"""What the service logs is kept from the tests' own output."""

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from structlog.testing import capture_logs


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    """What was logged in this test."""
    with capture_logs() as entries:
        yield entries
