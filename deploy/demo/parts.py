"""Where the real parts lie: asks `deploy/setup.sh`, which makes what is missing and says so on stderr."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path
from typing import Literal

SETUP = Path(__file__).resolve().parent.parent / "setup.sh"

Part = Literal["uv", "engine", "ray", "prometheus"]


class PartMissing(RuntimeError):
    """A part could not be made; `setup.sh` has said on stderr what failed and what to do."""


@functools.cache
def part(name: Part) -> Path:
    """The place of a part, which is installed first if it is not there (under a minute)."""
    done = subprocess.run(["bash", str(SETUP), name], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise PartMissing(f"deploy/setup.sh {name} failed: see its message above")
    return Path(done.stdout.strip())
