"""What a plan was made from, as a text: the same in every process, for programs on disk (tandem/program/stored.py)."""

from __future__ import annotations

from _blake2 import blake2b  # without hashlib, which loads OpenSSL

from tandem import _runtime, dtypes

_NUMBERS = ("float", "integer", "bool", "seed", "offset")  # inputs of a plan: their values make no difference


def digest_of(function, spec) -> str | None:
    """A text that tells apart all plans; None if we cannot tell what a function does (one that is not ours, or made on the fly)."""
    base = function.digest
    if base == "":
        fn = function.__wrapped__.__wrapped__
        ours = fn.__module__.startswith("tandem.") and "<locals>" not in fn.__qualname__
        base = function.digest = f"{fn.__module__}.{fn.__qualname__}/{function.__name__}" if ours else None
    if base is None:
        return None
    text = repr([item.kind if item.kind in _NUMBERS else tuple(item) for item in spec])
    text += f" mode {_runtime.default_device()} {_runtime.autocast_mode()} {dtypes.default_float()}"
    text += " axes first" if _runtime.axes_first() else ""
    if " at 0x" in text:  # an object without a text of its own
        return None
    return blake2b(f"{base} {text}".encode(), digest_size=16).hexdigest()
