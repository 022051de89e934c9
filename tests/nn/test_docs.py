"""Every layer, function and optimiser has a docstring, and its examples print what they say."""

import doctest
import inspect

import pytest

import tandem as td


def documented():
    utils = td.nn.utils
    for package in (
        td.nn,
        td.nn.functional,
        td.nn.init,
        utils,
        utils.rnn,
        utils.parametrize,
        td.optim,
        td.optim.lr_scheduler,
        td.optim.swa_utils,
    ):
        for name, thing in vars(package).items():
            if (
                name.startswith("_")
                or not callable(thing)
                or not str(getattr(thing, "__module__", "")).startswith(("tandem.nn", "tandem.optim"))
            ):
                continue
            yield f"{package.__name__}.{name}", thing
            if inspect.isclass(thing):
                for method, value in vars(thing).items():
                    if not method.startswith("_") and ">>>" in (getattr(value, "__doc__", None) or ""):
                        yield f"{package.__name__}.{name}.{method}", value


DOCUMENTED = {id(thing): (name, thing) for name, thing in documented()}.values()
WITHOUT = {"constant_", "ones_", "zeros_", "xavier_normal_", "kaiming_normal_"}  # what they do is their name


@pytest.mark.parametrize(("name", "thing"), DOCUMENTED, ids=[name for name, _ in DOCUMENTED])
def test_docstring(name, thing):
    text = thing.__doc__
    assert text or name.rpartition(".")[2] in WITHOUT, f"{name} has no docstring"
    test = doctest.DocTestParser().get_doctest(text or "", {"td": td}, name, None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(test)
    assert runner.failures == 0
