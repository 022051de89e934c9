"""Pages of the reference, for mkdocs: what is public, by family, as directives that mkdocstrings fills from docstrings.

A hook that mkdocs.yml names. The registry of operators and the `__all__` of packages say what is public, so nothing is listed
twice; the pages exist only in the built site. `python tools/docs_reference.py` prints what would be on them.
"""

import ast
import functools
import importlib
import importlib.util
import inspect
import pathlib
import sys

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import tandem as td  # noqa: E402
from tandem.ops.define import FUNCTIONS  # noqa: E402

# Title, and the modules or single names on the page.
PACKAGES = {
    "Compile, print, bisect": [
        "tandem.compiling.compiled:compile", "tandem.compiling.compiled:print", "tandem.testing.bisect:bisect",
    ],
    "Constructors": [
        "tandem.tensors.constructors", "tandem.ops.from_data:tensor", "tandem.ops.from_data:asarray",
        "tandem.tensors.dtype_functions",
    ],
    "Gradients": ["tandem.autograd", "tandem.autograd.gradients:grad", "tandem.autograd.gradients:value_and_grad",
                  "tandem.autograd.gradients:vjp", "tandem.transforms.functional"],
    "Transforms": ["tandem.transforms"],
    "tree": ["tandem.tree"],
    "Control flow": ["tandem.control"],
    "linalg": ["tandem.linalg"],
    "fft": ["tandem.fft"],
    "special": ["tandem.special"],
    "random": ["tandem.random"],
    "distributions": ["tandem.distributions"],
    "nn": ["tandem.nn"],
    "nn.init": ["tandem.nn.init"],
    "nn.utils": ["tandem.nn.utils"],
    "optim": ["tandem.optim"],
    "optim.lr_scheduler": ["tandem.optim.lr_scheduler", "tandem.optim.swa_utils"],
    "data": ["tandem.data"],
    "data.sources": ["tandem.data.sources"],
    "data.transforms": ["tandem.data.transforms"],
    "data.sets": ["tandem.data.sets"],
    "multiprocessing": ["tandem.multiprocessing"],
    "checkpoint": ["tandem.checkpoint"],
    "training": ["tandem.training"],
    "models": ["tandem.models"],
    "Graphs and sessions": ["tandem.session"],
    "memory": ["tandem.memory"],
    "cuda": ["tandem.cuda", "tandem.autocast:autocast", "tandem.autocast:GradScaler"],
    "Profiles and timing": ["tandem.profiler:profile", "tandem.benchmarking:benchmark"],
    "testing": ["tandem.testing"],
    "utils": ["tandem.utils.checkpoint:checkpoint_sequential", "tandem.utils.tensorboard:SummaryWriter"],
    "Switches": ["tandem.switches:switches"],
    "Errors": ["tandem.errors"],
}  # fmt: skip

# The menu of the reference: topics, and the pages under each, by title. Families of td's functions are named by their files.
TOPICS = {
    "Make and move tensors": [
        "Constructors", "Create", "Random", "Draws", "random", "Movement", "Views", "Join", "Rearrange", "Combine",
        "Memory format", "Torch names",
    ],
    "Elementwise": [
        "Arithmetic", "Division", "Power", "Unary", "Trigonometry", "Rounding", "Comparison", "Classify", "Bitwise",
        "Integers", "Complexes", "special", "Special", "Gamma", "Bessel", "Incomplete",
    ],
    "Sums, order, indices": [
        "Reduce", "Statistics", "Cumulative", "Order", "Sort", "Sets", "Nonzero", "Index", "Scatter", "Segments",
        "Partition", "Histogram", "Calculus",
    ],
    "Linear algebra, FFT, signals": [
        "Matmul", "Products", "Einsum", "linalg", "Linalg, products", "Linalg, solve", "Linalg, qr", "Linalg, spectral",
        "Linalg, triangular", "Linalg, lowrank", "Distances", "fft", "Fft, short time", "Signal windows",
    ],
    "Networks": [
        "nn", "nn.init", "nn.utils", "models", "Activation", "Linear", "Conv", "Pool", "Normalization", "Dropout",
        "Embedding", "Attention", "Recurrent", "Softmax", "Loss", "Grid",
    ],
    "Gradients and transforms": [
        "Gradients", "Transforms", "tree", "Control flow",
    ],
    "Training and data": [
        "optim", "optim.lr_scheduler", "training", "checkpoint", "data", "data.sources", "data.transforms", "data.sets",
        "distributions", "multiprocessing",
    ],
    "Programs, devices, tools": [
        "Compile, print, bisect", "Graphs and sessions", "cuda", "memory", "Profiles and timing", "Switches", "Errors",
        "testing", "utils",
    ],
}  # fmt: skip


