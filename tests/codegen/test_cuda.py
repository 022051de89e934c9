"""CUDA sources without a device: every kernel that a sample of operators needs compiles with NVRTC (skipped without its wheel)."""

import pytest

import tandem as td
from tandem.codegen import lower
from tandem.codegen.cuda import routines
from tandem.codegen.cuda.render import source
from tandem.codegen.targets import target_of
from tandem.errors import DeviceError
from tandem.ops.define import ParameterSpec, make_function
from tandem.tracing import compile as tracing
from tandem.tracing.describe import TensorSpec


def lowered(body, *shapes, dtype=td.float32, grad=False):
    """The kernels for a device of an operator with this body, on contiguous tensors of these shapes."""
    return [s.kernel for s in steps_of(body, *shapes, dtype=dtype, grad=grad) if hasattr(s, "kernel")]


def steps_of(body, *shapes, dtype=td.float32, grad=False):
    parameters = [ParameterSpec(f"x{i}", "tensor", True, None, False) for i in range(len(shapes))]
    fn = make_function("fn", body, parameters)
    spec = [TensorSpec("tensor", dtype.code, s, (), 0, None, grad, 1) for s in shapes]
    traced = tracing.trace_call(fn, spec)
    tracing.resolve_sizes(traced.graph)
    return lower(traced.graph, traced.layouts, target=target_of(1), on_host=traced.numbers).steps


def compile_all(kernels):
    from tandem.codegen.cuda import nvrtc

    try:
        nvrtc.version()
    except DeviceError:
        pytest.skip("NVRTC is not installed (pip install nvidia-cuda-nvrtc)")
    for kernel in kernels:
        assert nvrtc.compile_source(source(kernel), 90, kernel.name, getattr(kernel, "exact", False))


def test_elementwise_kernels_move_sixteen_bytes_at_a_time():
    (kernel,) = lowered(lambda x, y: x + y, (64, 64), (64, 64))
    assert "load_all<4>" in source(kernel)
    assert "store_all<4>" in source(kernel)
    (kernel,) = lowered(lambda x, y: x + y, (64, 64), (64, 64), dtype=td.bfloat16)
    assert "load_all<8>" in source(kernel)
    compile_all([kernel])


def test_rows_stay_in_registers_between_passes():
    (kernel,) = lowered(lambda x: td.softmax(x, -1), (64, 256))
    text = source(kernel)
    assert kernel.threads == (32, 8)
    assert text.count("load_all") == 1 + 1  # the helper and one use: later passes read registers
    compile_all([kernel])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_kernels_compile_for_all_float_types(dtype):
    dtype = td.dtypes.as_dtype(dtype)
    kernels = []
    for fn in (td.exp, td.tanh, td.erf, td.lgamma):
        kernels += lowered(lambda x, fn=fn: fn(x), (5, 7), dtype=dtype)
    compile_all(kernels)


def test_running_sums_of_complex_numbers_and_logarithms_compile():
    kernels = lowered(lambda x: td.cumsum(x, 0), (3, 50), dtype=td.complex64)
    kernels += lowered(lambda x: td.cumprod(x, 1), (3, 50), dtype=td.complex128)
    kernels += lowered(lambda x: td.logcumsumexp(x, 1), (3, 50))
    assert [k.name for k in kernels] == ["cumulative"] * 3
    compile_all(kernels)


def test_routines_compile():
    kernels = lowered(lambda x: td.sort(x), (3, 5000))
    kernels += lowered(lambda x: td.cumsum(x, 0), (3, 50))
    kernels += lowered(lambda x: td.max_pool2d(x, 2), (2, 3, 8, 8))
    kernels += [routines.fill_kernel(), routines.widen_kernel()]
    kernels += [routines.join_rows_kernel(size) for size in (1, 2, 4, 8, 16)]
    kernels += [routines.add_rows_kernel(dtype.code) for dtype in (td.float16, td.bfloat16, td.float32, td.float64)]
    compile_all(kernels)


def test_gradients_of_maxima_are_told_by_a_byte():
    import tandem.ops as F
    from tandem.ops.pool import MaxBackward, PoolMax
    from tandem.ops.prepare import constant

    windows = (2, 2), (2, 2), (0, 0), (1, 1)

    def back(x, g):
        r = F.Relu()(x)
        largest, places = PoolMax(*windows, (4, 4))(r)
        along = MaxBackward((8, 8), windows)(g + largest, places)
        return F.Where()(F.Less()(constant(0, r.dtype), r), along, constant(0, g.dtype))

    names = [k.name for k in lowered(back, (2, 16, 8, 8), (2, 16, 4, 4))]
    assert names[-1] == "pool_max_taps_backward"  # the mask went into what is pooled
    assert "pool_max_taps" in names
    assert len(names) == 4


