"""Parameters on the host are not copied; tests/gpu/test_stand_in_servers.py tests the copies of those on a device."""

import tandem as td
from tandem.distributed.servers.staging import Staged, Staging


def test_parameters_on_the_host_are_not_copied():
    p = td.nn.Parameter(td.ones(3))
    staging = Staging([p])
    (p * 2).sum().backward()
    staging.begin_rest()
    assert staging.on_host(p, lambda g: g[:2]).tolist() == [2.0, 2.0]
    assert staging.copied(p.grad) is p.grad
    staging.end_step()
    assert not any(staging.counts.values())


def test_tensors_of_a_message_are_made_as_often_as_it_is_sent():
    made = []
    staged = Staged([lambda: made.append(1), lambda: made.append(2)])
    assert made == []
    assert list(staged) == list(staged) == [None, None] and made == [1, 2, 1, 2]
