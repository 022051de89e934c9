"""The package as users and contributors meet it: import, README, quick start, stubs, folder rules."""

import ast
import contextlib
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "tandem"
built = pytest.mark.skipif(importlib.util.find_spec("tandem._runtime") is None, reason="the extension is not built")


def run(*arguments: str, timeout: float = 300, env: dict | None = None) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=timeout, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@built
def test_import_is_quick(tmp_path):
    # CPU time, and the best of a few: other work on the machine is not what is measured. With byte code, as users have it.
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
        "PYTHONPYCACHEPREFIX": str(tmp_path)
    }
    code = "import time; t = time.process_time(); import tandem; print(time.process_time() - t)"
    best = min(float(run("-c", code, env=env)) for _ in range(5))
    assert best < 0.2


@built
def test_heavy_packages_are_imported_when_first_needed():
    code = "import sys, tandem; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(run("-c", code).split())
    assert set() == loaded & {"llvmlite", "rich", "scipy", "safetensors", "pytest", "torch", "ray", "pyarrow"}


@built
def test_the_example_in_the_readme_prints_what_it_says():
    text = (ROOT / "README.md").read_text()
    code, output = re.search(r"```python\n(.*?)```\n\n((?:    [^\n]*\n|\n)+)", text, re.DOTALL).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    expected = "\n".join(line[4:] for line in output.rstrip().splitlines())
    assert expected == printed.getvalue().rstrip()


@built
def test_the_quick_start_learns(tmp_path):
    last = re.findall(r"accuracy (\S+)", run("examples/quickstart.py", "--epochs", "3", "--out", str(tmp_path)))[-1]
    assert float(last) > 0.9
    assert (tmp_path / "page.html").exists()


@built
def test_the_type_stubs_of_the_extension_are_current(tmp_path):
    pytest.importorskip("nanobind", reason="nanobind writes the stubs")
    run("-m", "nanobind.stubgen", "-q", "-m", "tandem._runtime", "-o", str(tmp_path / "_runtime.pyi"))
    assert (tmp_path / "_runtime.pyi").read_text() == (PACKAGE / "_runtime.pyi").read_text(), "run `make stubs`"


def test_commands_in_the_readme_are_targets_of_the_makefile():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md"):
        used = set(re.findall(r"^    make ([\w-]+)", (ROOT / page).read_text(), re.MULTILINE))
        assert used, page
        assert set() == used - targets


def modules() -> dict[str, pathlib.Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_at_the_top(path: pathlib.Path, known: set[str]) -> set[str]:
    """Modules of ours that importing this file imports: not those inside functions, which is how a cycle is broken."""
    found = set()
    pending = list(ast.parse(path.read_text()).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & known or {node.module}
        elif isinstance(node, ast.If | ast.Try | ast.With) and "TYPE_CHECKING" not in ast.dump(
            getattr(node, "test", node)
        ):
            pending += ast.iter_child_nodes(node)
    return found & known


# An op family may use another one (`import tandem.ops as F`, looked up when called), so cycles are judged between folders.
def test_folders_do_not_import_each_other_in_a_cycle():
    files = modules()
    folder = lambda name: ".".join(name.split(".")[:2])
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        if name != "tandem":
            graph.setdefault(folder(name), set()).update(
                folder(other) for other in imports_at_the_top(path, set(files)) if other != "tandem"
            )
    done: set[str] = set()

    def visit(node: str, trail: tuple[str, ...]):
        assert node not in trail, "import cycle: " + " -> ".join([*trail[trail.index(node) :], node])
        if node not in done:
            for other in sorted(graph.get(node, ()) - {node}):
                visit(other, (*trail, node))
            done.add(node)

    for node in sorted(graph):
        visit(node, ())


def test_errors_and_switches_sit_at_the_bottom():
    known = set(modules())
    assert {"tandem.forks"} == imports_at_the_top(
        PACKAGE / "switches.py", known
    )  # and tandem._runtime, which imports nothing
    assert set() == imports_at_the_top(PACKAGE / "forks.py", known)
    assert {"tandem.errors.module_calls", "tandem.errors.readers", "tandem.switches"} == imports_at_the_top(
        PACKAGE / "errors" / "__init__.py", known
    )
    assert set() == imports_at_the_top(PACKAGE / "errors" / "readers.py", known)
    assert set() == imports_at_the_top(PACKAGE / "errors" / "module_calls.py", known)
    assert set() == imports_at_the_top(PACKAGE / "hooks.py", known)


def test_every_pass_and_every_step_of_lowering_has_a_test_of_its_name():
    from tandem.codegen.lower import LOWERING
    from tandem.passes.pipeline import PIPELINE

    missing = [f"tests/passes/test_{p.__name__}.py" for p in PIPELINE] + [
        f"tests/codegen/test_{step.__name__}.py" for step in LOWERING
    ]
    assert [] == [path for path in dict.fromkeys(missing) if not (PACKAGE.parent / path).exists()]


def test_folders_with_python_files_are_packages():
    """What documents and checks packages does not look into folders without __init__.py."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert [] == sorted(str(f.relative_to(ROOT)) for f in folders if not (f / "__init__.py").exists())
