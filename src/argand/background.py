"""background: graphs that torch's kernels run while a thread compiles them, and compiles that have only so much time.

In: a compiler. Out: a compiler that gives back at once a callable: the captured graph, run by torch, until the compiled one
is there and takes over between two calls; or one that waits as long as the region has time left (``compile_seconds``) and then
leaves the rest to torch. Capture stays in the caller's thread: it reads the user's objects, which nobody else changes
meanwhile (decision 0025). The thread gets what cannot change: the graph, and aliases of its inputs with metadata of their own.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import functools
import importlib
import os
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import torch
from torch.fx import GraphModule

from argand.capture.generated.torch_state import STATE
from argand.differences.copies import WithHistory
from argand.protocol import Bypass, CompiledGraph, Compiler, GraphContext
from argand.runtime import quiet, state
from argand.runtime.cache import ArgandWarning
from argand.sizes.refusals import Refusal
from argand.support import events
from argand.support.locks import make_lock
from argand.support.options import Options

ASIDE: Final = Bypass("it was compiled in the background, after the frame was captured")
NICE: Final = 5  # the thread gives way to the user's, where the system allows it
WAIT: Final = 0.01  # seconds between two looks whether the first call is over
# of the time an import took: pauses, in which the user's thread has Python to itself
GIVES_WAY: Final = 3.0
# what imports the rest of capture, and so is imported last
_CAPTURE: Final = "argand.capture.trace"
_ROOMS: Final = (  # before it, from below: each import is short
    *("sizes", "ops", "capture/sizes", "capture/outside", "capture/record", "capture/objects"),
    *("capture/rules", "capture/interpret", "capture/write", "capture/finish"),
)
CompilerAnswer: TypeAlias = CompiledGraph | Refusal


@final
class GiveUp(BaseException):  # raised into the thread; no handler of the compiler may take it
    """The thread is to end."""


@final
class _Mute:
    """``sys.unraisablehook`` as it was, but for ``GiveUp``."""

    def __init__(self, before: Callable[[Any], Any]) -> None:
        self._before = before

    def __call__(self, what: Any) -> Any:
        """Say what was raised where nobody could catch it."""
        return None if what.exc_type is GiveUp else self._before(what)


@final
class _Process:
    """All workers, for the end of the process and for forks."""

    def __init__(self) -> None:
        self.lock = make_lock()
        self.workers: weakref.WeakSet[Worker] = weakref.WeakSet()

    def end(self) -> None:
        """Nothing may compile when the interpreter is taken apart: threads in C++ would meet it half gone."""
        with self.lock:
            workers = list(self.workers)
        for worker in workers:
            worker.end()

    def mute(self) -> None:
        """The exception that ends a thread may hit a finalizer in it, which would print it; it is raised again afterwards."""
        if not isinstance(sys.unraisablehook, _Mute):
            sys.unraisablehook = _Mute(sys.unraisablehook)

    def after_fork(self) -> None:
        """The threads are not in the child: what they were at stays with torch's kernels there."""
        for worker in list(self.workers):
            worker.forget()


_process: Final = _Process()
atexit.register(_process.end)
os.register_at_fork(after_in_child=_process.after_fork)


@final
class Job:
    """One graph to compile."""

    def __init__(self, work: Callable[[], CompilerAnswer | None]) -> None:
        self.work: Callable[[], CompilerAnswer | None] | None = work
        self.made: CompilerAnswer | None = None
        self.error: Exception | None = None
        self.done = threading.Event()

    def run(self) -> None:
        """Compile, in the worker's thread."""
        work = self.work
        try:
            if work is not None:
                self.made = work()
        except Exception as error:
            self.error = error
        finally:
            self.work = None  # and the inputs it holds
            self.done.set()


def _arrive() -> None:
    """What was raised into this thread arrives when a function of Python begins, so here at the latest."""


