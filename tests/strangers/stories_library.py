"""Sessions with the standard library: logging, random, files, times, collections, contexts, threads."""

import asyncio
import bisect
import collections
import contextvars
import copy
import datetime
import decimal
import fractions
import functools
import heapq
import io
import itertools
import json
import logging
import math
import operator
import os
import pathlib
import random
import re
import string
import struct
import tempfile
import textwrap
import threading
import time
import types
import warnings
import weakref

import torch

from tests.strangers.sessions import session, tried


def ones(*shape):
    return torch.arange(1.0, 1.0 + int(torch.tensor(shape).prod())).reshape(shape)


@session
def logging_to_a_handler(wrap):
    class Keep(logging.Handler):
        def __init__(self):
            super().__init__()
            self.lines = []

        def emit(self, record):
            self.lines.append((record.levelname, record.getMessage(), record.funcName))

    logger, keep = logging.getLogger("strangers.sessions"), Keep()
    logger.handlers, logger.propagate = [keep], False
    logger.setLevel(logging.INFO)

    def step(x, n):
        logger.debug("shape %s", x.shape)
        logger.info("n is %d of %s", n, tuple(x.shape))
        if logger.isEnabledFor(logging.DEBUG):
            x = x + 100
        try:
            return x / n if n else math.sqrt(-1)
        except ValueError:
            logger.exception("bad")
            return x

    f = wrap(step)
    for n in (1, 2, 0):
        yield f(ones(2), n), keep.lines
    logger.setLevel(logging.DEBUG)
    yield f(ones(2), 1), keep.lines
    logger.setLevel(logging.ERROR)
    yield f(ones(2), 1), keep.lines


@session
def warnings_once_and_always(wrap):
    def step(x, n):
        warnings.warn(f"number {n}", UserWarning, stacklevel=1)
        return x * n

    f = wrap(step)
    for n in (1, 2, 2):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            y = f(ones(2), n)
        yield y, [(str(w.message), w.category.__name__) for w in seen]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield tried(f, ones(2), 3)


@session
def printing_in_the_middle(wrap):
    def step(x, n):
        print("begin", n, tuple(x.shape), sep="|")
        y = x * n
        if n > 1:
            print("sum", y.sum().item(), end="!\n")
        print([n, {"k": n}], f"{n:03d}")
        return y + 1

    f = wrap(step)
    for n in (1, 2, 3, 1):
        yield f(ones(2), n)


@session
def random_modules(wrap):
    def step(x):
        k = random.randint(1, 100)
        order = list(range(4))
        random.shuffle(order)
        return x * k + random.random(), order, random.choice("abc")

    f = wrap(step)
    random.seed(3)
    for _ in range(3):
        yield f(ones(2))
    yield random.random()
    own = random.Random(5)
    g = wrap(lambda x: x * own.random())
    yield [g(ones(2)) for _ in range(3)], own.random()


@session
def torch_random_states(wrap):
    def step(x, generator):
        a = torch.randn(2, generator=generator)
        b = torch.rand(2)
        with torch.random.fork_rng():
            torch.manual_seed(7)
            c = torch.rand(2)
        return x + a + b, c, torch.randint(0, 10, (2,), generator=generator)

    f, generator = wrap(step), torch.Generator().manual_seed(3)
    torch.manual_seed(1)
    for _ in range(3):
        yield f(ones(2), generator), torch.rand(1)
    yield torch.rand(1, generator=generator), generator.initial_seed()
    state = torch.get_rng_state()
    first = wrap(lambda x: torch.nn.functional.dropout(x, 0.5))
    a = first(torch.ones(64))
    torch.set_rng_state(state)
    yield a, first(torch.ones(64)), torch.rand(1)

    def seeds(x, n):
        torch.manual_seed(n)
        return x + torch.rand(2), torch.initial_seed()

    g = wrap(seeds)
    yield g(ones(2), 4), g(ones(2), 4), g(ones(2), 5), torch.rand(1)


