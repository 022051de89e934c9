"""Launches by another thread (Note [Launches by another thread]) on the stand-in (tests/cuda_stand_in): the device gets the same
work in the same order. Each test is a process of its own."""

from tests.gpu import test_stand_in
from tests.gpu.test_stand_in import pytestmark  # noqa: F401

HEAD = """
x = td.empty(8, device="cuda")
functions = [td.exp, td.sin, td.cos, td.log1p, td.sqrt]
names = ["td_exp", "td_sin", "td_cos", "td_log1p", "td_sqrt"]
for f in functions:
    f(x)  # kernels are made
td.cuda.synchronize()
def launch(order):
    for k in order:
        functions[k](x)
def check(orders):
    for order in orders:
        td.cuda.synchronize()
        library.stand_in_clear()
        launch(order)
        td.cuda.synchronize()
        assert launched() == [names[k] for k in order], (launched(), order)
"""


def run(script: str, tmp_path, **more) -> str:
    return test_stand_in.run(HEAD + script, tmp_path, **{"TANDEM_LAUNCHER": "1", "STAND_IN_LAUNCH": "15", **more})


def test_order_of_rows_that_repeat_and_of_others(tmp_path):
    out = run(
        """
import random
random.seed(1)
rows = [[random.randrange(5) for _ in range(n)] for n in (40, 64, 3, 17, 33, 100, 200)]
check(rows[k % 7] for k in range(100))  # these come again and again
check([random.randrange(5) for _ in range(random.randrange(80))] for _ in range(100))  # these do not
check([[0] * 100] * 5)
print(counts()["graphs"])
""",
        tmp_path,
    )
    assert int(out) > 0  # of the last hundred: some went as graphs


def test_arguments_are_those_of_each_launch(tmp_path):
    """Results of a row that repeats lie at other places every time."""
    run(
        """
for k in range(60):
    kept = [td.exp(x) for _ in range(64)]
    assert len({y._address() for y in kept}) == 64
    if k % 2:
        hold = kept
td.cuda.synchronize()
""",
        tmp_path,
    )


def test_other_work_comes_behind(tmp_path):
    run(
        """
a = td.empty(64, 64, device="cuda")
event = td.cuda.Event()
for k in range(20):
    launch([k % 5] * 40)
    before = counts()["launches"]
    a @ a if k % 3 == 0 else event.record() if k % 3 == 1 else x.cpu()
    assert counts()["launches"] >= 40 * (k + 1)
assert counts()["graphs"] > 0
""",
        tmp_path,
    )


def test_threads(tmp_path):
    run(
        """
import threading
td.cuda.synchronize()
library.stand_in_clear()
threads = [threading.Thread(target=launch, args=([k] * 500,)) for k in range(4)]
for t in threads: t.start()
for t in threads: t.join()
td.cuda.synchronize()
assert counts()["launches"] == 2000
found = launched()
assert all(found.count(name) == 500 for name in names[:4])
""",
        tmp_path,
        STAND_IN_LAUNCH="2",
    )


def test_a_launch_that_fails_is_told(tmp_path):
    run(
        """
launch([0] * 100)
library.stand_in_fail(1)
try:
    launch([1, 2] * 50)
    td.cuda.synchronize()
except td.DeviceError as error:
    assert "launching" in str(error), error
else:
    raise AssertionError
check([[0, 1, 2] * 30] * 3)  # all is well again
""",
        tmp_path,
    )


def test_a_child_of_fork_waits_for_nothing(tmp_path):
    run(
        """
launch([0] * 200)
child = os.fork()
if child == 0:
    td.cuda.synchronize()
    launch([0, 1] * 50)
    td.cuda.synchronize()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
check([[0, 1, 2] * 30] * 3)
""",
        tmp_path,
    )


def test_nothing_is_handed_over_once_others_look_on(tmp_path):
    for tell in ("x.data_ptr()", "td.cuda.current_stream().handle", "x.__dlpack__(stream=1)"):
        run(
            f"""
launch([0] * 100)
{tell}
before = counts()["launches"]
for k in range(100):
    functions[0](x)
    assert counts()["launches"] == before + k + 1
""",
            tmp_path,
        )


def test_a_process_that_ends_in_the_middle(tmp_path):
    run("launch([0, 1, 2, 3] * 100)", tmp_path)
    run("launch([0, 1, 2, 3] * 100); os._exit(0)", tmp_path)
    run("launch([0, 1, 2, 3] * 100)", tmp_path, TANDEM_LAUNCHER="0")
