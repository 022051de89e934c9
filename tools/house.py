"""Counts of how the code is arranged: imports, knots between folders, tests, docstrings, long files, tuples, lists by hand.

    python tools/house.py            a table of the counts
    python tools/house.py --list     and what stands behind each of them

Note [Imports inside functions]
An import of our own inside a function hides what a module depends on, so it is there for one reason only: what it loads is heavy
and most processes never need it. `LAZY` names those modules, each with its reason. Where a lower layer needs an upper one, it calls
a function that the upper one provides (tandem/hooks.py), or a method of the object that it was given.
"""

from __future__ import annotations

import argparse
import ast
import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "tandem"
SOURCES = ROOT / "src"

_COMPILER = "the compiler: a process whose programs are on disk or prebuilt never loads it"
_CUDA = "for devices alone: it opens NVIDIA's libraries"
_DEFERRED = "deferred graphs: eager and compiled code never loads them"
_PAGES = "pages for browsers: templates and scripts"
_SPARSE = "sparse tensors: dense programs never load them"
_RAY = "Ray, where it is installed"
_PROCESSES = "processes, sockets and launchers: a program of one process never loads them"

# Modules that may be imported inside functions. A name stands for all below it where what imports is not below it, too.
LAZY = {
    "tandem.autodiff.regions": "gradients of loops and branches, with all that divides graphs",
    "tandem.checkpoint.foreign": "files of other libraries",
    "tandem.codegen": _COMPILER,
    "tandem.codegen.cuda": _CUDA,
    "tandem.codegen.cuda.assemble": _CUDA,
    "tandem.codegen.cuda.libraries": _CUDA,
    "tandem.codegen.cuda.nvrtc": _CUDA,
    "tandem.codegen.llvm": _COMPILER,
    "tandem.codegen.mathlib": "polynomials of all math functions",
    "tandem.control.graphs": _DEFERRED,
    "tandem.control.vertices": _DEFERRED,
    "tandem.data.processes": _PROCESSES,
    "tandem.distributed": _PROCESSES,
    "tandem.distributed.cluster.ray_engine": _RAY,
    "tandem.distributed.gloo": "Gloo's library",
    "tandem.distributed.hosts": _PROCESSES,
    "tandem.distributed.mpi": "MPI's library",
    "tandem.distributed.ray_launch": _RAY,
    "tandem.graph.serialize": "files of graphs",
    "tandem.graph.view": _PAGES,
    "tandem.llvm": _COMPILER,
    "tandem.multiprocessing": _PROCESSES,
    "tandem.pages": _PAGES,
    "tandem.tensors.parts": _SPARSE,
    "tandem.pjrt": "accelerators behind PJRT, with all that exports",
    "tandem.replay": "calls that are replayed: few programs ask for it",
    "tandem.machine.prebuilt": _COMPILER,
    "tandem.profiler": "json, dataclasses and tables: most programs are not profiled",
    "tandem.random": "functions of td.random",
    "tandem.errors.reading": "Python's parser, for one kind of error",
    "tandem.serve": "a web server",
    "tandem.session": _DEFERRED,
    "tandem.session.serialize": "files of graphs",
    "tandem.sparse": _SPARSE,
    "tandem.testing": "a plugin of pytest must not import the package before coverage starts",
    "tandem.torch.left_out": "a long table, for errors",
    "tandem.tracing": _COMPILER,
    "tandem.training": "the trainer with models and data, for commands",
    "tandem.transforms.cells": _COMPILER,
    "tandem.transforms.grouped": _COMPILER,
    "tandem.v1.sync_replicas": _PROCESSES,
}


class Import(NamedTuple):
    """One import of a module of ours."""

    module: str  # that imports
    target: str
    line: int
    in_function: bool


