"""Checks every operator on sharded tensors: all placements on meshes of 2, 3 and 2 x 2 ranks against one rank, with gradients.

    python tools/sharded_check.py [--most N] [arguments of pytest, such as tests/ops/test_reduce.py or -n 4]

Ranks are threads (tests/check_sharded.py). --most: ways to place the operands of a call on a mesh; 40 unless given.
"""

import argparse
import inspect
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))


class OnlyChecks:
    """Leaves out tests that check no operator: they say nothing about sharding."""

    @staticmethod
    def pytest_collection_modifyitems(config, items):
        kept = [item for item in items if "check_op" in inspect.getsource(item.function)]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--most", type=int, default=40)
    options, arguments = parser.parse_known_args()
    os.environ.update(CHECK_ONLY="sharded", SHARDED_MOST=str(options.most))
    os.chdir(ROOT)
    if not any(a.startswith("tests") for a in arguments):
        arguments.append("tests/ops")
    if "-m" not in arguments:
        arguments += ["-m", "not slow and not oracle"]
    return pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[OnlyChecks()])


if __name__ == "__main__":
    sys.exit(main())
