"""Sessions with graph breaks in places that are hard to leave and to come back to."""

import contextlib
import functools

import torch

from tests.strangers.sessions import session, tried


def ones(*shape):
    return torch.arange(1.0, 1.0 + int(torch.tensor(shape).prod())).reshape(shape)


def say(value, *what):
    """A break, and a line of output."""
    print("say", *what, type(value).__name__)
    return value


@session
def in_comprehensions(wrap):
    def step(x, n):
        a = [say(x * k, k) for k in range(n)]
        b = {say(k, "key"): x + k for k in range(n)}
        c = {say(k) for k in range(n) if say(k % 2 == 0, "if")}
        d = [[say(i * j, i, j) for j in range(2)] for i in range(n)]
        e = sum(say(k, "g") for k in range(n))
        return a, b, c, d, e

    f = wrap(step)
    for n in (2, 3, 2):
        yield f(ones(2), n)


@session
def in_expressions(wrap):
    def step(x, n):
        y = say(x, 1) + say(x, 2) * say(n, 3)
        z = say(n, 4) if say(n > 1, 5) else say(-n, 6)
        ok = say(n, 7) and say(0, 8) or say("or", 9)
        chain = say(0, 10) < say(n, 11) < say(5, 12)
        text = f"{say(n, 13):>3}|{say(x.shape, 14)!r}|{say('s', 15)}"
        items = [say(1, 16), *say([2, 3], 17), *(say(k, 18) for k in (4,))]
        table = {say("a", 19): say(n, 20), **say({"b": 2}, 21)}
        first, *rest = say((x, n, 3), 22)
        if (m := say(n + 1, 23)) > 2:
            y = y + m
        y[say(0, 24)] = say(7.0, 25)
        y[say(slice(1, 2), 26)] += say(1, 27)
        assert say(True, 28), say("message", 29)
        return (
            y,
            z,
            ok,
            chain,
            text,
            items,
            table,
            first,
            rest,
            say(lambda v, k=say(n, 30): v + k, 31)(x),
        )

    f = wrap(step)
    for n in (1, 2, 1, 7):
        yield f(ones(2), n)


@session
def in_handlers(wrap):
    def step(x, what):
        log = []
        try:
            log.append("try")
            x = say(x * 2, "body")
            if what == 1:
                raise ValueError(say("v", "raise"))
            if what == 2:
                raise KeyError("k")
            if what == 3:
                return x, log
        except ValueError as error:
            x = x + 1
            log.append(say(str(error), "except"))
            if what == 1:
                try:
                    raise TypeError("t") from error
                except TypeError as inner:
                    log.append(type(say(inner, "inner").__cause__).__name__)
        else:
            log.append(say("else", "else"))
            x = x * 3
        finally:
            x = x - 1
            log.append(say("finally", "finally"))
        return x, log

    f = wrap(step)
    for what in (0, 1, 2, 3, 1, 0):
        yield tried(f, ones(2), what)

    def bare(x, n):
        for k in range(n):
            try:
                say(1 / (k - 1), k)
            except ZeroDivisionError:
                say(x, "zero")
                x = x * 10
                continue
            finally:
                x = x + 1
                if k == 3:
                    say(x, "leave")
                    break
            x = x + 100
        else:
            x = -x
        return x

    g = wrap(bare)
    for n in (0, 1, 2, 5):
        yield g(ones(2), n)


@session
def in_managers(wrap):
    class Manager:
        def __init__(self, name, swallow=False):
            self.name, self.swallow, self.log = name, swallow, []

        def __enter__(self):
            self.log.append(say("enter", self.name))
            return self

        def __exit__(self, kind, error, trace):
            self.log.append(say(kind.__name__ if kind else "exit", self.name))
            return self.swallow

    @contextlib.contextmanager
    def managed(log):
        log.append(say("before", "m"))
        try:
            yield say(3, "value")
        except RuntimeError as error:
            log.append(say(str(error), "caught"))
        finally:
            log.append(say("after", "m"))

    def step(x, a, b, what):
        log = []
        with a as first, b:
            x = x * 2
            say(first.name, "in")
            with managed(log) as k, torch.no_grad():
                x = x * k
                say(torch.is_grad_enabled(), "grad", torch.is_grad_enabled())
                if what == "runtime":
                    raise RuntimeError("r")
                if what == "value":
                    raise ValueError("v")
                if what == "return":
                    return x, log
            x = x + 1
        return x, log, torch.is_grad_enabled()

    f = wrap(step)
    for what in ("none", "runtime", "value", "return", "none"):
        a, b = Manager("a", True), Manager("b")
        yield tried(f, ones(2).requires_grad_(), a, b, what), a.log, b.log, torch.is_grad_enabled()
        yield tried(f, ones(2), Manager("c"), Manager("d"), what)

    def stacked(x, n):
        with contextlib.ExitStack() as stack:
            for k in range(n):
                stack.enter_context(Manager(str(k)))
                stack.callback(say, k, "callback")
            x = x + n
        return x

    yield wrap(stacked)(ones(2), 2)