@session
def the_environment(wrap):
    def step(x):
        scale = float(os.environ.get("STRANGER_SCALE", "1"))
        if "STRANGER_FLAG" in os.environ:
            x = -x
        return x * scale, os.getenv("STRANGER_NAME", "none")

    f = wrap(step)
    yield f(ones(2))
    os.environ["STRANGER_SCALE"] = "3"
    yield f(ones(2))
    os.environ["STRANGER_FLAG"] = ""
    yield f(ones(2))
    del os.environ["STRANGER_SCALE"], os.environ["STRANGER_FLAG"]
    yield f(ones(2))


@session
def paths_and_files(wrap):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)

        def step(x, name):
            path = root / name
            if path.exists():
                x = x * len(path.read_text())
            path.write_text((path.read_text() if path.is_file() else "") + "ab")
            return x, path.suffix, path.stem, path.name, (root / "a" / ".." / "b").name

        f = wrap(step)
        for name in ("a.txt", "a.txt", "b.tar.gz", "a.txt"):
            yield f(ones(2), name), sorted(p.name for p in root.iterdir())


@session
def json_and_regular_expressions(wrap):
    def step(x, text):
        data = json.loads(text)
        found = re.findall(r"\d+", text)
        match = re.search(r'"k": (?P<k>\d+)', text)
        k = int(match["k"]) if match else 1
        return (
            x * k + sum(map(int, found)),
            json.dumps(data, sort_keys=True),
            re.sub(r"\d", "#", text),
            data,
        )

    f = wrap(step)
    for text in ('{"k": 2, "a": [1, 2]}', '{"b": 1}', '{"k": 3}'):
        yield f(ones(2), text)
    yield tried(f, ones(2), "{bad")


@session
def times_and_dates(wrap):
    def step(x, day):
        start = time.perf_counter()
        later = day + datetime.timedelta(days=int(x.shape[0]))
        took = time.perf_counter() - start
        return (
            x + day.year,
            later.isoformat(),
            took >= 0,
            later.strftime("%Y-%m"),
            (later - day).days,
        )

    f = wrap(step)
    for day in (
        datetime.date(2024, 2, 28),
        datetime.datetime(2023, 2, 28, 1, 2),
        datetime.date(2024, 2, 28),
    ):
        yield f(ones(2), day)
    yield f(ones(3), datetime.date(2024, 2, 28))
    clock = iter([1.0, 5.0, 7.0, 20.0])
    real, time.time = time.time, lambda: next(clock)
    try:
        g = wrap(lambda x: x * (time.time() - time.time()))
        yield g(ones(2)), g(ones(2))
    finally:
        time.time = real


@session
def deques_and_counters(wrap):
    def step(x, window, counts):
        window.append(x.sum())
        window.rotate(1)
        counts.update([len(window), "n"])
        return (
            torch.stack(list(window)).mean(),
            counts.most_common(1),
            window.maxlen,
            counts["missing"],
        )

    f, window, counts = wrap(step), collections.deque(maxlen=2), collections.Counter()
    for n in (2, 3, 4, 2):
        yield f(ones(n), window, counts), window, counts
    yield f(ones(2), collections.deque([ones(1).sum()]), counts)


@session
def ordered_and_chained_dicts(wrap):
    def step(x, ordered, chain, default):
        ordered.move_to_end("a")
        ordered["n"] = ordered.pop("n", 0) + 1
        chain["new"] = x
        default["k"].append(len(default))
        default["other"]
        return (
            chain["low"] * x,
            list(ordered),
            list(chain.maps[0]),
            chain.get("none", 3),
            dict(default),
            ordered.popitem(last=False),
        )

    ordered, default = collections.OrderedDict(a=1, b=2, n=0), collections.defaultdict(list)
    chain = collections.ChainMap({}, {"low": 2.0})
    f = wrap(step)
    for _ in range(2):
        yield f(ones(2), ordered, chain, default), ordered, default
        ordered["a"] = 5
    chain.maps[1]["low"] = 7.0
    yield f(ones(2), ordered, chain, default)


