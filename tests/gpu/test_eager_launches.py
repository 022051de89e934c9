"""What eager training launches on a CUDA device, counted on the stand-in (tests/cuda_stand_in); each test is a process."""

from tests.gpu.test_stand_in import pytestmark, run  # noqa: F401

LAUNCHES = """
def launches(f):
    f()  # kernels are made
    library.stand_in_clear()
    f()
    return launched()
"""


def test_many_parameters_are_updated_by_few_launches(tmp_path):
    run(
        LAUNCHES
        + """
params = [td.nn.Parameter(td.empty(3, 5 + i, device="cuda")) for i in range(41)]
params[7] = td.nn.Parameter(td.empty(2, 16, 3, 3, device="cuda").to(memory_format=td.channels_last))
for make in (lambda: td.optim.SGD(params, 0.1, momentum=0.9), lambda: td.optim.SGD(params, 0.1)):
    for p in params:
        p.grad = td.empty(*p.shape, device="cuda")
    params[7].grad = td.empty(2, 16, 3, 3, device="cuda").to(memory_format=td.channels_last)
    optimizer = make()
    optimizer.step()
    assert len(launches(optimizer.step)) == 3  # of 32, 8 and 1
assert optimizer.state[params[7]] == {}
momentum = td.optim.SGD(params, 0.1, momentum=0.9)
momentum.step()
assert momentum.state[params[7]]["momentum_buffer"].stride() == params[7].stride()
adam = td.optim.AdamW(params)
adam.step()
assert len(launches(adam.step)) == 6  # steps are counted beside
assert all(p._version == params[0]._version for p in params if p is not params[7])
params[3].grad = params[3].grad.T.contiguous().T  # lies otherwise: on its own
assert len(launches(momentum.step)) == 3 and params[3].grad.stride() != params[3].stride()
""",
        tmp_path,
    )


def test_training_by_batches_takes_four_launches_forward_and_four_back(tmp_path):
    run(
        LAUNCHES
        + """
norm = td.nn.BatchNorm2d(16).to("cuda")
x = td.empty(4, 16, 8, 8, device="cuda", dtype=td.bfloat16).to(memory_format=td.channels_last).requires_grad_()
assert len(launches(lambda: norm(x))) == 4  # sums, statistics with what follows them, result, count
before = norm.running_mean._version
y = norm(x)
assert norm.running_mean._version == before + 1 and not norm.running_mean.requires_grad
g = td.empty(*y.shape, device="cuda", dtype=td.bfloat16).to(memory_format=td.channels_last)
assert len(launches(lambda: y.backward(g, retain_graph=True))) <= 4 + 3  # the second time gradients are added up
assert x.grad.stride() == x.stride() and x.grad.dtype == td.bfloat16
""",
        tmp_path,
    )


def test_mixed_precision_casts_each_weight_once(tmp_path):
    run(
        LAUNCHES
        + """
conv = td.nn.Conv2d(16, 32, 3, padding=1, bias=False).to("cuda").to(memory_format=td.channels_last)
x = td.empty(4, 16, 8, 8, device="cuda", dtype=td.bfloat16).to(memory_format=td.channels_last)
def step():
    with td.autocast("cuda", td.bfloat16):
        y = conv(x)
    conv.weight.grad = None
    y.backward(g)
g = td.empty(4, 32, 8, 8, device="cuda", dtype=td.bfloat16).to(memory_format=td.channels_last)
assert launches(step) == ["td_cast", "td_cast"]  # of the weight, and of its gradient
assert conv.weight.grad.stride() == conv.weight.stride() and conv.weight.grad.dtype == td.float32
""",
        tmp_path,
    )


def test_gradients_of_weights_come_as_they_are_kept(tmp_path):
    run(
        LAUNCHES
        + """
layer = td.nn.Linear(512, 256).to("cuda")
x = td.empty(100, 512, device="cuda", dtype=td.bfloat16)
g = td.empty(100, 256, device="cuda", dtype=td.bfloat16)
def step():
    layer.weight.grad = layer.bias.grad = None
    with td.autocast("cuda", td.bfloat16):
        y = layer(x)
    y.backward(g)
assert launches(step).count("td_cast") == 2  # of the weight and the bias, not of a gradient
assert layer.weight.grad.dtype == td.float32 and layer.weight.grad.shape == (256, 512)
""",
        tmp_path,
    )


