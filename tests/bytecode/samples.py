"""Functions to be stopped and resumed anywhere. Each sample makes (function, arguments, list of side effects) afresh."""

import contextlib
import sys

ALL = []


def sample(make):
    ALL.append(make)
    return make


def simple(function, *arguments):
    """A sample of a function whose last parameter is the list of side effects."""

    def make():
        effects = []
        return function, (*arguments, effects), effects

    make.__name__ = function.__name__
    ALL.append(make)
    return function


class Manager:
    def __init__(self, effects, *, swallow=False, name="m"):
        self.effects, self.swallow, self.name = effects, swallow, name

    def __enter__(self):
        self.effects.append(("enter", self.name))
        return self.name

    def __exit__(self, kind, value, trace):
        self.effects.append(("exit", self.name, kind, str(value)))
        return self.swallow


def loops(n, log):
    total = 0
    for i in range(n):
        if i == 1:
            continue
        for j in (10, 20, 30):
            if j == 30:
                break
            total += i * j
        else:
            log.append("never")
        log.append((i, total))
    else:
        log.append("done")
    k = 0
    while k < 3:
        k += 1
        if k == 2:
            continue
        total -= k
    return total, k


def while_true_at_start(n, log):
    while True:
        n -= 1
        if n < 0:
            return log
        log.append(n)


def try_except_else_finally(values, log):
    out = []
    for value in values:
        try:
            result = 10 // value
        except ZeroDivisionError as error:
            log.append(str(error))
            result = None
        except (TypeError, ValueError):
            log.append(("type", sys.exc_info()[0]))
            result = -1
        else:
            log.append("fine")
        finally:
            log.append(sys.exc_info()[0])
        out.append(result)
    return out


def nested_handlers(log):
    try:
        try:
            raise ValueError("inner")
        except ValueError as error:
            log.append(sys.exc_info()[1] is error)
            try:
                {}["missing"]
            except KeyError:
                log.append(repr(sys.exc_info()[1]))
                raise
            finally:
                log.append(repr(sys.exc_info()[1]))
    except KeyError as error:
        log.append(repr(error.__context__))
        log.append(sys.exc_info()[0])
    log.append(sys.exc_info()[0])
    return len(log)


def bare_raise_propagates(log):
    try:
        int("x")
    except ValueError:
        log.append("seen")
        raise
    finally:
        log.append("finally")


def raise_from(log):
    try:
        [][0]
    except IndexError as error:
        log.append(1)
        raise RuntimeError("outer") from error


def raise_in_handler(log):
    try:
        [][0]
    except IndexError:
        log.append(1)
        {}["k"]


def return_in_finally(n, log):
    for i in range(n):
        try:
            if i == 1:
                return ("returned", i)
            log.append(i)
        finally:
            log.append("f")
    return None


def finally_swallows(log):
    for i in range(3):
        try:
            raise ValueError(i)
        finally:
            log.append(i)
            if i < 2:
                continue
            break
    return "out"


def with_blocks(log):
    with Manager(log) as a, Manager(log, swallow=True, name="s") as b:
        log.append((a, b))
        raise ValueError("swallowed")
    with Manager(log, name="outer"):
        for i in range(3):
            with Manager(log, name=i) as c:
                if i == 1:
                    continue
                log.append(c)
                if i == 2:
                    return c
    return "unreachable"


def with_propagates(log):
    with Manager(log):
        with contextlib.suppress(KeyError):
            log.append("in")
            {}[1]
        log.append(sys.exc_info()[0])
        raise OSError("through")


def with_in_handler(log):
    try:
        1 / 0
    except ZeroDivisionError:
        with Manager(log, swallow=True):
            raise ValueError
        log.append(sys.exc_info()[0])
    return log[-1]


def comprehension_hides_a_cell(n, log):
    a = 10

    def outer():
        return a

    found = [a * outer() for a in range(n) if log.append(a) is None]
    log.append(outer())
    return found, a, [[a + 1 for a in range(b)] + [outer()] for b in range(2)]


def comprehension_has_a_cell(n, log):
    a = 10

    def add(b):
        nonlocal a
        a += b
        return a

    found = [lambda: (a, add(1)) for a in range(n) if log.append(a) is None]
    add(5)
    return [each() for each in found], a, {b: (lambda: b + a) for b in range(2)}[1]()


def comprehensions_have_cells(n, log):
    a = 10
    get = lambda: a
    found = [[(lambda: a)() + len(log)] + [a + 1 for a in range(2)] for a in range(n) if get()]
    inner = [[(lambda: (a, c)) for a in range(2) if log.append(c) is None] for c in range(n)]
    return found, [[each() for each in row] for row in inner], get()


