"""Cases that are Python programs: definitions, and calls of `f` that are compiled one after the other.

    def f(x):
        return x + 1
    f(ones(3))

`ones(...)` makes a tensor, `leaf(...)` one that requires a gradient; `np` is numpy.
"""

import ast
import contextlib
import functools
import io
import linecache
import re
import warnings

import numpy as np
import torch
import torch.nn.functional as F

import argand
from argand.support import events

FILE = "case.py"
SHOWN = {
    "graph": "graph_code",
    "guards": "guards",
    "code": "bytecode",
    "breaks": "graph_breaks",
    "again": "recompiles",
}
CLUTTER = re.compile(r";  (?:\w+ = )+None|# File .*|^import .*|^from .*|^inf, nan = .*", flags=re.M)


def leaf(*sizes):
    return torch.ones(*sizes, requires_grad=True)


def split(body):
    """(definitions, calls) of a program."""
    tree = ast.parse(body)
    calls = [
        node
        for node in tree.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ]
    others = [node for node in tree.body if node not in calls]
    return ast.unparse(ast.Module(others, [])), [ast.unparse(node) for node in calls]


def heard_of(case, backend, backward):
    """What the compiler says while the calls run; errors of the program are its own business."""
    source, calls = split(case.body)
    scope = {"torch": torch, "F": F, "argand": argand, "leaf": leaf, "ones": torch.ones, "np": np}
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    exec(compile(source, FILE, "exec"), scope)
    dynamic = {"open": True, "fixed": False}.get(case.options.get("sizes", ""))
    f = argand.compile(scope["f"], backend=backend, dynamic=dynamic)
    with (
        events.collect() as heard,
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        for call in calls:
            with contextlib.suppress(ZeroDivisionError, ValueError, KeyError):
                result = eval(call, {**scope, "f": f})
                if backward:
                    tensors = [
                        t
                        for t in torch.utils._pytree.tree_leaves(result)
                        if isinstance(t, torch.Tensor)
                    ]
                    sum(t.sum() for t in tensors if t.requires_grad).backward()
    linecache.cache.pop(FILE)
    return heard


def plain(text):
    """A printed graph without what is the same in all of them."""
    lines = [
        line.rstrip()
        for line in CLUTTER.sub("", text).replace("torch.ops.aten.", "aten.").splitlines()
    ]
    return "\n".join(line for line in lines if line.strip())


def capture(case):
    """Graphs, guards, generated code, breaks or reasons to compile again, as `show` asks."""
    heard = heard_of(case, "eager", backward=False)
    parts = []
    for word in case.options.get("show", "graph").split(", "):
        texts = list(dict.fromkeys(plain(text) for text in heard.texts(SHOWN[word])))
        texts = [drop_tables(text) if word == "guards" else text for text in texts]
        parts += [f"{word}:\n{text}" for text in texts or ["none"]]
    return "\n".join(parts)


def drop_tables(text):
    """How many modules and classes are looked after says nothing about the program."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("TABLES"))


def differentiated(artifact, case):
    """The graphs that autograd makes of a program in training."""
    heard = heard_of(case, "aot_eager", backward=True)
    return "\n".join(map(plain, heard.texts(artifact))) or "none"


joint = functools.partial(differentiated, "aot_joint_graph")
partition = functools.partial(differentiated, "aot_graphs")
