"""Counters, iterators, caches and containers from outside."""

from __future__ import annotations

import array
import bisect
import collections
import functools
import hashlib
import heapq
import io
import itertools
import struct
import weakref
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.effects.world import case


@case
def counter():
    numbers = itertools.count()

    def run(x, cut):
        y = x + next(numbers)
        cut()
        return y + next(numbers)

    return run, lambda: repr(numbers)


@case
def iterators():
    items, cycle, text = iter(list(range(50))), itertools.cycle([1, 2, 3]), io.StringIO("a\n" * 50)

    def run(x, cut):
        y = x + next(items)
        cut()
        for line, _ in zip(text, range(2), strict=False):
            y = y + next(cycle) + len(line)
        return y

    return run, lambda: (items.__length_hint__(), cycle.__reduce__()[2], text.tell())


@case
def generator():
    log: list[int] = []

    def numbers() -> Iterator[int]:
        for i in range(50):
            log.append(i)
            yield i

    made = numbers()

    def run(x, cut):
        y = x + next(made)
        cut()
        return y + next(made)

    return run, lambda: list(log)


@case
def cached_function():
    calls: list[int] = []

    @functools.lru_cache
    def once(n):
        calls.append(n)
        return n + 1

    def run(x, cut):
        y = x + once(3)
        cut()
        return y + once(4)

    return run, lambda: list(calls)


@case
def cached_property():
    calls: list[int] = []

    class Thing:
        @functools.cached_property
        def size(self):
            calls.append(1)
            return 3

    thing = Thing()

    def run(x, cut):
        y = x + thing.size
        cut()
        return y + thing.size

    return run, lambda: (list(calls), dict(vars(thing)))


@case
def containers_of_c():
    numbers, data, heap = array.array("i", [1]), bytearray(b"a"), [3, 5]

    def run(x, cut):
        numbers.append(2)
        data.extend(b"bc")
        cut()
        heapq.heappush(heap, 1)
        bisect.insort(heap, 4)
        struct.pack_into("b", data, 0, 65)
        return x + len(numbers) + len(data) + len(heap)

    return run, lambda: (numbers.tolist(), bytes(data), list(heap))


@case
def containers():
    many: Any = collections.defaultdict(list)
    order, counts, line = (
        collections.OrderedDict(a=1, b=2),
        collections.Counter("ab"),
        collections.deque([1, 2, 3], 4),
    )

    def run(x, cut):
        many["a"].append(1)
        order.move_to_end("a")
        cut()
        counts.update("bc")
        line.rotate(1)
        line.append(9)
        return x + len(many["a"]) + counts["b"]

    return run, lambda: (dict(many), list(order), dict(counts), list(line))


@case
def weak_containers():
    class Key:
        pass

    key, values, keys = Key(), weakref.WeakValueDictionary(), weakref.WeakSet()

    def run(x, cut):
        values["a"] = key
        cut()
        keys.add(key)
        return x + len(values) + len(keys)

    return run, lambda: (list(values), len(keys))


@case
def digests():
    digest, compressor = hashlib.sha256(), zlib.compressobj()

    def run(x, cut):
        digest.update(b"a")
        cut()
        compressor.compress(b"abc")
        return x + 1

    return run, lambda: (digest.hexdigest(), len(compressor.copy().flush()))


@case
def numpy_array():
    numbers = np.zeros(3)

    def run(x, cut):
        numbers[0] += 1
        cut()
        numbers.fill(numbers[0])
        return x + 1

    return run, numbers.tolist
