"""What type checkers are told of the package."""

import ast
import pathlib
import subprocess
import sys

import pytest

import tandem as td

ROOT = pathlib.Path(td.__file__).parent


def names(path: pathlib.Path) -> set[str]:
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            found.add(node.target.id)
        elif isinstance(node, ast.Assign):  # another name of a class
            found |= {target.id for target in node.targets}
        elif isinstance(node, ast.ImportFrom):
            found |= {a.asname or a.name for a in node.names}
    return found


def test_every_function_and_method_is_declared():
    functions = {n for n, v in vars(td).items() if not n.startswith("_") and callable(v)}
    assert functions - names(ROOT / "__init__.pyi") == set()
    tree = ast.parse((ROOT / "__init__.pyi").read_text())
    tensor = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor")
    methods = {n.name for n in tensor.body if isinstance(n, ast.FunctionDef)}
    assert {n for n in dir(td.Tensor) if not n.startswith("_")} - methods == set()
    assert (ROOT / "py.typed").exists()


def test_layers_and_loaders_are_declared():
    assert {n for n in vars(td.nn) if n[0].isupper()} - names(ROOT / "nn" / "__init__.pyi") == set()
    assert {"DataLoader", "Dataset", "TensorDataset", "sets"} <= names(ROOT / "data" / "__init__.pyi")


@pytest.mark.slow
def test_the_stubs_are_current():
    done = subprocess.run([sys.executable, "tools/write_stubs.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


USES = """
import tandem as td
from tandem import nn
x = td.ones(2, 3)
reveal_type(x)
reveal_type(td.softmax(x, dim=-1))
reveal_type(x.sum(0).item)
reveal_type(x.shape)
reveal_type(td.topk(x, 1).values)
reveal_type(nn.Linear(2, 3).weight)
td.softmax(x, axes_of_evil=1)
"""


@pytest.mark.slow
def test_mypy_sees_signatures_and_accepts_the_examples(tmp_path):
    pytest.importorskip("mypy")

    def check(*what):
        return subprocess.run(
            [sys.executable, "-m", "mypy", "--ignore-missing-imports", "--cache-dir", str(tmp_path), *what],
            capture_output=True,
            text=True,
        ).stdout

    (tmp_path / "uses.py").write_text(USES)
    told = check(str(tmp_path / "uses.py"))
    for expected in ('"tandem.Tensor"', '"tandem.Size"', 'Unexpected keyword argument "axes_of_evil" for "softmax"'):
        assert expected in told
    assert told.count('Revealed type is "tandem.Tensor"') >= 3
    assert "Success" in check("examples"), check("examples")


@pytest.mark.slow
def test_pyright_accepts_the_examples():
    pytest.importorskip("pyright")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "examples"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "0 errors" in done.stdout, done.stdout[-3000:]


def test_names_of_distributed_are_all_there():
    """They are imported when first used, so nothing else would notice."""
    assert set(td.distributed.__all__) == names(ROOT / "distributed" / "__init__.pyi")
    for name in td.distributed.__all__:
        assert getattr(td.distributed, name) is not None
    assert callable(td.distributed.data_parallel) and callable(td.distributed.fully_shard)
    with pytest.raises(AttributeError, match=r"tandem\.distributed.*no attribute 'all_redoce'"):
        td.distributed.all_redoce
