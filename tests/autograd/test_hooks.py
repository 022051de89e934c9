import pytest

import tandem as td


def test_hook_on_a_leaf():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    seen = []
    x.register_hook(lambda g: seen.append(g.tolist()))
    (x * 3).sum().backward()
    assert seen == [[3, 3]] and x.grad.tolist() == [3, 3]


def test_hook_replaces_a_gradient():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: -g)
    (y * 3).sum().backward()
    assert x.grad.tolist() == [-60, -60]


def test_hooks_run_once_on_the_whole_gradient():
    x = td.tensor(2.0, requires_grad=True)
    y = x * 1
    seen = []
    y.register_hook(lambda g: seen.append(float(g)))
    (y * 3 + y * 4).backward()
    assert seen == [7] and float(x.grad) == 7


def test_hooks_run_in_order_and_can_be_removed():
    x = td.tensor(2.0, requires_grad=True)
    order = []
    first = x.register_hook(lambda g: order.append("first"))
    x.register_hook(lambda g: order.append("second"))
    (x * 2).backward()
    first.remove()
    first.remove()
    (x * 2).backward()
    assert order == ["first", "second", "second"]


def test_hook_on_one_of_several_outputs():
    x = td.tensor([1.0, 2.0, 3.0], requires_grad=True)
    a, b = x.split([1, 2])
    b.register_hook(lambda g: g * 100)
    (a.sum() + b.sum()).backward()
    assert x.grad.tolist() == [1, 100, 100]


def test_errors_in_hooks_come_through():
    x = td.tensor(1.0, requires_grad=True)

    def fail(g):
        raise KeyError("mine")

    x.register_hook(fail)
    with pytest.raises(KeyError, match="mine"):
        (x * 2).backward()


def test_hook_needs_a_gradient():
    with pytest.raises(td.AutogradError, match="does not require grad"):
        td.ones(2).register_hook(print)


def test_hook_may_not_change_the_shape():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    x.register_hook(lambda g: g.sum())
    with pytest.raises(td.TandemError, match=r"shape|\(\)"):
        (x * 2).sum().backward()


def test_hooks_with_create_graph():
    x = td.tensor(3.0, requires_grad=True)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = td.autograd.grad(y, x, create_graph=True)  # x * 2x
    (second,) = td.autograd.grad(g, x)
    assert (float(g), float(second)) == (18, 12)


def test_retain_grad():
    x = td.tensor(2.0, requires_grad=True)
    y = x * 3
    y.retain_grad()
    y.retain_grad()
    assert y.grad is None
    (y * y).backward()
    assert float(y.grad) == 12 and float(x.grad) == 36
    x.retain_grad()  # on a leaf: nothing to do
    with pytest.raises(td.AutogradError):
        td.ones(2).retain_grad()


def test_a_hook_does_not_keep_its_tensor():
    import gc
    import weakref

    x = td.tensor(2.0, requires_grad=True)
    y = x * 3
    y.retain_grad()
    alive = weakref.ref(y)
    z = y * 2
    del y
    gc.collect()
    assert alive() is None
    z.backward()


def test_hooks_after_accumulation_see_the_whole_gradient():
    w, seen = td.ones(3, requires_grad=True), []
    handle = w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.tolist()))
    ((w * 2).sum() + (w * 3).sum()).backward()  # two ways, one gradient
    w.sum().backward()
    assert seen == [[5.0] * 3, [6.0] * 3]
    td.autograd.grad((w * w).sum(), w)  # nothing accumulates
    handle.remove()
    w.sum().backward()
    assert len(seen) == 2


@pytest.mark.parametrize("compiled", [False, True])
def test_an_optimizer_step_in_the_middle_of_backward(compiled):
    def trained(in_backward):
        td.manual_seed(0)
        model = td.nn.Sequential(td.nn.Linear(4, 8), td.nn.Tanh(), td.nn.Linear(8, 1))
        optimizers = {p: td.optim.Adam([p], lr=0.1) for p in model.parameters()}

        def update(p):
            optimizers[p].step()
            optimizers[p].zero_grad()

        if in_backward:
            for p in model.parameters():
                p.register_post_accumulate_grad_hook(update)

        def step(x):
            loss = (model(x) ** 2).mean()
            loss.backward()
            if not in_backward:
                for p in model.parameters():
                    update(p)
            return loss

        step = td.compile(step) if compiled else step
        return [step(td.ones(5, 4) * i).item() for i in (1, 2, 3)] + [p.tolist() for p in model.parameters()]

    assert trained(True) == trained(False)


def test_hooks_after_accumulation_are_for_leaves():
    x = td.ones(2, requires_grad=True)
    with pytest.raises(td.AutogradError, match="computed from others"):
        (x * 2).register_post_accumulate_grad_hook(print)
    with pytest.raises(td.AutogradError, match="does not require grad"):
        td.ones(2).register_post_accumulate_grad_hook(print)

    def fails(p):
        raise KeyError("from the hook")

    x.register_post_accumulate_grad_hook(fails)
    with pytest.raises(KeyError, match="from the hook"):
        x.sum().backward()


