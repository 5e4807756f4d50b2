"""What Ray's ids say. All are hexadecimal; each contains the id of what it belongs to.

An object's id is its task's (24 bytes) and the index of the return value or put (4 bytes); a task's is 8
bytes of its own and its actor's (16 bytes, all ones but the job if it has none); an actor's ends in its job's
(4 bytes).
"""

from __future__ import annotations

_LENGTH_OF_OBJECT = 56
_JOB = slice(40, 48)


def job_of_object(object_id: str) -> str:
    """Return the id of the job that owns an object; "" if it is no object's id."""
    return object_id[_JOB] if len(object_id) == _LENGTH_OF_OBJECT else ""
