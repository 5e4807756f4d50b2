"""Memories of detectors to bytes and back: numpy's own archive of arrays, without its pickles."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np

from engine.errors import StoreError
from engine.model.labels import Labels
from engine.model.verdict import Memory

_TEXT = "text"  # the entry of the archive that holds everything but figures


def pack(memory: Memory) -> bytes:
    """Return a memory as bytes."""
    text = {"labels": [dict(labels) for labels in memory.labels], "at": repr(memory.at), "kind": memory.kind}
    arrays: dict[str, Any] = {_TEXT: np.frombuffer(json.dumps(text).encode(), dtype=np.uint8)}
    arrays |= {f"columns/{name}": column for name, column in memory.columns.items()}
    arrays |= {f"shared/{name}": array for name, array in memory.shared.items()}
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def unpack(content: bytes) -> Memory:
    """Return the memory that `content` was made from, or raise StoreError."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            text: dict[str, Any] = json.loads(archive[_TEXT].tobytes())
            parts: dict[str, dict[str, Any]] = {"columns": {}, "shared": {}}
            for name in archive.files:
                part, _, key = name.partition("/")
                if key:
                    parts[part][key] = archive[name].astype(np.float64)
        labels = tuple(Labels(each) for each in text["labels"])
        for name, column in parts["columns"].items():
            if len(column) != len(labels):
                raise ValueError(f"{name} is of {len(column)} series, and not of {len(labels)}")  # noqa: TRY301
        memory = Memory(labels=labels, at=float(text["at"]), kind=text["kind"], **parts)
    except Exception as error:  # a damaged archive fails in as many ways as there are in what reads it
        raise StoreError(f"cannot read what a detector had noted: {error!r}") from error
    return memory
