"""Tensors as text."""

from __future__ import annotations

import math

from tandem import _runtime, dtypes


class Options:
    """How tensors are shown; td.set_printoptions changes it."""

    precision = 4
    threshold = 1000  # more elements than this are summarised
    edgeitems = 3
    linewidth = 100
    sci_mode = None  # whether floats are written with exponents; None: where it hides less


_PROFILES = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 100, "sci_mode": None},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 100, "sci_mode": None},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 100, "sci_mode": None},
}


def set_options(precision, threshold, edgeitems, linewidth, profile, sci_mode):
    """See td.set_printoptions."""
    if profile is not None and (not isinstance(profile, str) or profile not in _PROFILES):
        raise ValueError(f"profile is {profile!r}; it must be one of {', '.join(_PROFILES)}")
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in given.items():  # all of them first: whatever is set is used by the text of the next error
        endless = name != "precision" and value == math.inf if isinstance(value, float) else False
        if value is not None and not endless and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise ValueError(f"{name} is a {type(value).__name__}: it must be an integer that is 0 or more")
    if sci_mode is not None and not isinstance(sci_mode, bool | int):
        raise ValueError(f"sci_mode is a {type(sci_mode).__name__}; it must be True, False or None")
    for name, value in _PROFILES[profile].items() if profile is not None else ():
        setattr(Options, name, value)
    for name, value in given.items():
        if value is not None:
            setattr(Options, name, value)
    if sci_mode is not None:
        Options.sci_mode = sci_mode


def _number_format(values: list[float]):
    """One format for all elements of a float tensor: 4 digits, or scientific where that hides too much."""
    finite = [abs(v) for v in values if math.isfinite(v) and v != 0]
    if not finite:
        return lambda v: _special(v) or f"{v:.0f}."
    low, high = min(finite), max(finite)
    digits = Options.precision
    exponents = Options.sci_mode
    if exponents is None:
        if all(v == int(v) for v in finite) and high < 1e8:
            return lambda v: _special(v) or f"{v:.0f}."
        exponents = high >= 1e8 or low < 1e-4 or high / low > 1e5
    return lambda v: _special(v) or (f"{v:.{digits}e}" if exponents else f"{v:.{digits}f}")


def _complex_format(values: list[complex]):
    """Both parts in one format, each aligned: 1.5000-2.0000j."""
    text = _number_format([part for v in values for part in (v.real, v.imag)])

    def parts(v: complex) -> tuple[str, str]:
        im = text(v.imag)
        return text(v.real), f"{im}j" if im.startswith("-") else f"+{im}j"

    widths = [max(map(len, column)) for column in zip(*map(parts, values), strict=True)]
    return lambda v: "".join(part.rjust(width) for part, width in zip(parts(v), widths, strict=True))


def _aligned(text, values: list):
    """The same format with all elements as wide as the widest, so that columns stand below each other."""
    width = max((len(text(v)) for v in values), default=0)
    return lambda v: text(v).rjust(width)


def _special(v: float) -> str | None:
    if math.isnan(v):
        return "nan"
    if math.isinf(v):
        return "inf" if v > 0 else "-inf"
    return None


def _flatten(nested, out: list):
    if isinstance(nested, list):
        for item in nested:
            _flatten(item, out)
    else:
        out.append(nested)


def _shown(t, summarise: bool):
    """Nested lists of the elements to show; None marks what is left out."""
    if t.ndim == 0:
        return t.item()
    if not summarise or t.shape[0] <= 2 * Options.edgeitems:
        return [_shown(t[i], summarise) for i in range(t.shape[0])] if summarise else t.tolist()
    return (
        [_shown(t[i], True) for i in range(Options.edgeitems)]
        + [None]
        + [_shown(t[i], True) for i in range(t.shape[0] - Options.edgeitems, t.shape[0])]
    )


def _layout(nested, depth: int, text, indent: int) -> str:
    if nested is None:
        return "..."
    if not isinstance(nested, list):
        return text(nested)
    parts = [_layout(item, depth - 1, text, indent + 1) for item in nested]
    if depth <= 1:
        return "[" + _wrap(parts, indent + 1) + "]"
    separator = "," + "\n" * (depth - 1) + " " * (indent + 1)
    return "[" + separator.join(parts) + "]"


def _wrap(parts: list[str], indent: int) -> str:
    lines, line = [], ""
    for i, part in enumerate(parts):
        piece = part + (", " if i + 1 < len(parts) else "")
        if line and indent + len(line) + len(piece) > Options.linewidth:
            lines.append(line.rstrip())
            line = ""
        line += piece
    return ("\n" + " " * indent).join([*lines, line])


def format_tensor(t) -> str:
    parts = _runtime.parts_of(t)
    if parts is not None:
        more = ", requires_grad=True" if t.requires_grad else ""
        return f"sharded({format_tensor(parts.local)}, shape={tuple(t.shape)}, {parts.mesh!r}, {list(parts.placements)}{more})"
    data = t.detach() if t.requires_grad else t
    nested = _shown(data, data.size > Options.threshold) if data.size else []  # a million rows of nothing are nothing
    values: list = []
    _flatten(nested, values)
    values = [v for v in values if v is not None]
    text = _complex_format(values) if t.dtype.is_complex else _number_format(values) if t.dtype.is_floating else str
    if t.ndim:
        text = _aligned(text, values)
    kind = type(t)
    prefix = f"{kind.__name__ if getattr(kind, '_overrides_operators', False) else kind.__name__.lower()}("
    body = _layout(nested, t.ndim, text, len(prefix))
    if data.size == 0 and t.ndim != 1:
        body = f"[], shape={t.shape}"
    suffix = ""
    if t.dtype not in (dtypes.default_float(), dtypes.int64, dtypes.bool_, dtypes.default_complex()):
        suffix += f", dtype={t.dtype}"
    if t.device != "cpu":
        suffix += f", device='{t.device}'"
    if t.grad_fn is not None:
        suffix += f", grad_fn={t.grad_fn!r}"
    elif t.requires_grad:
        suffix += ", requires_grad=True"
    return f"{prefix}{body}{suffix})"
