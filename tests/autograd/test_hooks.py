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
