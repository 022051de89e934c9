"""Profiles, benchmarks and DLPack on CUDA devices."""

import json

import numpy as np
import pytest

import tandem as td

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]


def test_a_profile_times_kernels_on_the_device(tmp_path):
    x = td.randn(1024, 1024, device="cuda")
    step = td.compile(lambda x: (td.softmax(x @ x, -1) * 2).sum())
    for _ in range(5):
        step(x)
    with td.profile() as p:
        for _ in range(3):
            step(x)
        y = td.exp(x)
        y.sum().item()
        td.randn(100).to("cuda")
    rows = {row.name: row for row in p.rows() if row.device == "cuda:0"}
    assert rows["matmul"].steps == 3
    assert rows["exp"].steps == 1
    assert "test_tools.py" in rows["exp"].line
    assert 1000 < rows["matmul"].nanoseconds / 3 < 50_000_000
    assert any(s.kind == "copy" and s.bytes == 400 for s in p.steps)
    assert all(p.start - 1e6 < s.start < p.end + 1e9 for s in p.steps)
    p.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(e["ph"] == "X" and e["cat"] == "library" and e["name"] == "matmul" for e in events)
    print(p)


def test_benchmark_times_with_events():
    x = td.randn(4096, 4096, device="cuda")
    timing = td.benchmark(td.exp, x, seconds=0.05)
    assert 5e-6 < timing.median < 5e-3  # 128 MB at some TB/s


def test_dlpack_with_torch_shares_memory_both_ways():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no device")
    x = td.arange(12, dtype=td.float32, device="cuda").reshape(3, 4)
    assert x.__dlpack_device__() == (2, 0)
    t = torch.from_dlpack(x)
    assert t.is_cuda
    assert t.data_ptr() == x.data_ptr()
    t += 1
    torch.cuda.synchronize()
    assert x.tolist()[0] == [1.0, 2.0, 3.0, 4.0]
    back = td.from_dlpack(t.T)
    assert back.data_ptr() == t.data_ptr()
    assert back.shape == (4, 3)
    np.testing.assert_array_equal(back.cpu().numpy(), t.cpu().numpy().T)
    with torch.cuda.stream(torch.cuda.Stream()):
        big = torch.ones(1 << 24, device="cuda") * 3
        assert float(td.from_dlpack(big).sum()) == 3.0 * (1 << 24)
    side = td.cuda.Stream()
    with td.cuda.stream(side):
        y = td.ones(1 << 24, device="cuda") * 2
        assert float(torch.from_dlpack(y).sum()) == 2.0 * (1 << 24)
    copy = td.from_dlpack(t, copy=True)
    assert copy.data_ptr() != t.data_ptr()
    del x, t, back, big, copy
    td.cuda.synchronize()


def test_dlpack_to_the_cpu_is_a_copy():
    x = td.arange(6, device="cuda")
    capsule = x.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    assert td.from_dlpack(capsule).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError):
        x.__dlpack__(stream=0)