def test_gradients_of_images_stay_channels_last(tmp_path):
    run(
        LAUNCHES
        + """
from tandem import nn
model = nn.Sequential(
    nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.ReLU(),
    nn.MaxPool2d(2), nn.Conv2d(16, 8, 1, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
)
model = model.to("cuda").to(memory_format=td.channels_last)
x = td.empty(4, 8, 8, 8, device="cuda").to(memory_format=td.channels_last).requires_grad_()
seen = {}
def note(i):
    return lambda m, inputs, y: y.register_hook(lambda g: seen.setdefault(i, g.stride() == y.stride()) and None) and None
for i, m in enumerate(model[:7]):
    m.register_forward_hook(note(i))
def step():
    model.zero_grad()
    x.grad = None
    model(x).sum().backward()
assert launches(step).count("td_copy") == 1 and all(seen.values()) and len(seen) == 7  # the copy is of ones
""",
        tmp_path,
    )


def test_small_products_are_one_launch_of_our_own(tmp_path):
    run(
        LAUNCHES
        + """
x, w, b = td.empty(8, 8, device="cuda"), td.empty(8, 8, device="cuda"), td.empty(8, device="cuda")
assert launches(lambda: x @ w) == ["td_small_matmul"]
assert launches(lambda: td.nn.functional.linear(x, w.T, b)) == ["td_small_matmul"]
many = td.empty(5, 7, 3, device="cuda")
assert launches(lambda: many @ many.mT) == ["td_small_matmul"]
large = td.empty(128, 128, device="cuda")
assert launches(lambda: large @ large) == []  # the library's
odd = td.empty(3000, 2049, dtype=td.bfloat16, device="cuda")
assert launches(lambda: odd @ odd.T) == ["td_copy", "td_copy"]  # rows that tensor cores can read
""",
        tmp_path,
    )


def test_complex_numbers_come_with_launches(tmp_path):
    run(
        LAUNCHES
        + """
for dtype in (td.complex64, td.complex128):
    x = td.empty(3, dtype=dtype, device="cuda")
    assert len(launches(lambda: x * (2 + 3j))) == 1 and (x * 1j).dtype == dtype
    assert len(launches(lambda: x + td.tensor(1j, dtype=td.complex128) * 2)) >= 1
""",
        tmp_path,
    )


def test_a_convolution_adds_its_bias_itself(tmp_path):
    run(
        LAUNCHES
        + """
conv = td.nn.Conv2d(16, 32, 3, padding=1).to("cuda").to(memory_format=td.channels_last)
x = td.empty(4, 16, 8, 8, device="cuda", dtype=td.bfloat16).to(memory_format=td.channels_last)
with td.autocast("cuda", td.bfloat16):
    assert launches(lambda: conv(x)) == ["td_cast", "td_cast"]  # of the weight and the bias
    assert conv(x).stride() == (32 * 64, 1, 32 * 8, 32)
assert launches(lambda: conv(x.float()))[-1] == "td_add"  # in float32 it is a kernel of ours
followed = td.compile(lambda x: conv(x).relu())
with td.autocast("cuda", td.bfloat16):
    followed(x)
    assert any("add" in name and "relu" in name for name in launches(lambda: followed(x)))  # and where one follows
""",
        tmp_path,
    )


def test_maxima_are_remembered_in_bytes(tmp_path):
    run(
        LAUNCHES
        + """
x = td.empty(4, 16, 8, 8, device="cuda").to(memory_format=td.channels_last).requires_grad_()
F = td.nn.functional
def step():
    x.grad = None
    F.max_pool2d(x, 2).backward(g)
g = td.empty(4, 16, 4, 4, device="cuda").to(memory_format=td.channels_last)
assert launches(step) == ["td_pool_max_taps", "td_pool_max_taps_backward"]
assert x.grad.stride() == x.stride()
before = td.cuda.memory_allocated()
y = F.max_pool2d(x, 2)
assert td.cuda.memory_allocated() - before <= 4 * 1024 + 1024 + 512
y, places = F.max_pool2d(x, 2, return_indices=True)
assert places.dtype == td.int64 and places.stride() == y.stride()
assert launches(lambda: y.backward(g, retain_graph=True))[0] == "td_pool_max_backward"
twice = td.autograd.grad(F.max_pool2d(x * x, 2).sum(), x, create_graph=True)[0]
assert td.autograd.grad(twice.sum(), x)[0].shape == x.shape
assert td.vmap(lambda v: F.max_pool2d(v, 2))(td.empty(3, 4, 16, 8, 8, device="cuda")).shape == (3, 4, 16, 4, 4)
""",
        tmp_path,
    )