def test_hooks_of_records_see_what_goes_in_and_out():
    x = td.tensor([1.0, 2.0], requires_grad=True)
    w = td.tensor([3.0, 4.0], requires_grad=True)
    y = x * w
    seen = []
    y.grad_fn.register_hook(lambda given, incoming: seen.append(([g.tolist() for g in given], incoming[0].tolist())))
    y.sum().backward()
    assert seen == [([[3.0, 4.0], [1.0, 2.0]], [1.0, 1.0])]


def test_hooks_of_records_replace_gradients_until_they_are_removed():
    def gradient(hook=None, before=None, removed=False):
        x = td.tensor([1.0, 2.0], requires_grad=True)
        y = (x * 3).exp()
        node = y.grad_fn
        handles = [node.register_hook(hook)] if hook else []
        handles += [node.register_prehook(before)] if before else []
        for handle in handles if removed else ():
            handle.remove()
        y.backward(td.ones(2))
        return x.grad

    plain = gradient()
    double = lambda given, incoming: (given[0] * 2,)
    assert td.allclose(gradient(double), plain * 2) and td.equal(gradient(double, removed=True), plain).all()
    assert td.allclose(gradient(before=lambda incoming: (incoming[0] * 5,)), plain * 5)
    with pytest.raises(td.DTypeError, match="returned 2 gradients"):
        gradient(lambda given, incoming: (given[0], given[0]))


def test_hooks_of_a_leaf_s_record_run_after_it_has_its_gradient():
    x = td.ones(2, requires_grad=True)
    view = x.expand_as(x)
    leaf, seen = view.grad_fn.next_functions[0][0], []
    leaf.register_hook(lambda given, incoming: seen.append((len(given), incoming[0].tolist(), x.grad.tolist())))
    (view * 2).sum().backward()
    assert seen == [(0, [2.0, 2.0], [2.0, 2.0])]


WRONG = {
    "shape": lambda: td.ones(7),
    "fewer": lambda: td.ones(0),
    "scalar": lambda: td.ones(()),
    "wider": lambda: td.ones(3, dtype=td.float64),
    "integers": lambda: td.ones(3, dtype=td.int64),
}


@pytest.mark.parametrize("how", ["eager", "compiled", "autobatch"])
@pytest.mark.parametrize("where", ["tensor", "leaf", "record", "before record"])
@pytest.mark.parametrize("wrong", WRONG)
def test_hooks_may_not_give_gradients_of_another_kind(wrong, where, how):
    make = WRONG[wrong]
    w = td.ones(3, requires_grad=True)
    if where == "leaf":
        w.register_hook(lambda g: make())

    def f(x):
        h = w * x
        if where == "tensor":
            h.register_hook(lambda g: make())
        if where == "record":
            h.grad_fn.register_hook(lambda given, incoming: (make(), *given[1:]))
        if where == "before record":
            h.grad_fn.register_prehook(lambda incoming: (make(),))
        return td.tanh(h).sum()

    def step(x):
        if how == "autobatch":
            with td.autobatch():
                loss = f(x) + f(x)
            loss.backward()
        else:
            f(x).backward()

    with pytest.raises((td.ShapeError, td.DTypeError), match=r"a hook replaced a gradient of|it was given None"):
        (td.compile(step) if how == "compiled" else step)(td.ones(3))
    assert w.grad is None


@pytest.mark.parametrize("batched", [False, True])
def test_hooks_may_not_give_a_gradient_other_data_of_another_size(batched):
    w = td.ones(3, requires_grad=True)

    def hook(g):
        g.data = td.ones(1)

    with td.autobatch() if batched else td.enable_grad():
        h = w * td.ones(3)
        h.register_hook(hook)
        loss = h.sum() + (w * 2).sum()
    with pytest.raises(
        (td.ShapeError, td.AutogradError), match=r"a hook replaced a gradient of|takes values of x's shape"
    ):
        loss.backward()


@pytest.mark.parametrize("batched", [False, True])
def test_a_hook_before_a_record_may_say_that_there_is_no_gradient(batched):
    w = td.ones(3, requires_grad=True)
    with td.autobatch() if batched else td.enable_grad():
        made = [w * x for x in (td.ones(3), td.ones(3) * 2)]
        for h in made:
            h.grad_fn.register_prehook(lambda incoming: (None,))
        loss = sum(td.tanh(h).sum() for h in made)
    loss.backward()
    assert w.grad is None


@pytest.mark.parametrize("dtype", [td.float64, td.bfloat16, td.int64, td.bool])
@pytest.mark.parametrize("batched", [False, True])
def test_gradients_to_start_from_are_converted(dtype, batched):
    w = td.ones(3, requires_grad=True)
    with td.autobatch() if batched else td.enable_grad():
        y = w * td.tensor([1.0, 2.0, 3.0])
    given = td.ones(3, dtype=dtype)
    (found,) = td.autograd.grad(y, w, given, retain_graph=True)
    y.backward(given)
    assert found.dtype is w.grad.dtype is td.float32
    assert found.tolist() == w.grad.tolist() == [1, 2, 3]
    with pytest.raises(td.DTypeError, match="complex64"):
        (w * 2).backward(td.ones(3, dtype=td.complex64))