@session
def in_callees(wrap):
    class Thing:
        def __init__(self, x):
            self.x = say(x * 2, "init")
            self.n = 0

        @property
        def value(self):
            self.n += 1
            return say(self.x + self.n, "property")

        @value.setter
        def value(self, v):
            self.x = say(v, "setter")

        def __add__(self, other):
            return say(self.x + other, "add")

        def __getitem__(self, k):
            return say(self.x[k], "getitem")

        def __call__(self, y):
            return say(self.x * y, "call")

        def __len__(self):
            return say(3, "len")

        def __bool__(self):
            return say(True, "bool")

        def __eq__(self, other):
            return say(other == 1, "eq")

        def __iter__(self):
            yield say(1, "first")
            yield say(2, "second")

        def __getattr__(self, name):
            return say(len(name), "getattr")

        def __enter__(self):
            return say(self, "enter")

        def __exit__(self, *error):
            say(None, "exit")

    def step(x, k):
        t = Thing(x)
        y = t + t.value
        t.value = y
        if t:
            y = y + t[0] + len(t) + t.missing
        for v in t:
            y = y * v
        with t as u:
            y = y + u(k)
        a, b = t
        return (
            y,
            t == 1,
            a,
            b,
            t.n,
            sorted([3, 1, 2], key=lambda v: say(-v, "key")),
            list(map(lambda v: say(v, "map"), t)),
        )

    f = wrap(step)
    for k in (1, 2, 1):
        yield f(ones(2), k)


@session
def deep_in_calls(wrap):
    def inner(x, k, log):
        x = x + k
        say(k, "inner")
        log.append(k)
        return x * 2

    def middle(x, n, log):
        total = x
        for k in range(n):
            total = total + inner(x, k, log)
            if k == 2:
                return total, "early"
        return total, "late"

    def outer(x, n):
        log = []
        count = 0

        def bump():
            nonlocal count
            count += 1
            return say(count, "bump")

        bump()
        (y, when), z = middle(x, n, log), x * bump()
        return y + z, when, log, count

    f = wrap(outer)
    for n in (0, 1, 4, 2):
        yield f(ones(2), n)


@session
def in_generators(wrap):
    def numbers(x, n):
        try:
            for k in range(n):
                got = yield say(x * k, "yield", k)
                if got:
                    x = x + got
        finally:
            say(n, "end")

    def step(x, n):
        out = []
        for k, v in enumerate(numbers(x, n)):
            out.append(v + k)
        g = numbers(x, 5)
        next(g)
        out.append(g.send(10))
        g.close()
        return out, sum(say(k, "s") for k in range(n))

    f = wrap(step)
    for n in (1, 2, 6):
        yield f(ones(2), n)

    def zips(x, items):
        pairs = zip(items, iter(range(10)))
        a, b = next(pairs)
        say(a, b)
        rest = [(p, q) for p, q in pairs if say(q, "q") < 3]
        it = iter(items)
        for v in it:
            x = x + v
            say(v, "v")
            x = x * next(it, 1)
        return x, rest, next(pairs, "none")

    g = wrap(zips)
    for items in ([1, 2, 3], [4, 5], [1, 2, 3, 4]):
        yield g(ones(2), items)


