import gc
import random
import signal

import numpy as np
import pytest

import tandem as td
from tandem import _runtime
from tandem.machine import tune


@pytest.fixture(scope="session", autouse=True)
def interrupts():
    """Shells start jobs in the background with SIGINT ignored; tests of Ctrl-C would wait forever."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def older_objects():
    """What earlier modules left, plans above all, is not walked again by each collection: the tests ask for many."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def own_products():
    """Whatever was measured on this machine: the choice may differ between numbers of threads, and with it the last bits."""
    for kind in range(1, len(tune.KINDS)):
        _runtime.force_products(kind, True)
    yield
    for kind in range(1, len(tune.KINDS)):
        _runtime.force_products(kind, None)


_states: dict[str, dict] = {}  # of the generators of modules of tests, as importing them left them


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """A test has the same random numbers whichever tests this process ran before: their order changes with the number of processes,
    with their speed and with what is selected."""
    td.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    generators = {n: g for n, g in vars(item.module).items() if isinstance(g, np.random.Generator)}
    states = _states.setdefault(item.module.__name__, {n: g.bit_generator.state for n, g in generators.items()})
    for name, generator in generators.items():
        generator.bit_generator.state = states[name]


NO_LAPACK = "factorisations need LAPACK (libscipy_openblas.so), and this copy of Tandem has none"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """What needs LAPACK is skipped where the build has none, as on some machines with devices."""
    try:
        return (yield)
    except Exception as error:
        if NO_LAPACK in str(error):
            pytest.skip("this copy of Tandem has no LAPACK")
        raise
