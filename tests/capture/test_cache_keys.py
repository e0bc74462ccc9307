"""Keys of caches made by pickle, as linear_operator makes them: bytes that depend on names and numbers alone."""

import pickle

import pytest
import torch

import argand


class Cached:
    def __init__(self, weight):
        self.weight, self.cache = weight, {}

    def get(self, x, **keywords):
        key = ("get", pickle.dumps(keywords))
        if key not in self.cache:
            self.cache[key] = self.weight.exp() if keywords.get("upper") else self.weight.sin()
        return self.cache[key] + x


def program(cached, x, n):
    return cached.get(x, upper=True, n=n) * cached.get(x, upper=False) + cached.get(x)


def test_they_are_made_while_tracing():
    x, weight = torch.randn(3), torch.randn(3)
    compiled = argand.compile(program, backend="eager", fullgraph=True)
    for n in (1, None, 1, 2.5):
        ours, eager = Cached(weight), Cached(weight)
        torch.testing.assert_close(compiled(ours, x, n), program(eager, x, n))
        assert ours.cache.keys() == eager.cache.keys()
        assert all(type(value) is torch.Tensor for value in ours.cache.values())


def dumps_text(x, name):
    return x + len(pickle.dumps({"a": name, "b": name}))


def dumps_from_outside(x, held):
    return x + len(pickle.dumps(held))


@pytest.mark.parametrize(
    ("function", "given"), [(dumps_text, "word"), (dumps_from_outside, {"a": 1})]
)
def test_what_depends_on_more_is_left_to_python(function, given):
    x = torch.randn(3)
    explanation = argand.explain(function)(x, given)
    assert [broken.row.name for broken in explanation.breaks] == ["B002"]
    torch.testing.assert_close(argand.compile(function)(x, given), function(x, given))
