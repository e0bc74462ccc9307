"""Objects with slots that a compiled function makes and gives back."""

import pathlib

import torch

import argand


class Kept:
    __slots__ = ("__secret", "shown", "unset")

    def __init__(self):
        self.__secret = 5

    def secret(self):
        return self.__secret


class Derived(Kept):
    __slots__ = ("__dict__", "__weakref__", "own")

    def __init__(self, own):
        super().__init__()
        self.own, self.more = own, 7

    @property
    def shown(self):
        """Hides a slot of the base class."""
        return self.own * 2


def test_private_slots_and_slots_that_a_property_hides():
    def run(x):
        return x + 1, Derived(3), pathlib.PurePosixPath("a") / "b.txt"

    _, made, path = argand.compile(run, fullgraph=True)(torch.ones(2))
    assert (made.own, made.shown, made.more, made.secret()) == (3, 6, 7, 5)
    assert not hasattr(made, "unset") and path == pathlib.PurePosixPath("a/b.txt")
