"""How the code is arranged: what tools/house.py counts stays where it is."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def house():
    spec = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def imports(house):
    return house.imports(house.modules())


def test_imports_inside_functions_are_lazy_loads_with_a_reason(house, imports):
    others = [f"{i.module}:{i.line} imports {i.target}" for i in imports if i.in_function and not house.reason_for(i)]
    assert [] == others, "move them to the top of their files, or see Note [Imports inside functions] in tools/house.py"


def test_every_lazy_load_on_the_list_is_one(house, imports):
    used = {i.target for i in imports if i.in_function}
    assert [] == [name for name in house.LAZY if not any(f"{t}.".startswith(f"{name}.") for t in used)]


def test_folders_do_not_import_one_another_wherever_imports_are(house, imports):
    assert [] == house.knots_of_folders(imports)
    assert [] == house.includes_upwards()


def test_a_knot_would_be_found(house):
    found = [
        house.Import("tandem.a.x", "tandem.b.y", 1, False), house.Import("tandem.b.y", "tandem.c", 1, True),
        house.Import("tandem.c", "tandem.a.z", 9, True), house.Import("tandem.d", "tandem.a", 1, False),
    ]  # fmt: skip
    assert [["tandem.a", "tandem.b", "tandem.c"]] == house.knots_of_folders(found)
    assert house.reason_for(house.Import("tandem.cli", "tandem.serve.command", 1, True)) == house.LAZY["tandem.serve"]
    assert house.reason_for(house.Import("tandem.serve.engine", "tandem.serve.command", 1, True)) is None


def test_names_that_modules_offer_from_above_are_there():
    from tandem import aliases

    for module, names in aliases._ABOVE.items():
        for name in names:
            assert getattr(importlib.import_module(module), name) is not None
        with pytest.raises(AttributeError, match="nothing_of_this_name"):
            getattr(importlib.import_module(module), "nothing_of_this_name")  # noqa: B009


def test_every_hook_is_provided():
    from tandem import hooks

    missing = [name for name in hooks.__annotations__ if getattr(hooks, name) is hooks._absent]
    assert [] == missing


def test_every_folder_says_what_goes_in_and_out(house):
    assert [] == house.folders_without_readme()


def test_shares_do_not_fall(house):
    known = house.modules()
    bare, public = house.without_docstring(known)
    assert 1 - len(bare) / public >= 0.7
    assert house.tested_share(known, False) >= 0.7
    assert house.tested_share(known, True) >= 0.6, "tests lie in the folder that mirrors that of the source"
    assert len(house.long_files()) <= 22


def test_what_the_runtime_hands_to_python_has_names(house):
    assert [] == house.unnamed_tuples(house.modules()), "see Note [Tuples across the border] in tools/house.py"
    assert house._arguments("(a, f(b, c), {d, e}) + g(h, i)") == 3


def test_operators_answer_for_themselves(house):
    """Names are compared where a pattern is one operator; what holds for several is an attribute. These may fall, not rise."""
    known = house.modules()
    assert len(house.names_compared(known)) <= 64
    assert len(house.attributes_asked(known)) <= 4


def test_modules_lie_in_folders(house):
    """Beside the folders are paths that users import, and what is below everything."""
    assert len(house.loose_modules()) <= 28


def test_the_page_on_how_it_is_built_is_easy_to_read():
    """Short lines, and at most two files in a paragraph or an item of a list."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert [] == [line for line in text.splitlines() if len(line) > 120]
    paragraphs = [p for p in re.split(r"\n\s*\n|\n(?=\d+\. |- )", text) if not p.startswith(("    ", "|", "#"))]
    crowded = [p for p in paragraphs if len(set(re.findall(r"`([\w./-]+\.(?:py|cc|h))`", p))) > 2]
    assert [] == crowded


DIALECT = {  # words that the field has another one for
    r"taken down|noted down": "traced (one operator), captured (many)",
    r"far[ _]angles?": "argument reduction",
    r"\bat[ _]hand\b": "concrete",
    r"\b\w*one_by_one\w*\b|run(s|ning)? one by one": "fallback, or what it does",
    r"\bforesee\w*\(|\b_foresee": "speculative, ahead of time",
    r"\bcomput(e|es|ed|ing) anew\b": "recompute",
}


def test_the_words_are_those_of_the_field():
    files = [*ROOT.glob("tandem/**/*.py"), *ROOT.glob("src/**/*.h"), *ROOT.glob("src/**/*.cc"), *ROOT.glob("docs/*.md")]
    found = [
        f"{path.relative_to(ROOT)}:{n} says {m.group(0)!r}: say {better}"
        for path in [*files, *ROOT.glob("tandem/**/*.md"), *ROOT.glob("src/**/*.md"), ROOT / "README.md"]
        for n, line in enumerate(path.read_text().splitlines(), 1)
        for word, better in DIALECT.items()
        for m in re.finditer(word, line)
    ]
    assert [] == found
