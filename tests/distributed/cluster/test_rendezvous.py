"""Messages of a step: who waits for them, and who looks whether the step has failed."""

import threading
import time

import pytest

import tandem as td
from tandem.distributed.cluster.rendezvous import Messages


class Cancelled:
    """A step's cancellation, as far as those who wait look at it."""

    cancelled = False


class CancelledByLeaving:
    """The step fails just after the one who looks has left with its message."""

    def __init__(self, step):
        self.step, self.has_come = step, False

    @property
    def cancelled(self):
        self.step.cancelled = self.has_come
        return False


def test_all_who_wait_end_when_the_step_fails_while_one_leaves():
    messages, step = Messages(), Cancelled()
    leaving = CancelledByLeaving(step)
    ends = []

    def take(key, cancellation):
        try:
            messages.take(key, cancellation)
            ends.append("taken")
        except td.errors.CancelledError:
            ends.append("cancelled")

    threads = [threading.Thread(target=take, args=("first", leaving), daemon=True)]
    threads[0].start()
    while not messages.somebody_looks:
        time.sleep(0.001)
    threads += [threading.Thread(target=take, args=(key, step), daemon=True) for key in ("second", "third")]
    for thread in threads[1:]:
        thread.start()
    time.sleep(0.1)  # both wait
    with messages.changed:  # the one who looks finds it by itself
        messages.there["first"] = ()
        leaving.has_come = True
    for thread in threads:
        thread.join(300)
    assert sorted(ends) == ["cancelled", "cancelled", "taken"]


def test_a_message_that_is_there_is_taken_and_a_step_that_is_over_has_none():
    messages, step = Messages(), Cancelled()
    messages.put("key", (1,))
    assert messages.take("key", step) == (1,)
    messages.end()
    with pytest.raises(td.errors.CancelledError, match="over"):
        messages.take("key", step)
