"""Fixtures for pytest: put `pytest_plugins = ["tandem.testing.pytest_plugin"]` into conftest.py."""

import pytest


@pytest.fixture
def assert_close():
    """td.testing.assert_close"""
    from tandem.testing import assert_close

    return assert_close


@pytest.fixture
def gradcheck():
    """td.testing.gradcheck"""
    from tandem.testing import gradcheck

    return gradcheck


@pytest.fixture
def gradgradcheck():
    """td.testing.gradgradcheck"""
    from tandem.testing import gradgradcheck

    return gradgradcheck
