"""Values that refer to themselves leave a compiled function as one object each, whatever they are made of."""

import collections
import functools
import types

import pytest
import torch

import argand


class Node:
    pass


class Hashed:
    """Its hash needs an attribute."""

    def __init__(self):
        self.key = 1

    def __hash__(self):
        return hash(self.key)

    def __eq__(self, other):
        return self.key == other.key


def method(self):
    return self


def held_by(value, node):
    """A value that the node holds, and that holds the node."""
    node.held = value
    return value


def tuple_in_its_list():
    inner = []
    value = (inner, 1)
    inner.append(value)
    return value


def list_of_itself():
    value = []
    value.append(value)
    return value


def dict_of_itself():
    value = {}
    value["own"] = value
    return value


def deque_of_itself():
    value = collections.deque()
    value.append(value)
    return value


def hashed_in_its_set():
    node = Hashed()
    node.friends = {node}
    return node


def hashed_in_its_dict():
    node = Hashed()
    node.numbers = {(node, 1): 2, 3: 4}
    return node


def set_of_hashed():
    return hashed_in_its_set().friends


def frozenset_of_hashed():
    node = Hashed()
    return held_by(frozenset([node]), node)


def set_of_a_node():
    node = Node()
    return held_by({node}, node)


def frozenset_of_a_node():
    node = Node()
    return held_by(frozenset([node]), node)


def partial_of_a_node():
    node = Node()
    return held_by(functools.partial(max, node), node)


def method_of_a_node():
    node = Node()
    return held_by(types.MethodType(method, node), node)


CASES = {
    tuple_in_its_list: lambda value: value[0][0] is value,
    list_of_itself: lambda value: value[0] is value,
    dict_of_itself: lambda value: value["own"] is value,
    deque_of_itself: lambda value: value[0] is value,
    hashed_in_its_set: lambda value: value in value.friends,
    hashed_in_its_dict: lambda value: (
        [*value.numbers] == [(value, 1), 3] and value.numbers[value, 1] == 2
    ),
    set_of_hashed: lambda value: next(iter(value)).friends is value,
    frozenset_of_hashed: lambda value: next(iter(value)).held is value,
    set_of_a_node: lambda value: next(iter(value)).held is value,
    frozenset_of_a_node: lambda value: next(iter(value)).held is value,
    partial_of_a_node: lambda value: value.args[0].held is value,
    method_of_a_node: lambda value: value.__self__.held is value,
}


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_an_object_is_one(make):
    def program(x):
        y = x * 2
        return y + x, make()

    compiled = argand.compile(program, backend="eager", options={"strict": True})
    for _ in range(2):
        tensor, value = compiled(torch.ones(2))
        assert tensor.tolist() == [3.0, 3.0]
        assert CASES[make](value)