def test_sums_beside_what_is_written_move_whole_words():
    def both(x, g):
        masked = td.where(x > 0, g, 0.0)
        return masked, td.sum(masked, 0)

    (kernel, _) = lowered(both, (4096, 64), (4096, 64), dtype=td.bfloat16)
    assert source(kernel).count("load_early<8>") == 2 * source(kernel).count("store_whole<8>(") > 0
    compile_all([kernel])
    (kernel, _) = lowered(lambda x: td.sum(x, 0), (4096, 64), dtype=td.bfloat16)
    assert "store_whole" not in source(kernel)


def test_kernels_wait_for_what_was_queued_before_they_read():
    kernels = [*lowered(lambda x, y: x + y, (64, 64), (64, 64)), *lowered(lambda x: td.sort(x, -1), (64, 64))]
    kernels += lowered(lambda x: td.softmax(x, -1), (64, 256))
    for kernel in kernels:
        function = source(kernel).rpartition('extern "C"')[2]
        assert function.partition("{")[2].startswith(" BEGIN")
        text = assembly(source(kernel))
        assert 0 < text.index("griddepcontrol.wait") < text.index("ld.global")


def assembly(text):
    """Of a kernel for compute capability 9.0, as NVRTC writes it."""
    import ctypes

    from tandem.codegen.cuda import nvrtc

    try:
        nvrtc.version()
    except DeviceError:
        pytest.skip("NVRTC is not installed (pip install nvidia-cuda-nvrtc)")
    library, program, size = nvrtc._library(), ctypes.c_void_p(), ctypes.c_size_t()
    library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
    options = (ctypes.c_char_p * 2)(b"--gpu-architecture=compute_90", b"--std=c++17")
    assert library.nvrtcCompileProgram(program, 2, options) == 0
    library.nvrtcGetPTXSize(program, ctypes.byref(size))
    made = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(program, made)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return made.value.decode()


def test_casts_of_weights_are_one_launch():
    from tandem.ops.prepare import cast

    def layers(x, a, b, c):
        for w in (a, b, c):
            x = td.relu(td.matmul(x, cast(w, td.bfloat16)))
        return x

    shapes = (512, 512), (512, 512), (512, 1024), (1024, 512)
    steps = steps_of(lambda x, *w: layers(cast(x * 2, td.bfloat16), *w), *shapes)
    (together,) = (s for s in steps if hasattr(s, "kernel") and s.kernel.name == "cast")
    assert len(together.extents) == 3
    compile_all([together.kernel])
    large = 2048, 2048  # of which two have room
    steps = steps_of(lambda x, *w: layers(cast(x * 2, td.bfloat16), *w), large, large, large, large)
    assert [len(getattr(s, "extents", [0])) for s in steps if hasattr(s, "kernel") and s.kernel.name == "cast"] == [
        2,
        1,
    ]


def test_flat_kernels_of_one_word_fill_the_device():
    (kernel,) = lowered(lambda x: td.relu(x), (4096, 4096), dtype=td.bfloat16)
    assert ("__launch_bounds__(256, 8)" in source(kernel)) == (kernel.flat is not None)


def test_relu_of_a_convolution_in_one_call():
    def layer(x, w, b, pooled=True):
        y = td.relu(td.conv2d(x, w, b, padding=1))
        return td.max_pool2d(y, 2) if pooled else y

    shapes = (2, 16, 8, 8), (24, 16, 3, 3), (24,)
    called = [getattr(s, "routine", s) for s in steps_of(layer, *shapes, dtype=td.bfloat16)]
    assert called[0] == "cuda.conv_relu"
    assert all(not hasattr(s, "kernel") or "relu" not in s.kernel.name for s in called)
    colours = (2, 3, 8, 8), (24, 3, 3, 3), (24,)  # of images as they come; of others there become 8
    assert steps_of(layer, *colours, dtype=td.bfloat16)[0].routine == "cuda.conv_forward"
    for body, dtype in (
        (lambda *a: layer(*a, pooled=False), td.bfloat16),
        (layer, td.float32),
    ):  # by a kernel as before
        called = [getattr(s, "routine", s) for s in steps_of(body, *shapes, dtype=dtype)]
        assert called[0] == "cuda.conv_forward"


def test_attention_streams_tiles():
    def attend(q, k, v):
        return td.scaled_dot_product_attention(q, k, v, is_causal=True)

    kernels = lowered(attend, *[(2, 3, 100, 64)] * 3, dtype=td.bfloat16)
    assert [k.name for k in kernels] == ["attention"]
    with td.switches(WGMMA=0):  # as for earlier devices
        kernels += lowered(attend, *[(2, 3, 101, 64)] * 3, dtype=td.bfloat16)
    compile_all(kernels)