@final
class Worker:
    """Compiles one graph after the other in a thread, which ends when there is none left."""

    def __init__(self) -> None:
        self._lock = make_lock()
        self._jobs: collections.deque[Job] = collections.deque()
        self._thread: threading.Thread | None = None
        self._at_work: set[int] = set()  # threads that catch what is raised into them
        self._ended = False
        with _process.lock:
            _process.workers.add(self)

    def submit(self, job: Job) -> None:
        """Take a job; a thread is started when none is at work."""
        with self._lock:
            if self._ended:
                return
            self._jobs.append(job)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="argand compiles", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        """What the thread runs: when it is asked to end, it ends without a message."""
        with contextlib.suppress(GiveUp):
            try:
                self._run_jobs(threading.get_ident())
            finally:
                self._leave(threading.get_ident())

    def _run_jobs(self, thread: int) -> None:
        with contextlib.suppress(OSError, AttributeError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
        while True:
            with self._lock:
                if not self._jobs or self._ended:
                    self._thread = None
                    return
                self._at_work.add(thread)
                job = self._jobs.popleft()
            with quiet.compiling_aside():
                job.run()

    def _leave(self, thread: int) -> None:
        """Nothing is raised into the thread from here on, where nobody would catch it.

        What is on its way is waited for, not called back: an interpreter may keep looking for what was called back, at every call
        of every thread.
        """
        while True:
            try:
                with self._lock:
                    self._at_work.discard(thread)
                _arrive()
                return
            except GiveUp:
                continue

    def _tell(self, thread: threading.Thread) -> None:
        """End what a thread is at, between two of its instructions. The lock is held."""
        if thread.ident in self._at_work:
            _process.mute()
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(GiveUp)
            )

    def give_up(self, job: Job) -> None:
        """Stop a job that takes too long. A call of LLVM is not stopped in its middle."""
        with self._lock:
            if job in self._jobs:
                self._jobs.remove(job)
                return
            thread, job.work = self._thread, None
            self._thread = None  # the next job gets another one
            if thread is not None and not job.done.is_set():
                self._tell(thread)

    def end(self) -> None:
        """No more jobs; wait for the thread."""
        with self._lock:
            self._ended, thread = True, self._thread
            self._jobs.clear()
        while thread is not None and thread.is_alive() and thread is not threading.current_thread():
            with self._lock:
                self._tell(thread)
            thread.join(0.05)

    def forget(self) -> None:
        """In the child of a fork."""
        self._jobs.clear()
        self._at_work.clear()
        self._thread = None


@final
class Alive:
    """An entry that must go dies with one of these."""


@final
class BackgroundGraph:
    """The graph, run by torch until its compiled form is there."""

    def __init__(
        self,
        graph: GraphModule,
        job: Job,
        submit: Callable[[Job], None],
        refused: Callable[[Refusal | str], None],
    ) -> None:
        self.graph = graph
        self.ready: Callable[..., Any] | None = None
        self.alive: list[Alive] = [Alive()]  # emptied: the entry is captured anew
        self._job: Job | None = job
        self._submit: Callable[[Job], None] | None = submit
        self._refused = refused
        self._by_torch_under_hooks = False

    def __call__(self, *inputs: Any) -> Any:
        """Run one of the two. What a call saves for its backward pass is of the kind that ran."""
        if self._job is not None and self._job.done.is_set():
            self._take_over(self._job)
        if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            # A checkpoint computes the call again later, and must meet the same kind.
            self._by_torch_under_hooks = self._by_torch_under_hooks or self.ready is None
            if self._by_torch_under_hooks:
                return self._by_torch(inputs)
        return self._by_torch(inputs) if self.ready is None else self.ready(*inputs)

    def _by_torch(self, inputs: Sequence[Any]) -> Any:
        """Run the graph. The call that captured is slow enough: the thread begins when it has its result."""
        try:
            return self.graph.forward(*inputs)
        finally:
            submit, self._submit = self._submit, None
            if submit is not None and self._job is not None:
                submit(self._job)

    def _take_over(self, job: Job) -> None:
        self._job, made = None, job.made
        if job.error is not None:
            events.count("background.failed", detail=f"{type(job.error).__name__}: {job.error}")
            text = f"argand could not compile a graph in the background, torch runs it: {job.error}"
            warnings.warn(text, ArgandWarning, stacklevel=2)
        elif not isinstance(made, CompiledGraph):
            self._again(
                "its sizes cannot all stay open"
                if made is not None
                else "the world changed meanwhile",
                made,
            )
        elif made.facts:
            self._again("the code relies on more than the guards say", None)
        else:
            events.count("background.ready")
            self.ready = made.takes_inputs

    def _again(self, reason: str, refusal: Refusal | None) -> None:
        events.count("background.again", detail=reason)
        self._refused(reason if refusal is None else refusal)
        self.alive.clear()


@final
class Preparation:
    """What capture has to import, imported in a thread after the second call, a little at a time. Calls are eager's until then.

    After the second, because a step of training is not over when its call is: the first result is that of its backward pass.
    """

    def __init__(self) -> None:
        self._worker = Worker()
        self._job: Job | None = None
        self._was_asked = False

    def is_done(self, code: types.CodeType) -> bool:
        """Whether capture may begin; ``code`` is what the caller is about to run."""
        if _CAPTURE in sys.modules:
            return self._job is None or self._job.done.is_set()
        if not self._was_asked:
            self._was_asked = True
            return False
        if self._job is None:
            self._job = Job(functools.partial(_import_capture, threading.get_ident(), code))
            self._worker.submit(self._job)
        return self._job.done.is_set()


