"""Writes what type checkers and editors read of the namespaces that are made when the package is imported.

    python tools/write_stubs.py            tandem/__init__.pyi and those of data, nn, nn.functional, ops, torch and v1
    python tools/write_stubs.py --check    whether these are what would be written

Parameters are those of the operators' declarations. What a function gives is what it gives in the example of its docstring.
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import importlib
import inspect
import io
import keyword
import pathlib
import pkgutil
import sys
import types
import warnings

import tandem as td
import tandem.distributed.sharding  # adds methods of sharded tensors
import tandem.torch
from tandem import _runtime

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEAD = '''"""Made by tools/write_stubs.py: `make stubs`."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

'''
ALIASES = """
class Size(tuple[int, ...]):
    def numel(self) -> int: ...

class _Array(Protocol):
    def __array__(self, *args: Any, **kwargs: Any) -> Any: ...

TensorLike: TypeAlias = Tensor | complex | Sequence[Any] | _Array
DTypeLike: TypeAlias = dtype | str | type
DeviceLike: TypeAlias = Device | str | int
"""
KINDS = {
    "tensor": "TensorLike", "optional_tensor": "TensorLike | None", "tensors": "Sequence[TensorLike]", "int": "int",
    "ints": "int | Sequence[int]", "generator": "Generator | None",
}  # fmt: skip
BY_NAME = {
    "axis": "int | Sequence[int] | None", "dim": "int | Sequence[int] | None", "axes": "Any", "dtype": "DTypeLike | None",
    **dict.fromkeys(["kernel_size", "stride", "dilation", "output_size", "size"], "int | Sequence[int] | None"),
    "padding": "int | Sequence[int] | str", "shape": "int | Sequence[int] | None", "sizes": "int | Sequence[int]",
    "more": "int | Sequence[int]", "k": "int", "device": "DeviceLike | None", "generator": "Generator | None",
    "keepdims": "bool", "keepdim": "bool",
}  # fmt: skip
# Annotations of plain functions that operators' declarations use as words of their own.
WORDS = {
    "Divisor": "TensorLike", "Factor": "TensorLike", "Factor | None": "TensorLike | None", "Written": "TensorLike",
    "Tensor": "TensorLike", "Tensor | None": "TensorLike | None", "Tensors": "Sequence[TensorLike]", "Int": "int",
    "Int | None": "int | None", "Ints": "int | Sequence[int]", "Ints | None": "int | Sequence[int] | None",
    "Generator | None": "Generator | None", "bool": "bool", "int": "int", "float": "float", "str": "str",
    "float | None": "float | None", "int | None": "int | None", "bool | None": "bool | None", "str | None": "str | None",
}  # fmt: skip
MODULES = (*td._LAZY, "autograd", "cuda", "errors", "memory")
PACKAGES = ("data", "nn")
SYMBOLIC = ("Variable",)  # classes whose operators are made when the package is imported
SYNONYMS = {"axis": "dim", "keepdims": "keepdim"}
# Parameters whose default is an int and that may be any number.
REAL = (
    "alpha", "beta", "value", "p", "ord", "start", "stop", "end", "step", "low", "high", "mean", "std", "correction", "fill_value",
    "margin", "spacing", "dx", "min", "max", "threshold",
)  # fmt: skip
# Functions that give one thing or another, by their arguments.
EITHER = ("max", "min", "sort", "where", "nonzero", "unique", "unique_consecutive", "median", "nanmedian")
# How properties and special methods of tensors are typed.
PROPERTIES = {
    "shape": "Size", "strides": "tuple[int, ...]", "dtype": "dtype", "device": "Device", "ndim": "int", "size": "Any",
    "itemsize": "int", "nbytes": "int", "requires_grad": "bool", "is_leaf": "bool", "grad": "Tensor | None", "grad_fn": "Any",
    "T": "Tensor", "H": "Tensor", "mT": "Tensor", "mH": "Tensor", "real": "Tensor", "imag": "Tensor", "data": "Tensor",
    "is_cuda": "bool", "is_cpu": "bool", "output_nr": "int", "names": "Any", "layout": "Any", "is_sparse": "bool",
}  # fmt: skip
SETTABLE = ("requires_grad", "grad", "data")
ARITHMETIC = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
]
SPECIAL = [
    *(f"def __{r}{n}__(self, other: TensorLike, /) -> Tensor: ..." for n in ARITHMETIC for r in ("", "r", "i")),
    *(f"def __{n}__(self, other: TensorLike, /) -> Tensor: ...  # type: ignore[override]" for n in ("eq", "ne")),
    *(f"def __{n}__(self, other: TensorLike, /) -> Tensor: ..." for n in ("lt", "le", "gt", "ge")),
    *(f"def __{n}__(self) -> Tensor: ..." for n in ("neg", "pos", "abs", "invert")),
    "def __getitem__(self, index: Any, /) -> Tensor: ...",
    "def __setitem__(self, index: Any, value: TensorLike, /) -> None: ...",
    "def __len__(self) -> int: ...", "def __bool__(self) -> bool: ...", "def __int__(self) -> int: ...",
    "def __float__(self) -> float: ...", "def __complex__(self) -> complex: ...", "def __index__(self) -> int: ...",
    "def __iter__(self) -> Iterator[Tensor]: ...", "def __hash__(self) -> int: ...",
    "def __contains__(self, value: TensorLike, /) -> bool: ...",
    "def __array__(self, dtype: Any = ..., copy: Any = ...) -> Any: ...",
]  # fmt: skip


# -- results, by what examples give


class _Watched(types.ModuleType):
    """td, in which the results of one function are looked at."""

    def __init__(self, space, name: str, function, seen: list):
        super().__init__("td")
        self.__dict__.update(_space=space, _name=name, _seen=seen, _function=function)

    def __getattr__(self, name):
        if name == "torch" and self._space is not td:
            return self
        if name != self._name and getattr(td, name, None) is not self._function:
            return getattr(self._space if self._space is not td and hasattr(self._space, name) else td, name)

        def watched(*args, **kwargs):
            result = self._function(*args, **kwargs)
            self._seen.append(result)
            return result

        return watched


def result_of(space, name: str, function) -> str:
    seen: list = []
    watched = _Watched(space, name, function, seen)
    for example in doctest.DocTestParser().get_examples(inspect.getdoc(function) or ""):
        with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(example.source, name, "single"), {"td": watched, "torch": watched})
    return type_of(seen[0]) if seen else "Tensor" if isinstance(function, _runtime.OpFunction) else "Any"


def type_of(value) -> str:
    if isinstance(value, td.Tensor):
        return "Tensor"
    if isinstance(value, tuple):
        if len(value) in (2, 3, 4) and all(isinstance(v, td.Tensor) for v in value) and hasattr(value, "_fields"):
            return named_tuple(value)
        return "tuple[Tensor, ...]" if all(isinstance(v, td.Tensor) for v in value) else "Any"
    if isinstance(value, list):
        return "list[Tensor]" if value and all(isinstance(v, td.Tensor) for v in value) else "list[Any]"
    for kind in (bool, int, float, str):
        if type(value) is kind:
            return kind.__name__
    return "None" if value is None else "Any"


NAMED: dict[str, tuple] = {}


def named_tuple(value) -> str:
    kind = type(value)
    name = kind.__name__.lstrip("_")
    NAMED.setdefault(name, kind._fields)
    return name if NAMED[name] == kind._fields else "tuple[Tensor, ...]"


# -- parameters


def default_text(value) -> str:
    return (
        repr(value)
        if isinstance(value, (bool, int, float, str, type(None))) and value == value and abs_ok(value)
        else "..."
    )


def abs_ok(value) -> bool:
    return not isinstance(value, float) or value not in (float("inf"), float("-inf"))


def by_default(name: str, value) -> str:
    if name in BY_NAME:
        return BY_NAME[name]
    for kind in (bool, int, float, str):
        if type(value) is kind:
            return "float" if kind is int and name in REAL else kind.__name__
    return "Any"


def parameters_of(function, method: bool) -> str | None:
    """The text between the parentheses of a declaration."""
    if isinstance(function, _runtime.OpFunction):
        return of_operator(function, method)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    return of_function(signature, method)


def of_operator(function, method: bool) -> str:
    parts, names, only = [], [], False
    for i, p in enumerate(function.parameters):
        if method and i == 0:
            parts.append("self")
            continue
        names.append(p.name)
        kind = KINDS.get(p.kind) or by_default(p.name, p.default)
        if i == function.variadic:
            parts.append(f"*{p.name}: {kind}")
            only = True
            continue
        if p.keyword_only and not only:
            parts.append("*")
            only = True
        kind = f"{kind} | None" if p.default is None and not p.required and not kind.endswith(("None", "Any")) else kind
        parts.append(f"{p.name}: {kind}" if p.required else f"{p.name}: {kind} = {default_text(p.default)}")
    extra = [
        f"{other}: {BY_NAME[other]} = ..." for own, other in SYNONYMS.items() if own in names and other not in names
    ]
    extra += ["out: Any = None"] if not function.__name__.endswith("_") and "out" not in names else []
    if extra:
        parts += [*([] if only else ["*"]), *extra]
    return ", ".join(parts)


def of_function(signature: inspect.Signature, method: bool) -> str:
    parts, only = [], False
    for i, p in enumerate(signature.parameters.values()):
        if method and i == 0:
            parts.append("self")
            continue
        if p.kind is p.VAR_POSITIONAL:
            parts.append(f"*{p.name}: {BY_NAME.get(p.name, 'Any')}")
            only = True
            continue
        if p.kind is p.VAR_KEYWORD:
            parts.append(f"**{p.name}: Any")
            continue
        if p.kind is p.KEYWORD_ONLY and not only:
            parts.append("*")
            only = True
        given = p.annotation if isinstance(p.annotation, str) else getattr(p.annotation, "__name__", "")
        kind = WORDS.get(given) or by_default(p.name, p.default)
        if p.default is None and not kind.endswith(("None", "Any")):
            kind += " | None"
        parts.append(f"{p.name}: {kind}" + ("" if p.default is p.empty else f" = {default_text(p.default)}"))
    return ", ".join(parts)


def declared(space, name: str, function, method: bool = False) -> str:
    parameters = parameters_of(function, method)
    if method and name in METHOD_RESULTS:
        return f"def {name}({parameters or 'self, *args: Any, **kwargs: Any'}) -> {METHOD_RESULTS[name]}: ..."
    given = getattr(function, "__annotations__", {}).get("return")
    if name in EITHER:
        return f"def {name}({parameters}) -> Any: ..."
    result = WORDS.get(given) if given in ("bool", "int", "float", "str") else None
    result = result or ("None" if given == "None" else result_of(space, name.rstrip("_") if method else name, function))
    if parameters is None:
        parameters = "self, *args: Any, **kwargs: Any" if method else "*args: Any, **kwargs: Any"
    return f"def {name}({parameters}) -> {result}: ..."


# -- files


def public(space) -> list[str]:
    return [n for n in dir(space) if not n.startswith("_") and not keyword.iskeyword(n) and n != "annotations"]


def tensor_class() -> list[str]:
    lines = ["class Tensor:", "    def __init__(self, *args: Any, **kwargs: Any) -> None: ..."]
    for name in public(td.Tensor):
        found = inspect.getattr_static(td.Tensor, name)
        if name in PROPERTIES or not callable(getattr(td.Tensor, name)):
            kind = PROPERTIES.get(name, "Any")
            lines.append(f"    @property\n    def {name}(self) -> {kind}: ...")
            if name in SETTABLE:
                lines.append(f"    @{name}.setter\n    def {name}(self, value: Any) -> None: ...")
        elif isinstance(found, staticmethod | classmethod):
            lines.append(f"    {name}: Any")
        else:
            method = getattr(td.Tensor, name)
            lines.append("    " + declared(td, name, getattr(method, "newer", method), True))
    return lines + ["    " + line for line in SPECIAL]


METHOD_RESULTS = {
    "item": "Any", "tolist": "Any", "numpy": "Any", "size": "Any", "dim": "int", "numel": "int", "stride": "Any",
    "element_size": "int", "data_ptr": "int", "is_contiguous": "bool", "backward": "None", "storage_offset": "int",
    "is_complex": "bool", "is_floating_point": "bool", "register_hook": "Any", "nelement": "int", "ndimension": "int",
}  # fmt: skip


def member(space, name: str, value) -> str | None:
    """The line that says what a name of a namespace is."""
    if isinstance(value, types.ModuleType):
        return f"from tandem import {name} as {name}" if name in MODULES else None
    if isinstance(value, td.dtype):
        return f"{name}: dtype"
    if isinstance(value, type) and name not in SYMBOLIC:
        module = value.__module__ if value.__module__ != "tandem" else "tandem.errors"
        if (
            module.startswith("tandem")
            and "_runtime" not in module
            and hasattr(sys.modules.get(module), value.__name__)
        ):
            # A stub exports what is imported under its own name; another name is said once more.
            other = "" if name == value.__name__ else f"\n{name} = {value.__name__}"
            return f"from {module} import {value.__name__} as {value.__name__}{other}"
        return f"{name}: Any"
    if callable(value):
        module = getattr(value, "__module__", "") or ""
        own = isinstance(value, types.FunctionType) and not hasattr(value, "__wrapped__")
        if own and module.startswith("tandem.") and getattr(sys.modules.get(module), value.__name__, None) is value \
                and value.__annotations__.get("return") and ".ops" not in module and ".torch" not in module:  # fmt: skip
            return f"from {module} import {value.__name__} as {name}"
        return declared(space, name, value)
    kind = type(value).__name__
    return f"{name}: {kind if kind in ('int', 'float', 'str', 'bool') else 'Any'}"


def main_stub() -> str:
    lines = []
    skip = {"Tensor", "dtype", "Device", "device", "Size", "Generator", "annotations"}
    for name in sorted({*public(td), *td._HOME}):
        if name in skip:
            continue
        line = member(td, name, getattr(td, name))
        if line:
            lines.append(line)
    imports = sorted(line for line in lines if line.startswith("from "))
    others = [line for line in lines if not line.startswith("from ")]
    base = [
        "from tandem.devices import Device as Device", "device = Device",
        "from tandem.dtypes import DType as DType", "dtype = DType", "from tandem.ops.random import Generator as Generator",
    ]  # fmt: skip
    tensor = tensor_class()
    return (
        HEAD
        + "\n".join(sorted([*base, *imports]))
        + "\n"
        + ALIASES
        + "\n"
        + named_tuples()
        + "\n".join(["__version__: str", *tensor, *others, ""])
    )


def named_tuples() -> str:
    text = ""
    for name, fields in sorted(NAMED.items()):
        text += f"class {name}(tuple[Tensor, ...]):\n" + "".join(f"    {f}: Tensor\n" for f in fields)
    return text


def functions_stub(space, inherit: str) -> str:
    """Of a namespace of functions besides the main one."""
    lines = []
    for name in public(space):
        value = getattr(space, name)
        if "*" in inherit and getattr(td, name, None) is value:
            continue
        line = member(space, name, value)
        if line and not line.startswith("from tandem import "):
            lines.append(line)
    names = ", ".join(
        f"{n} as {n}" for n in ("Device", "DeviceLike", "DTypeLike", "Generator", "Tensor", "TensorLike", "dtype")
    )
    used = sorted({n for n in NAMED if any(f"-> {n}:" in line for line in lines)})
    more = "".join(f"from tandem import {n} as {n}\n" for n in used)
    imports = sorted(line for line in lines if line.startswith("from "))
    others = [line for line in lines if not line.startswith("from ")]
    return HEAD + inherit + f"from tandem import {names}\n" + more + "\n".join([*imports, *others, ""])


def package_stub(name: str) -> str:
    """Of a package that says nowhere in words what of it is public."""
    package = importlib.import_module(f"tandem.{name}")
    files = sorted(m.name for m in pkgutil.iter_modules(package.__path__))
    inner = [n for n in files if isinstance(getattr(package, n, None), types.ModuleType)]
    lines = [f"from tandem.{name} import {n} as {n}\n" for n in inner]
    return functions_stub(package, "".join(lines))


def written() -> dict[pathlib.Path, str]:
    functional = functions_stub(td.nn.functional, "")
    torch = functions_stub(tandem.torch, "from tandem import *  # noqa: F403\n")
    v1 = functions_stub(td.v1, "from tandem.v1 import errors as errors, nn as nn, train as train\n")
    v1 = v1.replace("shape: int | Sequence[int] |", "shape: int | Sequence[int | None] |")  # None: a size that is open
    ops = HEAD + "from tandem import *  # noqa: F403\n\ndef __getattr__(name: str) -> Any: ...\n"
    packages = {ROOT / "tandem" / p / "__init__.pyi": package_stub(p) for p in PACKAGES}
    return packages | {
        ROOT / "tandem" / "v1" / "__init__.pyi": v1,
        ROOT / "tandem" / "ops" / "__init__.pyi": ops,
        ROOT / "tandem" / "nn" / "functional.pyi": functional,
        ROOT / "tandem" / "torch" / "__init__.pyi": torch,
        ROOT / "tandem" / "__init__.pyi": main_stub(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    files = written()
    old = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if check:
        print(
            "\n".join(f"{path.relative_to(ROOT)} is not what tools/write_stubs.py writes: make stubs" for path in old)
        )
        return int(bool(old))
    for path in old:
        path.write_text(files[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
