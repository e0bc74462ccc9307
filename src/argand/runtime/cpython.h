// What the extension knows of CPython's insides: frames, the evaluation hook, recursion counters, and
// how objects keep their attributes.
//
// Everything here changes between Python versions; no other file names any of it (versions.h has the
// versions of dicts and classes). Included by few files only: it turns on CPython's internal headers.
#ifndef ARGAND_CPYTHON_H
#define ARGAND_CPYTHON_H

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include "native.h"

#include <internal/pycore_frame.h>
#include <internal/pycore_object.h>
#include <internal/pycore_pystate.h>
#include <opcode.h>
#if PY_VERSION_HEX >= 0x030C0000
#include <internal/pycore_dict.h>
#endif
#if PY_VERSION_HEX >= 0x030D0000
#include <internal/pycore_setobject.h>
#endif

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "frames and recursion counters are known for Python 3.11, 3.12 and 3.13: add this version here"
#endif

// ---- a frame that is about to run ----

typedef _PyInterpreterFrame ArgandFrame;

#if PY_VERSION_HEX < 0x030C0000
static inline PyCodeObject *argand_frame_code(const ArgandFrame *frame) { return frame->f_code; }
static inline PyFunctionObject *argand_frame_function(const ArgandFrame *frame) { return frame->f_func; }
#elif PY_VERSION_HEX < 0x030D0000
static inline PyCodeObject *argand_frame_code(const ArgandFrame *frame) { return frame->f_code; }
static inline PyFunctionObject *argand_frame_function(const ArgandFrame *frame) {
    return (PyFunctionObject *)frame->f_funcobj;
}
#else
static inline PyCodeObject *argand_frame_code(const ArgandFrame *frame) {
    return (PyCodeObject *)frame->f_executable;
}
static inline PyFunctionObject *argand_frame_function(const ArgandFrame *frame) {
    return (PyFunctionObject *)frame->f_funcobj;
}
#endif
static inline PyObject *argand_frame_globals(const ArgandFrame *frame) { return frame->f_globals; }
static inline PyObject *argand_frame_builtins(const ArgandFrame *frame) { return frame->f_builtins; }

// Locals, cells and free variables, in CPython's order; unset ones are NULL.
static inline PyObject *const *argand_frame_locals(const ArgandFrame *frame) { return frame->localsplus; }
static inline Py_ssize_t argand_frame_local_count(const ArgandFrame *frame) {
    return argand_frame_code(frame)->co_nlocalsplus;
}

// The body of a module (or of exec): its locals are its globals.
static inline int argand_frame_is_module(const ArgandFrame *frame) {
    return !(argand_frame_code(frame)->co_flags & CO_OPTIMIZED) && frame->f_locals == frame->f_globals;
}

// A frame that the hook does not run is given back. Up to 3.11 the caller does that, run or not; from
// 3.12 on whoever evaluates a frame does, so a hook that answers itself must: the references the
// frame holds, then its memory, the top of the thread's data stack. Nobody has seen such a frame: it
// was never current, so it has no frame object and its stack is empty.
static inline void argand_frame_drop(PyThreadState *thread, ArgandFrame *frame) {
#if PY_VERSION_HEX >= 0x030C0000
    PyCodeObject *code = argand_frame_code(frame);
    for (Py_ssize_t i = 0; i < code->co_nlocalsplus; i++) Py_XDECREF(frame->localsplus[i]);
    Py_XDECREF(frame->f_locals);
    Py_DECREF(frame->f_funcobj);
    Py_DECREF(code);
    PyObject **base = (PyObject **)frame;
    _PyStackChunk *chunk = thread->datastack_chunk;
    if (base != &chunk->data[0]) {
        thread->datastack_top = base;
        return;
    }
    // The frame was the first of its chunk, which goes too; the root chunk never has a frame there.
    _PyStackChunk *below = chunk->previous;
    PyObjectArenaAllocator arenas;
    PyObject_GetArenaAllocator(&arenas);
    thread->datastack_top = &below->data[below->top];
    thread->datastack_chunk = below;
    thread->datastack_limit = (PyObject **)((char *)below + below->size);
    arenas.free(arenas.ctx, chunk, chunk->size);
#endif
}

// ---- what objects hold ----

// The dict of an object whose class lets CPython manage it; NULL when there is none yet.
static inline PyObject *argand_managed_dict(PyObject *object) {
    if (!(Py_TYPE(object)->tp_flags & Py_TPFLAGS_MANAGED_DICT)) return NULL;
#if PY_VERSION_HEX < 0x030C0000
    return *_PyObject_ManagedDictPointer(object);
#elif PY_VERSION_HEX < 0x030D0000
    PyDictOrValues held = *_PyObject_DictOrValuesPointer(object);
    return _PyDictOrValues_IsValues(held) ? NULL : _PyDictOrValues_GetDict(held);
#else
    return (PyObject *)_PyObject_GetManagedDict(object);
#endif
}