@session
def heaps_and_bisection(wrap):
    def step(x, heap, edges, k):
        heapq.heappush(heap, (k, "n"))
        low = heapq.heappop(heap)
        place = bisect.bisect_left(edges, k)
        bisect.insort(edges, k)
        return (
            x * low[0],
            place,
            heapq.nsmallest(2, heap),
            heapq.nlargest(1, edges),
            list(heapq.merge(edges, [0, 9])),
        )

    f, heap, edges = wrap(step), [(3, "a"), (5, "b")], [1, 4, 8]
    for k in (2, 9, 4, 4):
        yield f(ones(2), heap, edges, k), heap, edges


@session
def operators_and_functools(wrap):
    def step(x, items):
        get = operator.itemgetter(1, 0)
        total = functools.reduce(operator.add, [x * k for k in items])
        picked = operator.attrgetter("shape")(x), operator.methodcaller("sum", -1)(x)
        pairs = list(itertools.pairwise(items)), list(itertools.accumulate(items, operator.mul))
        groups = {k: list(g) for k, g in itertools.groupby(items, key=lambda n: n % 2)}
        return (
            total,
            get(items),
            picked,
            pairs,
            groups,
            list(itertools.islice(itertools.count(items[0], 2), 3)),
        )

    f = wrap(step)
    yield f(ones(2), [1, 2, 3]), f(ones(2), [2, 4]), f(ones(2), (3, 1, 1))
    yield tried(f, ones(2), [])


@session
def decimals_and_fractions(wrap):
    def step(x, d, q):
        total = d * 3 + decimal.Decimal("0.1")
        part = q + fractions.Fraction(1, 3)
        return (
            x * float(total) + float(part),
            str(total),
            part,
            part.denominator,
            round(total, 1) == d,
        )

    f = wrap(step)
    for d, q in (("0.1", 1), ("0.2", 2), ("0.1", 1)):
        found = f(ones(2), decimal.Decimal(d), fractions.Fraction(q, 7))
        yield found[0], found[1], str(found[2]), found[3:]
    with decimal.localcontext() as context:
        context.prec = 3
        yield str(f(ones(2), decimal.Decimal("0.12345"), fractions.Fraction(1))[1])


@session
def context_variables(wrap):
    scale = contextvars.ContextVar("scale", default=1.0)

    def step(x):
        y = x * scale.get()
        token = scale.set(scale.get() + 1)
        y = y + scale.get()
        if scale.get() > 5:
            scale.reset(token)
        return y

    f = wrap(step)
    yield f(ones(2)), scale.get()
    yield f(ones(2)), scale.get()
    scale.set(9.0)
    yield f(ones(2)), scale.get()
    yield contextvars.copy_context().run(f, ones(2)), scale.get()


@session
def thread_locals(wrap):
    local = threading.local()
    local.n = 1

    def step(x):
        local.n = getattr(local, "n", 100) + 1
        return x * local.n

    f, out = wrap(step), []
    yield f(ones(2)), local.n
    thread = threading.Thread(target=lambda: out.append((f(ones(2)), local.n)))
    thread.start()
    thread.join()
    yield out, local.n, f(ones(2)), local.n


@session
def weak_references(wrap):
    class Thing:
        def __init__(self, n):
            self.n = n

    def step(x, ref, table):
        thing = ref()
        return x if thing is None else x * thing.n, len(table)

    thing, table = Thing(3), weakref.WeakValueDictionary()
    table["a"] = thing
    f, ref = wrap(step), weakref.ref(thing)
    yield f(ones(2), ref, table)
    thing.n = 4
    yield f(ones(2), ref, table)
    del thing
    yield f(ones(2), ref, table)


@session
def coroutines(wrap):
    def inner(x, k):
        return x * k

    compiled = wrap(inner)

    async def work(x, k):
        await asyncio.sleep(0)
        return compiled(x, k)

    async def main():
        return await asyncio.gather(*(work(ones(2), k) for k in range(3)))

    yield asyncio.run(main())

    async def own(x):
        return x + 1

    yield asyncio.run(wrap(own)(ones(2)))

    def drives(x):
        return asyncio.run(own(x)) * 2

    yield wrap(drives)(ones(2))