def modules() -> dict[str, pathlib.Path]:
    """Every module of the package and its file."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(known: dict[str, pathlib.Path]) -> list[Import]:
    """All imports of our own, inside functions too; not those for type checkers."""
    found: list[Import] = []
    everything = {*known, "tandem._runtime"}

    def targets(node) -> set[str]:
        if isinstance(node, ast.Import):
            return {alias.name for alias in node.names if alias.name.split(".")[0] == "tandem"} - {"tandem._runtime"}
        if node.level or not node.module or node.module.split(".")[0] != "tandem":
            return set()
        inner = {f"{node.module}.{alias.name}" for alias in node.names}
        return {name if name in everything else node.module for name in inner} - {"tandem._runtime"}

    def walk(module: str, node, inside: bool):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.Import | ast.ImportFrom):
                found.extend(Import(module, t, child.lineno, inside) for t in sorted(targets(child)))
            walk(module, child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    for module, path in known.items():
        walk(module, ast.parse(path.read_text()), False)
    return found


def reason_for(item: Import) -> str | None:
    """Why an import is inside a function, if it may be."""
    if item.target in LAZY:
        return LAZY[item.target]
    parts = item.target.split(".")
    above = (".".join(parts[:n]) for n in range(len(parts) - 1, 1, -1))
    return next((LAZY[name] for name in above if name in LAZY and not f"{item.module}.".startswith(f"{name}.")), None)


def folder_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def knots(edges: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components of more than one node (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def knots_of_folders(found: list[Import]) -> list[list[str]]:
    """Folders of the package (and its loose modules) that import one another, imports inside functions counted. The package itself
    is a folder too, whose `__init__` imports what users name; names that it only offers when asked are no imports."""
    edges: dict[str, set[str]] = {}
    for item in found:
        a, b = folder_of(item.module), folder_of(item.target)
        if a != b:
            edges.setdefault(a, set()).add(b)
    return knots(edges)


def includes_upwards() -> list[str]:
    """Includes between folders of src/ that form a knot."""
    edges: dict[str, set[str]] = {}
    for file in sorted([*SOURCES.rglob("*.h"), *SOURCES.rglob("*.cc")]):
        room = file.relative_to(SOURCES).parts[0] if len(file.relative_to(SOURCES).parts) > 1 else ""
        for included in re.findall(r'^#include "([^"]+)"', file.read_text(), re.MULTILINE):
            other = included.split("/")[0] if "/" in included else ""
            if room and other and other != room and (SOURCES / other).is_dir():
                edges.setdefault(room, set()).add(other)
    return [" ".join(knot) for knot in knots(edges)]


def untested(known: dict[str, pathlib.Path], mirrored: bool = False) -> list[str]:
    """Source files without a test file of their name (test_NAME.py), anywhere or, `mirrored`, in the folder of tests/ that is
    theirs: tests/nn/test_linear.py for tandem/nn/linear.py. A folder's name may come first: tests/codegen/test_cuda_fft.py."""
    tests: dict[str, set[pathlib.Path]] = {}
    for path in (ROOT / "tests").rglob("test_*.*"):
        tests.setdefault(path.stem.removeprefix("test_"), set()).add(path.parent.relative_to(ROOT / "tests"))
    missing = []
    for path in known.values():
        if path.stem.startswith("__") or not _has_code(path):
            continue
        folder = path.parent.relative_to(PACKAGE)
        names = {path.stem, f"{path.parent.name}_{path.stem}", f"{path.stem}s", path.stem.removesuffix("s")}
        found = set().union(*(tests.get(name, set()) for name in names))
        own = {folder} | (tests.get(f"{path.parent.name}_{path.stem}", set()) & {folder.parent})
        if not (found & own if mirrored else found):
            missing.append(str(path.relative_to(ROOT)))
    return missing


def _has_code(path: pathlib.Path) -> bool:
    return any(isinstance(n, ast.FunctionDef | ast.ClassDef) for n in ast.parse(path.read_text()).body)


def tested_share(known: dict[str, pathlib.Path], mirrored: bool) -> float:
    files = [p for p in known.values() if not p.stem.startswith("__") and _has_code(p)]
    return 1 - len(untested(known, mirrored)) / len(files)


def native_untested() -> tuple[list[str], int]:
    """Files of src/ without a native test, or a test of their name in a folder of theirs, and how many files there are."""
    tests = {p.stem.removeprefix("test_") for p in (ROOT / "tests" / "src").rglob("*.*")}
    tests |= {f"{p.parent.name}/{p.stem.removeprefix('test_')}" for p in (ROOT / "tests").rglob("test_*.py")}
    files = sorted(SOURCES.rglob("*.cc"))
    missing = [p for p in files if not {p.stem, f"{p.parent.name}/{p.stem}"} & tests]
    return [str(p.relative_to(ROOT)) for p in missing], len(files)


