"""td.profile and td.benchmark on the CPU."""

import json
import threading

import pytest

import tandem as td


def test_operators_are_counted_with_their_lines():
    x = td.ones(64, 64)
    with td.profile() as p:
        for _ in range(3):
            y = x @ x
        y.exp()
    rows = {row.name: row for row in p.rows()}
    assert rows["matmul"].steps == 3
    assert rows["exp"].steps == 1
    assert rows["matmul"].line.startswith("test_profiler.py:")
    assert 0 < rows["exp"].nanoseconds < p.end - p.start
    lines = {row.name for row in p.rows("line")}
    assert rows["matmul"].line in lines
    assert len(lines) == 2
    assert "matmul" in str(p)
    assert "cpu" in p.table("kernel", top=1)
    assert [row.name for row in p.rows("device")] == ["cpu"]


def test_nothing_is_recorded_outside():
    x = td.ones(8)
    with td.profile() as p:
        pass
    x.exp()
    assert p.steps == []
    assert p.rows() == []
    assert "in all" in str(p)


def test_steps_of_a_program_belong_to_the_operators_the_user_wrote():
    @td.compile
    def f(x):
        y = td.softmax(x, -1)
        return y @ x

    x = td.randn(32, 32)
    f(x)
    with td.profile() as p:
        f(x)
    assert {row.name for row in p.rows()} == {"softmax", "matmul"}
    assert all(row.line.startswith("test_profiler.py:") for row in p.rows())
    assert [s.name for s in p.steps if s.kind == "operator"] == ["program"]


def test_loops_show_what_runs_inside():
    fn = td.compile(lambda x: td.scan(lambda c, r: (c + r.exp(), c), td.zeros(5), x))
    x = td.randn(7, 5)
    fn(x)
    with td.profile() as p:
        fn(x)
    (region,) = [s for s in p.steps if s.kind == "region"]
    inside = [s for s in p.steps if s.kind == "kernel" and region.start <= s.start < region.start + region.duration]
    assert region.name == "scan"
    assert len(inside) >= 7


def test_backward_compilation_and_threads_are_recorded():
    w = td.randn(5, 3, requires_grad=True)
    with td.profile() as p:
        worker = threading.Thread(target=lambda: td.ones(3).cos())
        worker.start()
        worker.join()
        (w.sin() * 2).sum().backward()
    names = {s.op for s in p.steps if s.kind == "kernel"}
    assert "sin_backward" in names or any("backward" in n for n in names)
    assert len({s.thread for s in p.steps}) == 2


def test_the_timeline_is_chromes_format(tmp_path):
    x = td.ones(16)
    with td.profile() as p, td.profile.range("part"):
        x.exp()
    p.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    whole = {e["name"]: e for e in events if e["ph"] == "X"}
    assert {"part", "exp"} <= set(whole)
    outer, inner = whole["part"], next(e for e in events if e.get("cat") == "kernel")
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1
    assert inner["args"]["line"].startswith("test_profiler.py:")
    assert {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"} == {"cpu"}


def test_a_second_profile_and_unknown_tables_are_errors():
    with td.profile() as p, pytest.raises(td.UnsupportedError, match="another profile"), td.profile():
        pass
    with pytest.raises(td.UnsupportedError, match="by='size'"):
        p.rows("size")
    with td.profile() as p:  # the one before has ended
        td.ones(3).exp()
    assert p.rows()


def test_an_error_inside_ends_the_profile():
    with pytest.raises(td.ShapeError), td.profile() as p:
        td.ones(2, 3) @ td.ones(2, 3)
    with td.profile():
        pass
    assert p.end > p.start


def test_benchmark_times_calls():
    calls = []
    timing = td.benchmark(lambda: calls.append(1), rounds=3, seconds=0.001, warmup=2)
    assert len(calls) == 2 + 1 + 3 * timing.calls
    assert len(timing.times) == 3
    assert 0 < timing.min <= timing.median <= timing.max
    assert "median of 3 rounds" in str(timing)
    slow = td.benchmark(td.exp, td.ones(100_000), seconds=0.01)
    assert slow.median > 1e-6
    with pytest.raises(td.UnsupportedError, match="at least one round"):
        td.benchmark(lambda: None, rounds=0)