@session
def with_state_between(wrap):
    class State:
        def __init__(self):
            self.n, self.items, self.table = 0, [], {}

    def step(x, s):
        s.n += 1
        s.items.append(x)
        say(len(s.items), s.n)
        s.table[s.n] = s.items
        x = x * s.n
        s.items = [*s.items, x]
        say(s.table[s.n] is s.items, "same")
        s.items[0].add_(1)
        del s.table[s.n][-1]
        say(s.n, "end")
        return x + len(s.items), s.items[0]

    f, s = wrap(step), State()
    for _ in range(3):
        x = ones(2)
        yield f(x, s), x, len(s.items), {k: len(v) for k, v in s.table.items()}


@session
def with_closures_alive(wrap):
    def step(x, n):
        total = x
        adders = []
        for k in range(n):

            def add(v, k=k):
                nonlocal total
                total = total + v * k
                return total

            adders.append(add)
            say(k, "made")
        results = [a(x) for a in adders]
        total = total * 2
        say(len(adders), "later")
        results.append(adders[-1](x))
        scale = functools.partial(lambda s, v: v * s + total, 3)
        say(1, "partial")
        total = total + 1
        return results, total, scale(x), add(x)

    f = wrap(step)
    for n in (1, 2, 3):
        yield f(ones(2), n)


@session
def with_views_alive(wrap):
    def step(x, w):
        v = x[1:]
        y = w * 2
        t = y.t() if y.dim() > 1 else y
        say(1, "views")
        v.add_(1)
        y.mul_(3)
        say(2, "again")
        x[0] = 100
        return v, t, v._base is x, x, y

    f = wrap(step)
    for w in (ones(2, 2), ones(3)):
        x = ones(3)
        yield f(x, w), x
    w = ones(2, 2).requires_grad_()
    out = f(ones(3), w)
    out[1].sum().backward()
    yield w


@session
def with_gradients_across(wrap):
    def step(x, w):
        y = x * w
        say(y.requires_grad, "mid", y.requires_grad)
        z = (y * y).sum()
        say(1, "grad")
        (g,) = torch.autograd.grad(z, w, create_graph=True)
        with torch.no_grad():
            say(2, "no", torch.is_grad_enabled())
            u = g * 2
        return z + g.sum(), u, u.requires_grad

    f = wrap(step)
    for n in (2, 3):
        x, w = ones(n).requires_grad_(), ones(n).requires_grad_()
        out = f(x, w)
        out[0].backward()
        yield out[1:], x, w


@session
def with_random_numbers_across(wrap):
    def step(x):
        a = torch.rand(2)
        say(1, "r")
        b = torch.nn.functional.dropout(x, 0.5)
        say(2, "r")
        c = torch.randn(2)
        return a + b + c

    f = wrap(step)
    torch.manual_seed(5)
    for _ in range(3):
        yield f(ones(2)), torch.rand(1)


@session
def branches_on_values(wrap):
    def step(x, log):
        y = x * 2
        if y.sum() > 6:
            log.append("big")
            y = y - 1
        elif y.sum() < 0:
            log.append("negative")
            return y
        while y.max() < 20:
            y = y * 2
            log.append(len(log))
        if not (y > 1000).any() and (y > 0).all():
            y = y + 0.5
        k = y.argmax()
        return y[k], int(k), y.tolist()[0], [1, 2, 3, 4][k], log

    f, log = wrap(step), []
    for x in (ones(2), ones(3), -ones(2), ones(2) * 100, ones(2)):
        yield f(x, log), log


@session
def imports_and_classes_inside(wrap):
    def step(x, n):
        import math
        from collections import OrderedDict as Ordered

        class Local:
            k = say(n, "class")

            def go(self, v):
                return v * self.k + math.floor(1.5)

        say(1, "made")
        made = Local()
        made.extra = x
        return made.go(x), Ordered(a=made.extra), Local.__name__, Local.k

    f = wrap(step)
    for n in (1, 2):
        yield f(ones(2), n)


@session
def errors_after_breaks(wrap):
    def step(x, n):
        y = x * 2
        say(n, "a")
        if n == 1:
            return y[10]
        if n == 2:
            return y @ torch.ones(7)
        if n == 3:
            raise StopIteration("s")
        if n == 4:
            return [1][n]
        if n == 5:
            return (
                torch.nn.functional.embedding(torch.tensor([9]), torch.ones(2, 2)) + undefined_name  # noqa: F821
            )
        x.add_(1)
        return y

    f = wrap(step)
    for n in (0, 1, 2, 3, 4, 5, 0):
        x = ones(2)
        yield tried(f, x, n), x