# What Python reads of tuples that the runtime makes: Note [Tuples across the border].
#
# Note [Tuples across the border]
# A tuple of three or more that C++ hands to Python has a NamedTuple there, with as many fields. The line that makes it, or the one
# before, says which: `// -> CallSpec`. Tuples of the standards, and those that are unpacked by a function of the same name in
# tandem/_runtime.pyi, say `// -> tuple` and why.
_MADE = re.compile(r'Py_BuildValue\(\s*"\(?([a-zA-Z]{3,})\)?"|nb::make_tuple\(')


def _arguments(text: str) -> int:
    """How many arguments a call has whose opening parenthesis comes first."""
    depth, count = 0, 1
    for c in text:
        depth += c in "([{"
        depth -= c in ")]}"
        count += c == "," and depth == 1
        if depth == 0:
            break
    return count


def unnamed_tuples(known: dict[str, pathlib.Path]) -> list[str]:
    """Tuples of three or more that C++ makes for Python without a NamedTuple of as many fields there."""
    fields: dict[str, set[int]] = {}
    for path in known.values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and ("NamedTuple" in ast.dump(node) or node.decorator_list):
                fields.setdefault(node.name, set()).add(sum(isinstance(n, ast.AnnAssign) for n in node.body))
    found = []
    for path in sorted(SOURCES.rglob("*.cc")):
        text = path.read_text()
        for made in _MADE.finditer(text):
            count = len(made.group(1)) if made.group(1) else _arguments(text[made.end() - 1 :])
            if count < 3:
                continue
            line = text.count("\n", 0, made.start())
            near = " ".join(text.splitlines()[max(0, line - 1) : line + 3])
            name = re.search(r"// -> (\w+)", near)
            if name is None or (name.group(1) != "tuple" and count not in fields.get(name.group(1), ())):
                found.append(f"{path.relative_to(ROOT)}:{line + 1} {count} values")
    return found


def names_compared(known: dict[str, pathlib.Path]) -> list[str]:
    """Comparisons with names of operators, `node.op.name == "matmul"`: an attribute of the operator, or its class, says more."""
    pattern = re.compile(r"\bop\.name (?:==|!=|in|not in) ")
    return [
        f"{path.relative_to(ROOT)}:{n}"
        for path in known.values()
        for n, line in enumerate(path.read_text().splitlines(), 1)
        for _ in pattern.findall(line)
    ]


def attributes_asked(known: dict[str, pathlib.Path]) -> list[str]:
    """Attributes of operators and functions that getattr asks for by name, with a default for those that have none."""
    pattern = re.compile(r'getattr\((?:\w+\.)*(?:op|function|program|kind), "[a-z]\w+"')
    return [
        f"{path.relative_to(ROOT)}:{n} {m}"
        for path in known.values()
        for n, line in enumerate(path.read_text().splitlines(), 1)
        for m in pattern.findall(line)
    ]


def loose_modules() -> list[str]:
    """Modules beside the folders of tandem/."""
    return sorted(p.stem for p in PACKAGE.glob("*.py") if not p.stem.startswith("__"))