def comprehension_raises_with_a_cell(n, log):
    a = 10
    get = lambda: a
    try:
        return [(lambda: a)() // (a - 1) for a in range(n) if log.append(a) is None]
    except ZeroDivisionError as error:
        return str(error), a, get()


def comprehensions(n, log):
    squares = [i * i for i in range(n) if i % 2]
    table = {i: [j + 1 for j in range(i)] for i in range(3)}
    lazily = sum(x for x in squares)
    unique = {i % 3 for i in range(n)}
    log.append(squares)
    return squares, table, lazily, unique, [*squares, *table]


def matching(subjects, log):
    out = []
    for subject in subjects:
        match subject:
            case 0 | 1:
                out.append("small")
            case [x, y]:
                out.append(x + y)
            case [first, *rest] if first:
                out.append((first, rest))
            case {"key": value, **others}:
                out.append((value, others))
            case complex(real=r, imag=i):
                out.append((r, i))
            case str() as text:
                out.append(text)
            case _:
                out.append(None)
        log.append(subject)
    return out


def closures(n, log):
    total = n

    def add(k):
        nonlocal total
        total += k
        return total

    read = lambda: total
    add(1)
    total *= 2
    log.append(read())
    add(5)
    return total, read(), [f() for f in [lambda i=i: i + total for i in range(2)]]


def argument_is_a_cell(n, log):
    get = lambda: n
    n += 1
    log.append(get())
    n = n * 2
    del log
    return get() + n


def unbound_later(flag, log):
    if flag:
        x = 1
    log.append(flag)
    del flag
    return x


def unbound_cell(log):
    def inner():
        return later

    try:
        inner()
    except NameError as error:
        log.append(str(error))
    later = 3
    return inner()


def operators(a, b, log):
    c = (a < b < 10 < 5) or a if b else None
    if (n := len(log)) == 0 and a is not None:
        log.append(n)
    d = a if a > b else b
    e, *f, g = range(5)
    (h, i), j = (1, 2), 3
    k = a and b or c
    x = [0] * 4
    x[1:3] = [a, b]
    x[0] += 5
    del x[-1]
    return c, d, e, f, g, h, i, j, k, x, a not in x, -a, ~b, x[::-1]


def calls(log):
    def f(*args, **kwargs):
        log.append((args, sorted(kwargs.items())))
        return len(args)

    a = f(1, 2, k=f(3, z=4))
    b = f(*[1, 2], 3, **{"q": 5}, w=6)
    log.append("x".join(["a", "b"]).upper())
    s = f"{a!r:>4} {b:{a + 3}d} {log[0]}"
    assert a != b, "message"
    return s, max(a, b, key=lambda v: -v), print.__name__


def imports(log):
    import os.path as p
    from math import floor, pi

    log.append(p.basename("a/b"))
    return floor(pi)


def makes_class(log):
    class Point:
        x: int = 3

        def __init__(self, y):
            super().__init__()
            self.y = y

        def sum(self):
            return self.x + self.y

    log.append(Point.__name__)
    return Point(4).sum()


def looks_at_locals(a, log):
    b = a + 1
    log.append(b)
    return sorted(locals())


def exception_groups(log):
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2), OSError(3)])
    except* ValueError as group:
        log.append(len(group.exceptions))
    except* (KeyError, OSError) as group:
        log.append([type(e) for e in group.exceptions])
    return log


def exception_group_left_over(log):
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError:
        log.append("v")


def raises_assertion(log):
    log.append(1)
    assert not log, f"log {log}"


for _function, _arguments in (
    (loops, (3,)),
    (while_true_at_start, (3,)),
    (try_except_else_finally, ([1, 0, "a", 5],)),
    (nested_handlers, ()),
    (bare_raise_propagates, ()),
    (raise_from, ()),
    (raise_in_handler, ()),
    (return_in_finally, (3,)),
    (finally_swallows, ()),
    (with_blocks, ()),
    (with_propagates, ()),
    (with_in_handler, ()),
    (comprehensions, (6,)),
    (comprehension_hides_a_cell, (3,)),
    (comprehension_has_a_cell, (3,)),
    (comprehensions_have_cells, (2,)),
    (comprehension_raises_with_a_cell, (3,)),
    (matching, ([0, [1, 2], (3, 4, 5), {"key": 1, "o": 2}, 1 + 2j, "s", None, {"other": 1}, []],)),
    (closures, (3,)),
    (argument_is_a_cell, (3,)),
    (unbound_later, (True,)),
    (unbound_later, (False,)),
    (unbound_cell, ()),
    (operators, (3, 4)),
    (operators, (0, 4)),
    (calls, ()),
    (imports, ()),
    (makes_class, ()),
    (looks_at_locals, (1,)),
    (exception_groups, ()),
    (exception_group_left_over, ()),
    (raises_assertion, ()),
):
    simple(_function, *_arguments)


class Base:
    def method(self, log):
        log.append("base")
        return 1


class Derived(Base):
    def method(self, log):
        a = 1
        log.append(super().method(log))
        for b in (1, 2):
            a += super().method(log) + b
        return a

    def captured(self, log):
        get = lambda: self
        log.append(super().method(log))
        return get() is self and super().method(log)


@sample
def zero_argument_super():
    log = []
    return Derived.method, (Derived(), log), log


@sample
def super_with_captured_self():
    log = []
    return Derived.captured, (Derived(), log), log


@sample
def free_variables():
    log = []
    count = 0

    def step(n):
        nonlocal count
        for i in range(n):
            count += i
            log.append(count)
        return count

    return step, (3,), log


@sample
def variable_arguments():
    log = []

    def f(a, /, b=2, *rest, c, **options):
        log.append((a, b, rest))
        return a + b + c + sum(rest) + len(options)

    return lambda_call(f), (1, 2, 3, 4), log


def lambda_call(f):
    """Give keyword arguments through a plain positional call, with the code of `f` itself."""
    from types import FunctionType

    made = FunctionType(f.__code__, f.__globals__, f.__name__, (2,), f.__closure__)
    made.__kwdefaults__ = {"c": 7}
    return made
