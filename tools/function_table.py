"""Write docs/functions.md: every public function and method, where it comes from, and what it does.

    python tools/function_table.py

Counterparts in NumPy and SciPy are in tests/numpy_names.txt, those in PyTorch in tests/torch_names.txt, and those in the Array API
standard in tests/array_api/standard.py. tests/test_functions.py checks that the page is current and that nothing is missing.
"""

import inspect
import pathlib
import re
import sys
from functools import cache

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import tandem as td  # noqa: E402
import tandem.distributed.sharding  # noqa: E402  # adds methods of sharded tensors
from tandem.ops import from_data  # noqa: E402
from tandem.ops.define import FUNCTIONS  # noqa: E402
from tandem.tensors import constructors, dtype_functions  # noqa: E402
from tests.array_api import standard  # noqa: E402

PAGE = ROOT / "docs" / "functions.md"

HEAD = """\
# Functions and methods

What `td` has, with the names that it goes by in the [Array API standard](https://data-apis.org/array-api/2025.12/), in NumPy or
SciPy, and in PyTorch. A name ending in `_` writes into its first argument. Where the standard and PyTorch differ, functions
follow the standard and methods follow PyTorch; see [pytorch.md](pytorch.md), also for networks, which are in `td.nn`.
"""

TITLES = {
    "": "Functions of `td`",
    "linalg": "Linear algebra, `td.linalg`",
    "fft": "Fourier transforms, `td.fft`",
    "special": "Special functions, `td.special`",
    "random": "Random numbers, `td.random`",
    "Tensor": "Methods of `td.Tensor` that are not functions",
}


def public(module) -> dict:
    """Functions of a module's namespace, without what it imports for itself from the rest of the package."""
    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    found = {n: getattr(module, n) for n in names}
    return {n: f for n, f in found.items() if callable(f) and not isinstance(f, type) and is_ours(f, module)}


def is_ours(function, module) -> bool:
    home = getattr(function, "__module__", None) or ""
    if function in FUNCTIONS.values():
        return True
    return home.startswith("tandem.") and (
        home == module.__name__ or not home.startswith("tandem.tensors.constructors")
    )


def spaces() -> dict[str, dict]:
    """{namespace: {name: function}}; methods only where Tensor has them and td has no function of that name."""
    main = {name: function for name, function in FUNCTIONS.items() if not name.startswith("_")}
    for module in (constructors, from_data, dtype_functions):
        for name, thing in vars(module).items():
            if (
                callable(thing)
                and getattr(thing, "__module__", "") == module.__name__
                and getattr(td, name, None) is thing
            ):
                main[name] = thing
    del main["check_device"]
    for name in (
        "grad",
        "value_and_grad",
        "vjp",
        "compile",
        "cond",
        "switch_case",
        "while_loop",
        "scan",
        "fori_loop",
        "map",
    ):
        main[name] = getattr(td, name)
    result = {"": main}
    for space in ("linalg", "fft", "special", "random"):
        result[space] = public(getattr(td, space))
    methods = {}
    for name in dir(td.Tensor):
        if not name.startswith("_") and name not in main and not name.endswith("_"):
            method = inspect.getattr_static(td.Tensor, name)
            if not str(getattr(method, "__module__", "")).startswith(
                "tandem.torch"
            ):  # which adds methods when imported
                methods[name] = method
    result["Tensor"] = methods
    return result


@cache
def numpy_names() -> dict[str, str]:
    lines = (ROOT / "tests" / "numpy_names.txt").read_text().splitlines()
    return dict(line.split() for line in lines if line and not line.startswith("#"))


@cache
def torch_names() -> set[str]:
    lines = (ROOT / "tests" / "torch_names.txt").read_text().splitlines()
    return {re.match(r"[\w.]+", line).group() for line in lines if line and not line.startswith("#")}


@cache
def standard_names() -> set[str]:
    return set(standard.namespace()) | {f"linalg.{n}" for n in standard.LINALG} | {f"fft.{n}" for n in standard.FFT}


def in_torch(space: str, name: str) -> str:
    if space in ("linalg", "fft"):  # the list of PyTorch's names does not go into these
        return f"torch.{space}.{name}" if name in TORCH_EXTENSIONS[space].split() else ""
    for home in {
        "": ("torch", "nn.functional", "Tensor", "special"),
        "special": ("special",),
        "Tensor": ("Tensor",),
    }.get(space, ("torch",)):
        if f"{home}.{name}" in torch_names():
            return f"{home}.{name}" if home == "torch" else f"torch.{home}.{name}"
    return ""


TORCH_EXTENSIONS = {
    "linalg": "cholesky cholesky_ex cond cross det diagonal eig eigh eigvals eigvalsh householder_product inv inv_ex ldl_factor "
    "ldl_factor_ex ldl_solve lstsq lu lu_factor lu_factor_ex lu_solve matmul matrix_exp matrix_norm matrix_power matrix_rank "
    "multi_dot norm pinv qr slogdet solve solve_ex solve_triangular svd svdvals tensorinv tensorsolve vander vecdot vector_norm",
    "fft": "fft fft2 fftfreq fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft irfft2 irfftn "
    "rfft rfft2 rfftfreq rfftn",
}


def summary(thing) -> str:
    """The first sentence of a docstring."""
    text = inspect.cleandoc(thing.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    text = re.split(r"(?<=[.:])\s+(?=[A-Z(`])", text)[0]
    return text.rstrip(":").replace("|", "\\|").strip()


def counterparts(space: str, name: str) -> tuple[str, str, str]:
    """(Array API, NumPy or SciPy, PyTorch) names of a function, "" where there is none."""
    full = f"{space}.{name}" if space else name
    return full if full in standard_names() else "", numpy_names().get(full, ""), in_torch(space, name)


def render() -> str:
    page = [HEAD]
    for space, functions in spaces().items():
        page.append(f"\n## {TITLES[space]}\n\n")
        page.append("| name | Array API | NumPy, SciPy | PyTorch | what it does |\n| --- | --- | --- | --- | --- |\n")
        groups: dict[int, list[str]] = {}
        for name in sorted(functions):
            groups.setdefault(id(functions[name]), []).append(name)
        for names in groups.values():
            if all(n.endswith("_") and n[:-1] in functions for n in names):
                continue  # shown with the function that it is the in-place form of
            shown = []
            for name in names:
                shown.append(f"`{name}`")
                if space == "" and name + "_" in functions:
                    shown.append(f"`{name}_`")
            columns = zip(*(counterparts(space, name) for name in names), strict=True)
            cells = [", ".join(dict.fromkeys(f"`{n}`" for n in column if n)) for column in columns]
            cells.append(summary(functions[names[0]]))
            page.append(f"| {', '.join(shown)} | {' | '.join(cells)} |\n")
    page.append("\nMade by `make docs` from docstrings and the lists of names in `tests`.\n")
    return "".join(page)


if __name__ == "__main__":
    PAGE.write_text(render())
    print(f"wrote {PAGE}")