// 1 and a new reference; 0: no such attribute; -1: an exception is set.
static inline int argand_lookup_attribute(PyObject *object, PyObject *name, PyObject **found) {
#if PY_VERSION_HEX < 0x030D0000
    return _PyObject_LookupAttr(object, name, found);
#else
    return PyObject_GetOptionalAttr(object, name, found);
#endif
}

// The items of a set one after the other, borrowed; 0 after the last.
static inline int argand_set_next(PyObject *set, Py_ssize_t *at, PyObject **item) {
    Py_hash_t hash;
#if PY_VERSION_HEX < 0x030D0000
    return _PySet_NextEntry(set, at, item, &hash);
#else
    int found = _PySet_NextEntryRef(set, at, item, &hash);
    if (found) Py_DECREF(*item); /* the set holds it */
    return found;
#endif
}

// ---- the evaluation hook of the interpreter (PEP 523) ----

typedef _PyFrameEvalFunction ArgandEvaluate;

static inline ArgandEvaluate argand_evaluator(void) {
    return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
}
static inline void argand_set_evaluator(ArgandEvaluate evaluate) {
    _PyInterpreterState_SetEvalFrameFunc(PyInterpreterState_Get(), evaluate);
}
static inline PyObject *argand_evaluate_plainly(PyThreadState *thread, ArgandFrame *frame, int throwing) {
#if PY_VERSION_HEX < 0x030C0000
    return _PyEval_EvalFrameDefault(thread, frame, throwing);
#else
    // A call that the hook sees is one of C for CPython, which allows few of them, and counts each as
    // two. It is a call of Python to the user, and counted as such too; the hook looks after the C
    // stack itself.
    thread->c_recursion_remaining += 2;
    PyObject *result = _PyEval_EvalFrameDefault(thread, frame, throwing);
    thread->c_recursion_remaining -= 2;
    return result;
#endif
}
static inline int argand_is_plain(ArgandEvaluate evaluate) {
    return evaluate == NULL || evaluate == _PyEval_EvalFrameDefault;
}

// Whether this thread runs an audit hook or the function of a debugger or profiler: CPython traces
// nothing of them, and they are nobody's program.
static inline int argand_is_observing(const PyThreadState *thread) { return thread->tracing > 0; }

// What sys.settrace was given in this thread, borrowed; NULL: nothing.
static inline PyObject *argand_tracer(const PyThreadState *thread) {
    return thread->c_tracefunc == NULL ? NULL : thread->c_traceobj;
}

// The name under which a debugger has registered itself with sys.monitoring, borrowed; NULL: none has.
static inline PyObject *argand_monitor(const PyThreadState *thread) {
#if PY_VERSION_HEX < 0x030C0000
    return NULL;
#else
    return thread->interp->monitoring_tool_names[PY_MONITORING_DEBUGGER_ID];
#endif
}

// ---- the collector ----

// Up to 3.11 any allocation may run the collector, and that any Python code: finalizers, callbacks of weak
// references. From 3.12 on it waits for the next instruction. What is given back is for `let_go`.
static inline int argand_hold_collector(void) {
#if PY_VERSION_HEX < 0x030C0000
    return PyGC_Disable();
#else
    return 0;
#endif
}
static inline void argand_let_collector_go(int held) {
    if (held) PyGC_Enable();
}

// ---- where threads take turns ----

// Instructions at which a thread may give up the lock between two of its own: the start of a call, and
// the end of a loop's round.
static inline int argand_is_turn(unsigned char opcode) { return opcode == RESUME || opcode == JUMP_BACKWARD; }

// ---- how deep this thread may recurse ----

#if PY_VERSION_HEX < 0x030C0000
#define ARGAND_LIMIT recursion_limit
#define ARGAND_LEFT recursion_remaining
#else // calls of Python; C code has a counter of its own
#define ARGAND_LIMIT py_recursion_limit
#define ARGAND_LEFT py_recursion_remaining
#endif

static inline int argand_recursion_limit(void) { return PyThreadState_Get()->ARGAND_LIMIT; }
static inline int argand_recursion_left(void) { return PyThreadState_Get()->ARGAND_LEFT; }

// Sets the limit of this thread alone, and not what sys.getrecursionlimit tells.
static inline void argand_set_recursion_limit(int limit) {
    PyThreadState *thread = PyThreadState_Get();
    thread->ARGAND_LEFT += limit - thread->ARGAND_LIMIT;
    thread->ARGAND_LIMIT = limit;
}

// An entry that answers for a frame counts as the call of Python that it stands for. -1: RecursionError.
static inline int argand_enter_call(PyThreadState *thread) {
#if PY_VERSION_HEX < 0x030C0000
    return Py_EnterRecursiveCall(" in compiled code") ? -1 : 0;
#else
    if (thread->py_recursion_remaining-- > 0) return 0;
    thread->py_recursion_remaining++;
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded in compiled code");
    return -1;
#endif
}
static inline void argand_leave_call(PyThreadState *thread) {
#if PY_VERSION_HEX < 0x030C0000
    Py_LeaveRecursiveCall();
#else
    thread->py_recursion_remaining++;
#endif
}

#endif
