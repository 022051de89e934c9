"""Errors that cross from one task to another: as JSON, with the user's line."""

from __future__ import annotations

import builtins
import traceback

from tandem import errors
from tandem.errors import Source, TandemError, TaskError, user_source

_KINDS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}


def described(error: BaseException) -> dict:
    notes = [str(n) for n in getattr(error, "__notes__", ())]
    name = type(error).__name__
    if isinstance(error, (TandemError, errors.InternalError)) and name in _KINDS:
        source = None if error.source is None else list(error.source)
        return {"kind": name, "op": error.op, "rule": error.rule, "fix": error.fix, "source": source, "notes": notes,
                "task": getattr(error, "task", None)}  # fmt: skip
    text = "".join(traceback.format_exception(error)[-6:])
    return {"python": name, "text": str(error), "trace": text, "notes": notes}


def restored(found: dict) -> BaseException:
    if "kind" in found and found["kind"] in _KINDS:
        source = found.get("source")
        kind = _KINDS[found["kind"]]
        # A line of nowhere, rather than that of who happens to read the answer.
        error = kind(found.get("op"), str(found.get("rule")), found.get("fix"), Source(*source) if source else None)
        if not source:
            error.source = None
            error.args = (error._text(),)
        if found.get("task"):
            error.task = found["task"]
    else:
        kind = getattr(builtins, str(found.get("python")), None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                error = kind(found.get("text"))
            except Exception:
                error = TaskError(None, f"{found.get('python')}: {found.get('text')}")
        else:
            error = TaskError(None, f"{found.get('python')}: {found.get('text')}")
        error.add_note(f"  raised in a task:\n{found.get('trace')}")
    for note in found.get("notes", ()):
        error.add_note(str(note))
    return error


def at_caller(error: BaseException) -> BaseException:
    """An error that a task raised in no line of the user's: at the line that asked the task."""
    if isinstance(error, TandemError) and error.source is None:
        error.source = user_source()
        error.args = (error._text(),)
    return error
