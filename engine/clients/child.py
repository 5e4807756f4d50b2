"""The other side of `aside`: makes one call, answers, and ends. Run by path, never imported.

What it needs of the engine comes with the call; until the number of threads is set nothing may import numpy.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys

_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_NICENESS = 10  # evaluations go first


def main() -> None:
    """Read a call from standard input and write what came of it to standard output."""
    signal.alarm(int(sys.argv[1]))  # if nobody is left to end it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a key pressed in the terminal is for the parent
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    os.nice(_NICENESS)
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever the function prints is no answer
    sys.path[:] = pickle.load(sys.stdin.buffer)  # noqa: S301  the parent's own bytes
    try:
        function, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301
        result = True, function(*arguments)
    except Exception as error:  # noqa: BLE001  the door of the process: the parent hears of it
        result = False, f"{type(error).__name__}: {error}"
    with os.fdopen(answer, "wb") as out:
        pickle.dump(result, out)


if __name__ == "__main__":
    main()