def without_docstring(known: dict[str, pathlib.Path]) -> tuple[list[str], int]:
    """Public functions and methods without a docstring, and how many public ones there are. As for Python's help(), a method has
    the docstring of the base class's method that it overrides."""
    trees = {
        module: ast.parse(path.read_text())
        for module, path in known.items()
        if not any(part.startswith("_") for part in module.split("."))
    }
    classes: dict[str, list[ast.ClassDef]] = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)

    def inherits(cls: ast.ClassDef, name: str, seen: set[str]) -> bool:
        for base in cls.bases:
            base_name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
            if base_name in seen:
                continue
            seen.add(base_name)
            for found in classes.get(base_name, ()):
                own = [n for n in found.body if isinstance(n, ast.FunctionDef) and n.name == name]
                if any(ast.get_docstring(n) for n in own) or inherits(found, name, seen):
                    return True
        return False

    missing, count = [], 0

    def visit(module: str, body, prefix: str, cls: ast.ClassDef | None):
        nonlocal count
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                visit(module, node.body, f"{prefix}{node.name}.", node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                count += 1
                if ast.get_docstring(node) is None and not (cls is not None and inherits(cls, node.name, set())):
                    missing.append(f"{module}: {prefix}{node.name}")

    for module, tree in trees.items():
        visit(module, tree.body, "", None)
    return missing, count


def long_files(limit: int = 500) -> list[str]:
    """Source files over so many lines."""
    files = [*PACKAGE.rglob("*.py"), *SOURCES.rglob("*.h"), *SOURCES.rglob("*.cc")]
    counts = [(len(p.read_text().splitlines()), str(p.relative_to(ROOT))) for p in files]
    return [f"{name} {n}" for n, name in sorted(counts, reverse=True) if n > limit]


def folders_without_readme() -> list[str]:
    """Folders with sources but no README.md."""
    folders = {p.parent for kind in ("*.py", "*.h", "*.cc") for top in (PACKAGE, SOURCES) for p in top.rglob(kind)}
    return sorted(str(f.relative_to(ROOT)) for f in folders if not (f / "README.md").exists())


def steps_without_test() -> list[str]:
    """Passes and steps of lowering without a test file of their name."""
    missing = []
    for file, table, tests in (
        ("passes/pipeline.py", "PIPELINE", "passes"),
        ("codegen/lower.py", "LOWERING", "codegen"),
    ):
        for node in ast.parse((PACKAGE / file).read_text()).body:
            target = (
                node.target
                if isinstance(node, ast.AnnAssign)
                else node.targets[0]
                if isinstance(node, ast.Assign)
                else None
            )
            if isinstance(target, ast.Name) and target.id == table:
                names = dict.fromkeys(n.id for n in ast.walk(node.value) if isinstance(n, ast.Name))
                missing += [n for n in names if not (ROOT / "tests" / tests / f"test_{n}.py").exists()]
    return missing


def main():
    parser = argparse.ArgumentParser(description="Counts of how the code is arranged.")
    parser.add_argument("--list", action="store_true", help="what stands behind each count")
    options = parser.parse_args()
    known = modules()
    found = imports(known)
    inside = [i for i in found if i.in_function]
    lazy = [i for i in inside if reason_for(i)]
    other = [f"{known[i.module].relative_to(ROOT)}:{i.line} {i.target}" for i in inside if not reason_for(i)]
    bare, public = without_docstring(known)
    tied = knots_of_folders(found)
    native, native_count = native_untested()
    tuples, compared, asked = unnamed_tuples(known), names_compared(known), attributes_asked(known)
    rows = [
        (
            "imports of our own inside functions: lazy loads on the list",
            len(lazy),
            [f"{t}: {r}" for t, r in LAZY.items()],
        ),
        ("imports of our own inside functions: others", len(other), other),
        ("knots between folders of tandem/, all imports counted", len(tied), [" ".join(k) for k in tied]),
        ("knots between folders of src/", len(includes_upwards()), includes_upwards()),
        ("passes and steps of lowering without a test of their name", len(steps_without_test()), steps_without_test()),
        ("source files with a test of their name", f"{tested_share(known, False):.0%}", untested(known)),
        (
            "source files with a test of their name in the folder that mirrors theirs",
            f"{tested_share(known, True):.0%}",
            untested(known, mirrored=True),
        ),
        ("files of src/ with a test of their name", f"{1 - len(native) / native_count:.0%}", native),
        ("public functions with a docstring", f"{1 - len(bare) / public:.0%}", bare),
        ("source files over 500 lines", len(long_files()), long_files()),
        ("folders without README.md", len(folders_without_readme()), folders_without_readme()),
        ("modules beside the folders of tandem/", len(loose_modules()), loose_modules()),
        ("tuples for Python without a NamedTuple", len(tuples), tuples),
        ("comparisons with op.name", len(compared), compared),
        ("attributes of operators asked for with getattr", len(asked), asked),
    ]
    for name, count, behind in rows:
        print(f"{count!s:>6}  {name}")
        if options.list:
            for line in behind:
                print(f"            {line}")


if __name__ == "__main__":
    main()
