"""Collectives of CUDA tensors by NCCL, on a device that ranks share."""

import pytest

import tandem as td
from tandem.codegen.cuda import libraries
from tests.gpu import nccl_checks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(libraries.find("nccl") is None, reason="needs NCCL"),
]


@pytest.mark.parametrize("engine, n", nccl_checks.ALL)
def test_collectives(engine, n):
    names = [name for name, (_, _, on) in nccl_checks.CHECKS.items() if (engine, n) in on]
    for name, result in nccl_checks.run_checks(names, engine, n).items():
        assert "\n" not in result and result != "did not end", f"{name}: {result}"


def test_a_killed_rank_is_named_by_the_others(tmp_path):
    nccl_checks.a_killed_rank_is_named(str(tmp_path))