@session
def copies(wrap):
    class Box:
        def __init__(self, x):
            self.x, self.tags = x, ["t"]

        def __copy__(self):
            made = Box(self.x)
            made.tags = [*self.tags, "copied"]
            return made

    def step(box):
        shallow, deep = copy.copy(box), copy.deepcopy(box)
        deep.x.add_(1)
        deep.tags.append("deep")
        shallow.x.mul_(2)
        return shallow, deep, shallow.x is box.x, box.tags

    f, box = wrap(step), Box(ones(2))
    yield f(box), box
    yield f(box), box
    items = [ones(2), [1, {"k": ones(2)}]]
    items.append(items[0])
    g = wrap(lambda items: (copy.deepcopy(items), list(items), items[:]))
    found = g(items)
    yield found, found[0][0] is found[0][2], found[1][0] is items[0], found[0][1] is items[1]


@session
def bytes_and_structs(wrap):
    def step(x, data):
        a, b = struct.unpack("<hh", data[:4])
        view = memoryview(data)
        buffer = bytearray(data)
        buffer[0] ^= 0xFF
        return (
            x * a + b,
            bytes(buffer),
            view[1],
            data.hex(),
            data.find(b"\x02"),
            int.from_bytes(data, "big") % 97,
        )

    f = wrap(step)
    for data in (b"\x01\x00\x02\x00", b"\x03\x00\x02\x01", b"\x01\x00\x02\x00"):
        yield f(ones(2), data)
    held = bytearray(b"abc")
    g = wrap(lambda x, b: (x * b[0], b.append(1), len(b))[0])
    yield g(ones(2), held), held[0], g(ones(2), held), len(held)


@session
def texts(wrap):
    def step(x, text):
        words = text.split()
        return (
            x * len(words), text.title().center(20, "*"), "-".join(reversed(words)), text.translate({97: "A"}),
            textwrap.shorten(text, 8), string.Template("$a").substitute(a=text), text.partition(" "), sorted(set(text)),
            text.startswith(("a", "b")), text.encode().decode("latin1"), f"{text!r:>12}", text.count("a"),
        )  # fmt: skip

    f = wrap(step)
    for text in ("a bc", "", "a bc", "xyz ä a"):
        yield f(ones(2), text)


@session
def string_buffers_and_namespaces(wrap):
    def step(x, out, space):
        out.write(f"{tuple(x.shape)};")
        space.n = getattr(space, "n", 0) + 1
        space.last = x * space.n
        return space.last + out.tell()

    f, out, space = wrap(step), io.StringIO(), types.SimpleNamespace(tag="t")
    for n in (2, 3, 2):
        yield f(ones(n), out, space), out.getvalue(), vars(space)


@session
def locks_and_events(wrap):
    lock, event, log = threading.RLock(), threading.Event(), []

    def step(x):
        with lock:
            log.append(len(log))
            if event.is_set():
                return x * 10
        return x + len(log)

    f = wrap(step)
    yield f(ones(2)), f(ones(2)), log
    event.set()
    yield f(ones(2)), log, lock.acquire(blocking=False)
    lock.release()


@session
def math_of_integers(wrap):
    def step(x, n, m):
        return (
            x * math.gcd(n, m), math.comb(n, 2), divmod(n, m), -n // m, n % -m, n << 3, pow(n, m, 7), round(n / m, 2), n**0.5,
            math.isclose(n / m, 1.5), abs(-n), math.floor(-n / m), int("0x1f", 16) + n, bin(n), n.bit_length(), ~n, n & m,
        )  # fmt: skip

    f = wrap(step)
    for n, m in ((6, 4), (9, 6), (10, 3), (6, 4), (2**65, 3)):
        yield f(ones(2), n, m)
    yield tried(f, ones(2), 5, 0)


@session
def sets_of_things(wrap):
    def step(x, names, seen):
        new = names - seen
        seen |= new
        seen.discard("gone")
        return (
            x * len(new),
            sorted(seen),
            names <= seen,
            frozenset(names) in {frozenset("ab")},
            names ^ {"z"},
        )

    f, seen = wrap(step), {"gone"}
    for names in ({"a"}, {"a", "b"}, {"c"}, set()):
        yield f(ones(2), names, seen), seen