def test_a_device_that_is_not_there_is_an_error():
    if td.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(td.DeviceError, match="not available"):
        td.zeros(3, device="cuda")
    with pytest.raises(td.DeviceError, match="not known"):
        td.zeros(3, device="tpu")


@pytest.mark.parametrize(("d", "masked"), [(64, False), (128, True)])
def test_attention_by_groups_of_warps_compiles(d, masked):
    from tandem.ops.attention import Attention, AttentionBackward

    def both(g, q, k, v, *mask):
        out, sums = Attention(not masked, masked, 0.125)(q, k, v, *mask)
        return (out, *AttentionBackward(not masked, masked, 0.125)(g, q, k, v, out, sums, *mask))

    with td.switches(WGMMA=1):
        shapes = [(2, 3, 100, d)] * 4 + [(2, 3, 100, 100)] * masked
        kernels = lowered(both, *shapes, dtype=td.bfloat16)
    names = ["attention", "attention_rows", "attention_backward_q", "attention_backward_kv"]
    assert [k.name for k in kernels] == names
    compile_all(kernels)


def test_an_lstm_is_a_product_and_a_kernel_for_each_step():
    from tandem.ops.lstm_sequence import LSTMSequence, LSTMSequenceBackward

    def both(gates, h, c, w, g):
        hidden, cells, kept = LSTMSequence(False)(gates, h, c, w)
        return (hidden, *LSTMSequenceBackward(False)(g, kept, cells, c, w))

    kernels = lowered(both, (6, 4, 40), (4, 10), (4, 10), (40, 10), (6, 4, 10), dtype=td.bfloat16)
    assert [k.name for k in kernels].count("lstm_step") == 6
    assert [k.name for k in kernels].count("lstm_step_backward") == 6
    compile_all({source(k): k for k in kernels}.values())


def test_gradients_of_queries_keys_and_values_from_one_product_go_where_they_are_wanted():
    from tandem.ops.attention import Attention, AttentionBackward

    def layer(g, x):
        import tandem.ops as F

        parts = F.Permute((2, 0, 3, 1, 4))(F.Reshape((2, 100, 3, 3, 64))(x))
        q, k, v = (
            F.Reshape((2, 3, 100, 64))(F.Slice((i, 0, 0, 0, 0), (1,) * 5, (1, 2, 3, 100, 64))(parts)) for i in range(3)
        )
        out, sums = Attention(True, False, 0.125)(q, k, v)
        made = AttentionBackward(True, False, 0.125)(g, q, k, v, out, sums)
        joined = F.concat([F.Reshape((1, 2, 3, 100, 64))(d) for d in made], 0)
        return out, F.Reshape((200, 576))(F.Permute((1, 3, 0, 2, 4))(joined))

    kernels = lowered(layer, (2, 3, 100, 64), (200, 576), dtype=td.bfloat16)
    assert [k.name for k in kernels if not k.name.startswith("attention")] == []


def test_zeros_among_divisors_of_integers_are_looked_for():
    steps = steps_of(lambda x, y: x // y, (5, 4), (5, 4), dtype=td.int32)
    (check,) = (s.kernel for s in steps if s.kernel.name == "check_divisor")
    assert "== 0) complain(" in source(check)
    compile_all([s.kernel for s in steps])


def test_every_library_operator_runs_on_devices():
    """By a kernel, a library of NVIDIA's, a composition of other operators, or through the host."""
    from tandem import _runtime
    from tandem.codegen.cuda import compose as cuda_compose
    from tandem.codegen.cuda import fft as cuda_fft
    from tandem.codegen.cuda import routines as cuda_routines
    from tandem.ops.define import LibraryOp
    from tandem.ops.region import Region

    def all_below(kind):
        return {kind, *(c for below in kind.__subclasses__() for c in all_below(below))}

    composed = {*cuda_compose._FORMULAS, *cuda_fft.FORMULAS, cuda_fft.FftLines}
    known = {*cuda_routines.ROUTINES}
    through_host = {n.removeprefix("host.") for n in _runtime.library_names() if n.startswith("host.")}
    for op in all_below(LibraryOp):
        routine = getattr(op, "routine", None)
        if op.cuda_library in ("cublas", "cudnn") or routine == "collective":  # collectives are for host memory so far
            continue
        ours = op.__module__.startswith("tandem.ops.")
        if not isinstance(routine, str) or not routine or not ours or issubclass(op, Region) or op in composed:
            continue
        assert hasattr(op, "composed") or routine in known | through_host, op
