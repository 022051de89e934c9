"""Every public function and method is listed with its counterparts, documented, and mentioned by a test; the page is current."""

import importlib
import pathlib
import re
import runpy

import pytest

ROOT = pathlib.Path(__file__).parent.parent
tool = runpy.run_path(str(ROOT / "tools" / "function_table.py"))
SPACES = tool["spaces"]()

# What neither the standard nor NumPy, SciPy or PyTorch has, at least not under a name of its own.
OWN = {
    "": "cond dynamic_partition dynamic_stitch fori_loop map scan segment_max segment_mean segment_min segment_prod "
    "segment_softmax segment_sum stop_gradient switch_case trunc_divide value_and_grad vector_norm vjp while_loop",
    "linalg": "cholesky_inverse cholesky_solve",
    "fft": "",
    "special": "",
    "random": "categorical cauchy fork_rng",
    "Tensor": "device_mesh full_tensor placements redistribute sharding strides to_device to_local view_as_self",
}


def words_of_tests() -> set[str]:
    """Names after a dot, in quotes or as a whole word of a table in the tests."""
    found = set()
    for file in (ROOT / "tests").rglob("*.py"):
        if file != pathlib.Path(__file__):
            text = file.read_text()
            found.update(re.findall(r"\.([A-Za-z_]\w*)", text))
            for string in re.findall(r'"""(.*?)"""|"([^"\n]*)"', text, re.DOTALL):
                found.update(re.findall(r"[A-Za-z_]\w*", "".join(string)))
    return found


WORDS = words_of_tests()


@pytest.mark.parametrize("space", SPACES)
def test_every_function_has_a_counterpart_or_is_known_to_be_ours(space):
    own, functions = OWN[space].split(), SPACES[space]
    alone = [n for n in functions if not n.endswith("_") and not any(tool["counterparts"](space, n)) and n not in own]
    assert not alone, (
        f"{', '.join(alone)}: no counterpart; add the name to tests/numpy_names.txt or, if nobody has it, to OWN here"
    )
    gone = [n for n in own if n not in functions]
    assert not gone, f"{', '.join(gone)}: listed in OWN, but not there"


@pytest.mark.parametrize("space", SPACES)
def test_every_function_is_documented(space):
    silent = [name for name, function in SPACES[space].items() if not tool["summary"](function)]
    assert not silent, f"{', '.join(silent)}: no docstring"


@pytest.mark.parametrize("space", SPACES)
def test_every_function_is_mentioned_by_a_test(space):
    functions = SPACES[space]
    names: dict[int, list[str]] = {}
    for name, function in functions.items():
        names.setdefault(id(function), []).append(name)
    untested = [
        group[0]
        for group in names.values()
        if not any(n in WORDS or (n.endswith("_") and n[:-1] in WORDS) for n in group)
    ]
    assert not untested, f"{', '.join(untested)}: no test mentions it"


def test_counterparts_in_numpy_exist():
    pytest.importorskip("scipy")
    for ours, theirs in tool["numpy_names"]().items():
        space, _, name = ours.rpartition(".")
        assert name in SPACES[space], f"{ours} of tests/numpy_names.txt is not a function of ours"
        module, _, rest = theirs.rpartition(".")
        parts = [rest]
        while True:
            try:
                found = importlib.import_module(module)
                break
            except ImportError:
                module, _, rest = module.rpartition(".")
                parts.insert(0, rest)
        for part in parts:
            assert hasattr(found, part), f"{theirs}, the counterpart of {ours}, does not exist"
            found = getattr(found, part)


def test_the_page_of_functions_is_current():
    assert tool["render"]() == (ROOT / "docs" / "functions.md").read_text(), "run `make docs`"