def _import_capture(caller: int, code: types.CodeType) -> None:
    """Import what a capture needs, when the caller has left the call, and without taking much of his time."""
    while _runs(caller, code):
        time.sleep(WAIT)
    folder = Path(__file__).parent
    for path in (path for room in _ROOMS for path in sorted((folder / room).glob("*.py"))):
        begin = time.thread_time()
        importlib.import_module(
            ".".join(("argand", *path.relative_to(folder).with_suffix("").parts))
        )
        time.sleep(GIVES_WAY * (time.thread_time() - begin))
    importlib.import_module(_CAPTURE)


def _runs(thread: int, code: types.CodeType) -> bool:
    """Whether a thread is in some code."""
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


def in_background(compiler: Compiler, options: Options) -> Compiler:
    """A compiler that does not wait. In deterministic mode it does: results must not change from call to call."""
    worker, waits = Worker(), [False]

    def refused(_: Refusal | str) -> None:
        # what has to be known for another capture is known when the compiler answers in it
        waits[0] = True

    def compile_graph(
        gm: GraphModule, example_inputs: Sequence[Any], context: GraphContext
    ) -> CompilerAnswer:
        is_open = context.sizes is not None
        if _must_wait() or (is_open and waits[0]):
            return compiler(gm, example_inputs, context)
        job = Job(_aside(compiler, gm, example_inputs, context))
        graph = BackgroundGraph(gm, job, worker.submit, refused)
        return CompiledGraph(graph, key=ASIDE, stays=graph.alive[0])

    return compile_graph


def within(compiler: Compiler, options: Options) -> Compiler:
    """A compiler with ``compile_seconds`` for all graphs of a region; what is not done by then torch runs."""
    worker, spent = Worker(), [0.0]

    def compile_graph(
        gm: GraphModule, example_inputs: Sequence[Any], context: GraphContext
    ) -> CompilerAnswer:
        left = options.compile_seconds - spent[0]
        if left <= 0 or _must_wait():
            return (
                _by_torch(gm, "no time is left")
                if left <= 0
                else compiler(gm, example_inputs, context)
            )
        job, begin = Job(_aside(compiler, gm, example_inputs, context)), time.monotonic()
        worker.submit(job)
        job.done.wait(left)
        spent[0] += time.monotonic() - begin
        if not job.done.is_set():
            worker.give_up(job)
            return _by_torch(gm, "it takes longer than the time that is left")
        if job.error is not None:
            raise job.error
        return compiler(gm, example_inputs, context) if job.made is None else job.made

    return compile_graph


def _by_torch(gm: GraphModule, reason: str) -> CompiledGraph:
    events.count("background.by_torch", detail=reason)
    return CompiledGraph(gm.forward, key=Bypass(reason))


def _must_wait() -> bool:
    # they are the thread's
    modes = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
    return bool(modes) or torch.are_deterministic_algorithms_enabled()


def _aside(
    compiler: Compiler, gm: GraphModule, inputs: Sequence[Any], context: GraphContext
) -> Callable[[], CompilerAnswer]:
    """The same work for another thread: under this thread's state, on inputs whose metadata stay."""
    kept = [row.read() if row.of_thread else None for row in STATE]
    snapshot, inference = state.snapshot(), torch.is_inference_mode_enabled()
    aliases = [_alias(value) for value in inputs]

    def work() -> Any:
        with torch.inference_mode(inference), _thread_state(kept), state.own_history():
            if state.snapshot() != snapshot:
                return None
            made = compiler(gm, aliases, context)
            # What the user's thread set for the process meanwhile may have been read here.
            return made if state.snapshot() == snapshot else None

    return work


@contextlib.contextmanager
def _thread_state(kept: Sequence[Any]) -> Iterator[None]:
    """Settings of torch that each thread has for itself."""
    rows = [
        (row, value, row.read()) for row, value in zip(STATE, kept, strict=True) if row.of_thread
    ]
    for row, value, _ in rows:
        row.write(value)
    try:
        yield
    finally:
        for row, _, before in rows:
            row.write(before)


def _alias(value: Any) -> Any:
    """A tensor over the same memory with sizes, strides and flags of its own: the user may change those of his."""
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.is_inference():
        return value
    alias = value.detach()
    if not value.requires_grad:
        return alias
    alias.requires_grad_(True)
    if value.is_leaf:
        return alias
    with torch.enable_grad():
        return WithHistory.apply(alias)
