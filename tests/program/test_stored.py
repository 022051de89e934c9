"""Programs that a process finds on disk (tandem/program/stored.py)."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.processes import run_script

SCRIPT = """
import sys
import tandem as td

{padding}
td.manual_seed(0)
model = td.nn.Sequential(td.nn.Linear(6, 5), td.nn.ReLU(), td.nn.Dropout(0.5), td.nn.Linear(5, 3))
optimizer = td.optim.Adam(model.parameters(), lr={lr})

@td.compile
def step(x, y):
    loss = td.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss

losses = []
for n in (4, 4, 7):
    x = td.sin(td.arange(6.0 * n)).reshape(n, 6)
    losses.append(step(x, td.arange(n) % 3).item())
print([f"{{loss:.6f}}" for loss in losses])
print("load" in step.explain(), "lower" in step.explain())
print(len(step.graph().nodes) > 10)

@td.compile
def look_up(w, i):
    return w[i] * 2
try:
    look_up(td.ones(3), td.tensor([1, 5]))
except td.IndexRangeError as error:
    print(str(error).splitlines()[-1].partition("script")[2])
"""


SIZES = """
import sys
import tandem as td

td.ones(8) * 2  # plans are told apart by the sizes that they met first
double = td.compile(lambda x: x * 2)
double(td.ones(int(sys.argv[1])))
print(double.memory()["outputs"], "load" in double.explain())
"""


def test_memory_is_that_of_the_sizes_at_hand(tmp_path):
    environment = {**os.environ, "TANDEM_CACHE_DIR": str(tmp_path / "cache"), "TANDEM_CACHE": "1"}
    for n, loaded in (("8", False), ("256", True), ("8", True)):
        done = subprocess.run([sys.executable, "-c", SIZES, n], capture_output=True, text=True, env=environment)
        assert done.stdout.split()[:2] == [str(4 * int(n)), str(loaded)], done.stderr


def run(folder: pathlib.Path, padding: str = "", lr: float = 0.1) -> list[str]:
    code = SCRIPT.format(padding=padding, lr=lr)
    done = run_script(code, folder, TANDEM_CACHE_DIR=str(folder / "cache"), TANDEM_CACHE="1")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("damage", [False, True])
def test_a_second_process_finds_the_programs(tmp_path, damage):
    first = run(tmp_path)
    assert first[1:3] == ["False True", "True"]
    if damage:
        files = list((tmp_path / "cache" / "programs").iterdir())
        assert files
        for i, file in enumerate(files):
            content = file.read_bytes()
            file.write_bytes(content[: len(content) // 2] if i % 2 else content[:-3] + b"xyz")
    second = run(tmp_path)
    assert second[0] == first[0]
    assert second[1] == ("False True" if damage else "True False")
    assert second[2] == "True"
    assert second[3] == first[3]


def test_numbers_may_change_and_errors_name_the_line_of_today(tmp_path):
    first = run(tmp_path)
    second = run(tmp_path, padding="# one line more\n\n\n", lr=0.2)
    assert second[1] == "True False"
    assert second[0] != first[0]
    number = int(first[3].strip(".py:").split()[0])
    assert int(second[3].strip(".py:").split()[0]) == number + 3


def test_programs_without_their_kernels_are_made_again(tmp_path):
    first = run(tmp_path)
    for file in (tmp_path / "cache" / "kernels").iterdir():
        file.unlink()
    second = run(tmp_path)
    assert second[0] == first[0]
    assert second[1] == "False True"


def hostile(seed: int, count: int) -> list[int]:
    root = pathlib.Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.program.hostile", str(seed), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    return [int(n) for n in done.stdout.split()]


def test_calls_that_no_program_makes_are_not_made():
    """Files with right checksums that say anything: the program is made again, or the calls are those of a program."""
    again, taken = hostile(1, 400)
    assert again > 100
    assert taken > 0


@pytest.mark.slow
def test_many_files_that_say_anything():
    for seed in range(2, 7):
        hostile(seed, 5000)