JOINED = """
conv = td.nn.Conv2d(16, 32, 3, padding=1).to("cuda").to(memory_format=td.channels_last)
x = td.empty(4, 16, 8, 8, device="cuda", dtype=td.bfloat16).to(memory_format=td.channels_last).requires_grad_()
g = td.empty(4, 32, 8, 8, device="cuda", dtype=td.bfloat16).to(memory_format=td.channels_last)
seen = []
def step(look=None, **options):
    x.grad = conv.weight.grad = conv.bias.grad = None
    with td.autocast("cuda", td.bfloat16):
        y = conv(x)
        if look:
            look(y)
        z = y.relu()
    z.backward(g, **options)
    return y
"""


def test_a_bias_is_summed_where_its_gradient_is_made(tmp_path):
    run(
        LAUNCHES
        + JOINED
        + """
both = launches(step)
assert sum("less_where_sum" in name for name in both) == 1 and "td_fused_less_where" not in both, both
assert x.grad.stride() == x.stride() and conv.weight.grad.dtype == conv.bias.grad.dtype == td.float32
apart = launches(lambda: step(lambda y: y.register_hook(seen.append)))  # somebody looks at the gradient between
assert "td_fused_less_where" in apart and len(seen) == 2 and seen[0].shape == g.shape, apart
assert "td_fused_less_where" in launches(lambda: step(lambda y: y.retain_grad()))
assert "td_fused_less_where" in launches(lambda: step(create_graph=True))
""",
        tmp_path,
    )


def test_gradients_that_meet_are_added_on_the_way(tmp_path):
    run(
        LAUNCHES
        + """
x = td.empty(4, 16, 8, 8, device="cuda", requires_grad=True)
norm = td.nn.BatchNorm2d(16).to("cuda")
seen = []
def step(look=None, uses=2, **options):
    y = (x * 2.0).relu()
    if look:
        look(y)
    ways = [y.exp(), y.sin(), y.cos()][:uses]
    td.autograd.backward([w.sum() for w in ways], **options)
def sums(**options):
    x.grad = td.zeros_like(x)  # what is added to it is no sum of ours
    names = launches(lambda: step(**options))
    return sum("add_less_where" in name for name in names), names
assert sums()[0] == 1 and sums(uses=3)[0] == 1 and sums(uses=1)[0] == 0, sums()
assert sums(look=lambda y: y.register_hook(seen.append))[0] == 0 and seen  # somebody looks at the sum
assert sums(look=lambda y: y.retain_grad())[0] == 0 and sums(create_graph=True)[0] == 0
def normalised():
    y = norm(x).relu()
    td.autograd.grad([y.exp().sum()], [x])
assert "td_fused_less_where" not in launches(normalised)  # the sums of the normalisation take it along
""",
        tmp_path,
    )


def test_joined_records_say_what_each_would_say(tmp_path):
    run(
        LAUNCHES
        + JOINED
        + """
def message(f):
    try:
        f()
    except td.AutogradError as error:
        return str(error)
    raise AssertionError
def again():
    with td.autocast("cuda", td.bfloat16):
        z = conv(x).relu()
    z.backward(g)
    z.backward(g)
assert "backward through relu a second time" in message(again)
def changed():
    with td.autocast("cuda", td.bfloat16):
        z = conv(x).relu()
    with td.no_grad():
        z.add_(1.0)
    z.backward(g)
assert "backward of relu needs a tensor that was changed in place" in message(changed)
def images():
    with td.autocast("cuda", td.bfloat16):
        z = conv(x).relu()
    with td.no_grad():
        x.add_(1.0)
    z.backward(g)
assert "backward of conv2d needs a tensor that was changed in place" in message(images)
with td.autocast("cuda", td.bfloat16):
    y = conv(x)
    z = y.relu()
    w = y.exp()
(z.sum() + w.sum()).backward()  # two gradients meet: nothing is joined
a, b = td.autograd.grad(conv(x.float()).relu().sum(), [conv.bias, x])
assert a.shape == (32,) and b.shape == x.shape
""",
        tmp_path,
    )
