"""Parts of td.distributed are imported when first used: each may be the first."""

import subprocess
import sys

import pytest

CODE = """
import importlib, os
import tandem.distributed as dist

failed = []
for name in (*dist._MODULES, *dist._HOMES):  # each in a child, where nothing else of it is imported
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(f"tandem.distributed.{name}")
        except ImportError as error:
            print(f"{name}: {error}", flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(name)
assert not failed, failed
"""


@pytest.mark.slow  # some seconds of imports
def test_every_part_may_be_the_first_that_is_imported():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
