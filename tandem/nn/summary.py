"""A table of a model: every module with the shape of its output and its parameters."""

from __future__ import annotations

from tandem import _runtime
from tandem.autograd.modes import no_grad


class Row:
    """One module of the table. parameters: in it and below, each counted once. output: nested shapes, None if it never ran."""

    __slots__ = ("path", "type", "output", "parameters")

    def __init__(self, path: str, type: str, output, parameters: int):
        self.path, self.type, self.output, self.parameters = path, type, output, parameters


class Summary:
    """Prints as a table; `rows`, `total`, `trainable` and `bytes` are for programs."""

    def __init__(self, rows: list[Row], total: int, trainable: int, bytes: int):
        self.rows, self.total, self.trainable, self.bytes = rows, total, trainable, bytes

    def __str__(self):
        table = [("module", "type", "output", "parameters")]
        for row in self.rows:
            depth = row.path.count(".")
            name = "  " * depth + row.path.rpartition(".")[2] if depth else row.path
            table.append((name, row.type, "-" if row.output is None else _show(row.output), f"{row.parameters:,}"))
        widths = [max(len(line[i]) for line in table) for i in range(4)]
        lines = [
            "  ".join(
                [*(cell.ljust(w) for cell, w in zip(line[:3], widths, strict=False)), line[3].rjust(widths[3])]
            ).rstrip()
            for line in table
        ]
        kind = "all trainable" if self.trainable == self.total else f"{self.trainable:,} trainable"
        return "\n".join([*lines, f"{self.total:,} parameters ({_bytes(self.bytes)}), {kind}"])

    __repr__ = __str__


def summarize(module, args, kwargs) -> Summary:
    outputs: dict = {}
    handles = [
        m.register_forward_hook(lambda m, _, out: outputs.setdefault(id(m), _shapes(out)) and None)
        for m in module.modules()
    ]
    modes = [(m, m.training) for m in module.modules()]
    try:
        if args or kwargs:
            with no_grad():
                module.eval()(*args, **kwargs)
    finally:
        for handle in handles:
            handle.remove()
        for m, training in modes:
            m.training = training
    rows = [
        Row(path, type(m).__name__, outputs.get(id(m)), sum(p.numel() for p in m.parameters()))
        for path, m in module.named_modules()
    ]
    parameters = list(module.parameters())
    return Summary(
        rows,
        sum(p.numel() for p in parameters),
        sum(p.numel() for p in parameters if p.requires_grad),
        sum(p.nbytes for p in parameters),
    )


def _shapes(x):
    if isinstance(x, _runtime.Tensor):
        return x.shape
    if isinstance(x, (tuple, list)):
        return [_shapes(i) for i in x]
    if isinstance(x, dict):
        return {k: _shapes(v) for k, v in x.items()}
    return type(x).__name__


def _show(shapes) -> str:
    if isinstance(shapes, list):
        return "[" + ", ".join(_show(s) for s in shapes) + "]"
    if isinstance(shapes, dict):
        return "{" + ", ".join(f"{k}: {_show(s)}" for k, s in shapes.items()) + "}"
    return str(shapes)


def _bytes(n: int) -> str:
    for unit in ("bytes", "KB", "MB"):
        if n < 1000:
            return f"{n:.3g} {unit}" if unit != "bytes" else f"{n} bytes"
        n /= 1000
    return f"{n:.3g} GB"
