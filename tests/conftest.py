"""The real parts, for the tests that need them. A part that cannot be had fails the test: it is never skipped."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from deploy.demo import parts
from deploy.demo.prometheus import Prometheus
from deploy.demo.ray_cluster import RayCluster


@pytest.fixture(scope="session")
def prometheus_bin() -> Path:
    """The folder with prometheus, promtool, alertmanager and amtool."""
    return parts.part("prometheus")


@pytest.fixture(scope="session")
def ray_venv() -> Path:
    """The environment that Ray is installed in; the tests' own has no Ray."""
    return parts.part("ray")


@pytest.fixture(scope="session")
def ray_cluster(ray_venv: Path) -> Iterator[RayCluster]:
    """A head and one worker that all integration tests share: whoever starts a job also stops it, and kills no node."""
    # A short path, so that Ray's sockets fit into it.
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as folder,
        RayCluster(Path(folder), workers=1, venv=ray_venv) as cluster,
    ):
        yield cluster


@pytest.fixture
def prometheus_server(prometheus_bin: Path, tmp_path: Path) -> Iterator[Callable[..., Prometheus]]:
    """Starts a fresh Prometheus at each call, with the arguments of `Prometheus`; all stop when the test ends."""
    with ExitStack() as servers:
        count = 0

        def start(**options: Any) -> Prometheus:
            nonlocal count
            count += 1
            folder = tmp_path / f"prometheus-{count}"
            return servers.enter_context(Prometheus(folder, programs=prometheus_bin, **options))

        yield start
