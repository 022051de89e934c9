"""Every name of PyTorch is here, or docs/pytorch.md says that it is left out; parameters are accepted under PyTorch's names.

tests/torch_names.txt is written by tools/list_torch_names.py.
"""

import fnmatch
import importlib
import inspect
import pathlib
import re

import pytest

import tandem as td
import tandem.torch

ROOT = pathlib.Path(__file__).parent.parent
SPACES = {"torch": tandem.torch, "Tensor": td.Tensor}
LINES = [line for line in (ROOT / "tests" / "torch_names.txt").read_text().splitlines() if not line.startswith("#")]
NAMES = {line.partition("(")[0]: re.findall(r"\w+", line.partition("(")[2]) for line in LINES}


def space_of(full: str) -> tuple:
    space, _, name = full.rpartition(".")
    return SPACES[space] if space in SPACES else importlib.import_module("tandem." + space), name


def find(full: str):
    return getattr(*space_of(full), None)


def has(full: str) -> bool:
    return hasattr(*space_of(full))


def listed(section: str) -> list[str]:
    text = (ROOT / "docs" / "pytorch.md").read_text().partition(f"## {section}")[2].partition("\n## ")[0]
    return re.findall(r"`([^`]+)`", text)


LEFT_OUT, TO_COME = listed("Left out on purpose"), listed("Still to come")


def test_nothing_is_missing_silently():
    patterns = LEFT_OUT + TO_COME
    missing = [n for n in NAMES if not has(n) and not any(fnmatch.fnmatchcase(n, p) for p in patterns)]
    assert not missing, f"neither here nor in docs/pytorch.md: {', '.join(missing)}"


def test_what_is_left_out_exists_in_pytorch_and_not_here():
    known = set(NAMES)
    assert not [p for p in LEFT_OUT + TO_COME if not fnmatch.filter(known, p)], "no such names in PyTorch"
    assert not [p for p in LEFT_OUT if "*" not in p and has(p)], "these are here now: take them off the list"


# Parameters that say nothing here: layouts, pinned memory, settings of one library, and what PyTorch itself calls deprecated.
MEANINGLESS = {
    "layout", "pin_memory", "names", "memory_format", "size_average", "cudnn_enabled", "requires_grad", "device", "dtype", "self",
    "out", "inplace", "non_blocking", "sparse_grad", "sparse", "stacklevel", "_stacklevel", "reduce", "out_int32", "unsafe",
}  # fmt: skip
# name -> parameters that are not taken, and why
# PyTorch's own functions call these otherwise than the table of overrides from which the list comes.
MISNAMED = {
    "cholesky_solve", "histogram", "index_reduce", "index_reduce_", "lu_solve", "msort", "ormqr", "polar", "put_", "random_",
    "topk", "uniform_",
}  # fmt: skip
NOT_TAKEN = {
    "torch.convolution": "output_padding, which PyTorch's overrides misspell",
    "torch.embedding": "as nn.functional.embedding, which has them",
    "autograd.backward": "grad_variables, the old name of grad_tensors",
    "func.jacrev": "_preallocate_and_copy",
    "torch.bmm": "out_dtype", "torch.mm": "out_dtype", "Tensor.bmm": "out_dtype", "Tensor.mm": "out_dtype",
    "Tensor.dim_order": "ambiguity_check",
    "Tensor.register_hook": "the hook's name",
    "torch.while_loop": "the names of the operands", "torch.cond": "the names of the operands",
    "torch.stft": "align_to_window", "Tensor.stft": "align_to_window",
    "torch.isin": "PyTorch's overrides name them otherwise than its functions",
    "torch.compile": "options of another compiler",
    "nn.functional.linear_cross_entropy": "options: into how many parts PyTorch divides it",
    "torch.manual_seed": "", "torch.set_rng_state": "", "torch.enable_grad": "", "torch.no_grad": "",
    "torch.asarray": "", "torch.from_dlpack": "", "torch.save": "", "torch.load": "",
}  # fmt: skip


def aliases() -> dict[str, set[str]]:
    text = (ROOT / "src" / "operators" / "aliases.h").read_text().partition("kAliases[] = {")[2].partition("};")[0]
    found: dict[str, set[str]] = {}
    for given, ours in re.findall(r'\{"(\w+)", "(\w+)"\}', text):
        found.setdefault(given, set()).add(ours)
    return found


ALIASES = aliases()


def not_accepted(function, names: list[str]) -> list[str]:
    """Those of the names that the function takes neither as its own nor as another name for one of its own."""
    if hasattr(function, "parameters"):
        own = {p.name for p in function.parameters}
    else:
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):
            return []
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return []
        own = set(parameters)
        if any(p.kind is p.VAR_POSITIONAL for p in parameters.values()):
            return []
    return [n for n in names if n not in own and not ALIASES.get(n, set()) & own and n not in MEANINGLESS]


def test_parameters_have_pytorchs_names():
    wrong = {}
    for full, names in NAMES.items():
        function = find(full)
        if function is None or not names or not callable(function) or inspect.isclass(function) or full in NOT_TAKEN:
            continue
        # the first is given by position (x in a method, the tensor in a function), whatever its name
        rest = not_accepted(function, names[1:])
        if rest:
            wrong[full] = rest
    wrong = {k: v for k, v in wrong.items() if k.rpartition(".")[2] not in MISNAMED}
    assert not wrong, f"accept these names (see kAliases) or say in NOT_TAKEN why not: {wrong}"


@pytest.mark.oracle
def test_the_list_is_that_of_the_installed_pytorch():
    torch = pytest.importorskip("torch")
    version = (ROOT / "tests" / "torch_names.txt").read_text().split()[2]
    if not torch.__version__.startswith(version):
        pytest.skip(f"the list is of PyTorch {version}")
    current = {f"torch.{n}" for n in dir(torch) if not n.startswith("_") and callable(getattr(torch, n))}
    current |= {f"Tensor.{n}" for n in dir(torch.Tensor) if not n.startswith("_")}
    assert not current - set(NAMES), "run tools/list_torch_names.py"