@functools.cache
def defined(module: str) -> set[str]:
    """Names that a module's source defines at its top: what can be documented without running it."""
    path = importlib.import_module(module).__file__ or ""
    source = pathlib.Path(path).read_text() if path.endswith(".py") else ""  # the extension has none
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.parse(source).body if isinstance(node, kinds) and ast.get_docstring(node)}


def place(thing) -> str | None:
    """`module.name` where something public is defined, if it has a docstring there."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not module or not name or not module.startswith("tandem"):
        return None
    if module in ("tandem", "tandem.nn"):  # some classes are shown as if they were from the package itself
        module = inspect.getmodule(inspect.unwrap(getattr(thing, "__init__", thing))).__name__
    name = getattr(thing, "__name__", name)
    return f"{module}.{name}" if importlib.util.find_spec(module) and name in defined(module) else None


def public(module) -> list:
    names = getattr(module, "__all__", None)
    if names is None:
        names = [n for n, v in vars(module).items() if not n.startswith("_") and callable(v)]
        own = [n for n in names if getattr(vars(module)[n], "__module__", "").startswith(module.__name__)]
        names = own if not module.__file__.endswith("__init__.py") else names
    return [
        getattr(module, n)
        for n in names
        if callable(getattr(module, n, None)) and not inspect.ismodule(getattr(module, n))
    ]


def packages() -> dict[str, list[str]]:
    pages = {}
    for title, sources in PACKAGES.items():
        found = []
        for source in sources:
            module, _, name = source.partition(":")
            module = importlib.import_module(module)
            found += [getattr(module, name)] if name else public(module)
        pages[title] = list(dict.fromkeys(p for p in map(place, found) if p))
    return pages


def families() -> dict[str, list[str]]:
    """The functions of td by the file of tandem/ops that defines them."""
    pages = {}
    for name, function in FUNCTIONS.items():
        module = getattr(function, "__module__", "") or ""
        if module.startswith("tandem.ops.") and not name.startswith("_") and name in defined(module):
            title = module.removeprefix("tandem.ops.").replace(".", ", ").replace("_", " ").capitalize()
            pages.setdefault(title, []).append(f"{module}.{name}")
    return {title: sorted(names) for title, names in sorted(pages.items())}


def page(title: str, names: list[str]) -> str:
    head = f"# {title}\n\n"
    module = names[0].rpartition(".")[0]
    if module.startswith("tandem.ops"):
        about = (importlib.import_module(module).__doc__ or "").strip().partition("\n\n")[0]
        head += f"{about.partition(': ')[2] or about}\n\n" if about.startswith("td.") else f"{about}\n\n"
    return head + "\n\n".join(f"::: {name}" for name in names) + "\n"


def pages() -> dict[str, dict[str, tuple[str, str]]]:
    """{topic: {title: (file, text)}}; what no topic names comes last."""
    found: dict[str, tuple[str, str]] = {}
    for folder, titles in {"packages": packages(), "functions": families()}.items():
        for title, names in titles.items():
            if names:
                file = "".join(c if c.isalnum() else "_" for c in title.lower())
                found[title] = (f"reference/{folder}/{file}.md", page(title, names))
    made = {topic: {title: found[title] for title in titles if title in found} for topic, titles in TOPICS.items()}
    rest = {title: entry for title, entry in found.items() if not any(title in titles for titles in TOPICS.values())}
    return made | ({"Others": rest} if rest else {})


# -- what mkdocs calls


def on_config(config):
    menu = (ROOT / "mkdocs.yml").read_text()
    more = [p.name for p in sorted((ROOT / "docs").glob("*.md")) if f" {p.name}\n" not in menu]
    config["nav"] += [{"More": more}] if more else []
    reference = [{topic: [{title: file} for title, (file, _) in found.items()]} for topic, found in pages().items()]
    config["nav"] += [{"Reference": reference}]
    return config


def on_files(files, config):
    from mkdocs.structure.files import File

    for found in pages().values():
        for file, text in found.values():
            files.append(File.generated(config, file, content=text))
    return files


if __name__ == "__main__":
    for section, found in pages().items():
        for title, (_, text) in found.items():
            print(f"{section} / {title}: {text.count(':::')} names")
    print(td.__version__)
