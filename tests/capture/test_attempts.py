"""Another attempt on a frame has a reason, and each is told."""

import pytest
import torch

import argand
from argand.support import events


def attempts(function, *args, **keywords):
    """The reasons for another attempt, as the event and as the log have them."""
    with events.collect() as seen:
        compiled = argand.compile(function, backend="eager", **keywords)
        result, wanted = compiled(*args), function(*args)
        torch.testing.assert_close(result, wanted)
    told = reasons(seen)
    texts = seen.texts("retries")
    assert told == [text for text in texts if not text.startswith("traced in ")]
    assert any(text.startswith("traced in ") for text in texts)  # one for each frame
    return told


def reasons(seen):
    return [
        event.detail for event in seen.events if getattr(event, "counter", "") == "capture.retry"
    ]


def needs_the_number(x):
    return x * len(str(x.shape[0]))


def equal_sizes(x, y):
    return x + y


def below_native_code(x):
    return x * max([1, 2], key=lambda n: n * float(x.sum().item() > 0))


CASES = {
    needs_the_number: "s0: s0 is needed as a number (str)",
    equal_sizes: "a call needs s0 == s1",
    below_native_code: "break at instruction",
}


@pytest.mark.parametrize("function", CASES)
def test_each_retry_tells_its_reason(function):
    count = function.__code__.co_argcount
    told = attempts(function, *[torch.ones(5) for _ in range(count)], dynamic=True)
    assert any(CASES[function] in reason for reason in told), told


def test_nothing_is_told_where_one_attempt_does():
    assert attempts(lambda x: x + 1, torch.ones(3)) == []


def test_a_backend_that_cannot_take_open_sizes_is_a_reason():
    def fixed_only(gm, inputs):
        if not all(isinstance(value, torch.Tensor) for value in inputs):
            raise TypeError("tensors only")
        return gm.forward

    with events.collect() as seen:
        compiled = argand.compile(lambda x: x + 1, backend=fixed_only, dynamic=True)
        assert torch.equal(compiled(torch.ones(4)), torch.full((4,), 2.0))
    assert reasons(seen) == ["the backend cannot take it: TypeError('tensors only')"]
