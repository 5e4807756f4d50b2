"""Real processes: what they return, and what becomes of those that fail, hang, or die."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress

import numpy as np
import psutil
import pytest

from engine.clients.aside import Aside
from engine.errors import AsideError, DetectError
from engine.model.labels import Labels


def threads():
    """What this process was told before it imported numpy."""
    assert np.ones(3).sum() == 3
    return os.environ["OPENBLAS_NUM_THREADS"], os.getpid(), os.nice(0)


def imported():
    return sorted(
        name for name in sys.modules if name.partition(".")[0] in ("engine", "numpy", "statsmodels")
    )


def talk(text):
    sys.stdout.write("a line that is no answer\n")
    return text


def refuse():
    raise DetectError("too little of it")


def die(number):
    os.kill(os.getpid(), number)


def leave():
    sys.stderr.write("out of luck\n")
    sys.stderr.flush()
    os._exit(3)


def count(labels, names):
    return {each: names[each] for each in labels}


@pytest.fixture
def aside():
    made = Aside()
    yield made
    made.close()


def test_a_call_has_a_process_of_its_own_with_one_thread_and_low_priority(aside):
    number, pid, niceness = aside.call(threads, timeout=60)
    assert number == "1"
    assert pid != os.getpid()
    assert niceness == min(19, os.nice(0) + 10)


def test_the_process_knows_nothing_but_what_the_call_needs(aside):
    assert "statsmodels" not in aside.call(imported, timeout=60)


def test_what_is_printed_is_no_answer(aside):
    assert aside.call(talk, "yes", timeout=60) == "yes"


def test_labels_are_found_in_dictionaries_on_both_sides(aside):
    """Strings have other hashes in another process."""
    names = {Labels(i=str(i)): i for i in range(50)}
    assert all(hash(each) for each in names)
    back = aside.call(count, tuple(names), names, timeout=60)
    assert {each: back[each] for each in names} == names


def test_what_it_raises_is_told(aside):
    with pytest.raises(AsideError, match=r"^refuse: DetectError: too little of it$"):
        aside.call(refuse, timeout=60)


def test_a_process_that_dies_costs_its_call_alone(aside):
    with pytest.raises(AsideError, match="die: its process ended by SIGKILL"):
        aside.call(die, signal.SIGKILL, timeout=60)
    with pytest.raises(AsideError, match="leave: its process ended with 3: out of luck"):
        aside.call(leave, timeout=60)
    assert aside.submit(talk, "still here", timeout=60).result() == "still here"


def test_what_takes_too_long_is_ended(aside):
    with pytest.raises(AsideError, match=r"sleep took longer than 0.2 s and was ended"):
        aside.call(time.sleep, 300, timeout=0.2)


def test_what_cannot_be_sent_is_an_error_of_the_call(aside):
    with pytest.raises(Exception, match="pickle"):
        aside.submit(lambda: 1, timeout=60).result()


def test_a_process_whose_parent_died_ends_by_itself():
    """Its own deadline is the grace of five seconds after that of its parent."""
    code = (
        "import os, time\n"
        "from engine.clients.aside import Aside\n"
        "aside = Aside()\n"
        "aside.submit(time.sleep, 300, timeout=0.1)\n"
        "while not aside._children: time.sleep(0.01)\n"
        "print(next(iter(aside._children)).pid, flush=True)\n"
        "os._exit(0)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pid = int(said.stdout)
    for _ in range(3000):
        with suppress(psutil.NoSuchProcess):
            # Whoever has adopted it may not have taken note of its end yet.
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.01)
                continue
        return
    pytest.fail("it lives on")


def test_closing_ends_what_runs_and_what_waits():
    aside = Aside()
    running = aside.submit(time.sleep, 300, timeout=300)
    waiting = aside.submit(talk, "never", timeout=60)
    while not aside._children:
        time.sleep(0.01)
    threading.Thread(target=aside.close).start()
    with pytest.raises(AsideError, match="ended by SIGKILL"):
        running.result()
    with pytest.raises(CancelledError):
        waiting.result()
    with pytest.raises(AsideError, match="stopping"):
        aside.call(talk, "x", timeout=60)
