// What the extension knows of CPython's insides: frames, the evaluation hook and recursion counters.
//
// Everything here changes between Python versions; frames.c and process.c name none of it themselves.
// Included by few files only: it turns on CPython's internal headers.
#ifndef ARGAND_CPYTHON_H
#define ARGAND_CPYTHON_H

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include "native.h"

#include <internal/pycore_frame.h>
#include <internal/pycore_pystate.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030C0000
#error "frames and recursion counters are known for Python 3.11 only: add this version here"
#endif

// ---- a frame that is about to run ----

typedef _PyInterpreterFrame ArgandFrame;

static inline PyCodeObject *argand_frame_code(const ArgandFrame *frame) { return frame->f_code; }
static inline PyFunctionObject *argand_frame_function(const ArgandFrame *frame) { return frame->f_func; }
static inline PyObject *argand_frame_globals(const ArgandFrame *frame) { return frame->f_globals; }
static inline PyObject *argand_frame_builtins(const ArgandFrame *frame) { return frame->f_builtins; }

// Locals, cells and free variables, in CPython's order; unset ones are NULL.
static inline PyObject *const *argand_frame_locals(const ArgandFrame *frame) { return frame->localsplus; }
static inline Py_ssize_t argand_frame_local_count(const ArgandFrame *frame) {
    return frame->f_code->co_nlocalsplus;
}

// The body of a module (or of exec): its locals are its globals.
static inline int argand_frame_is_module(const ArgandFrame *frame) {
    return !(frame->f_code->co_flags & CO_OPTIMIZED) && frame->f_locals == frame->f_globals;
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
    return _PyEval_EvalFrameDefault(thread, frame, throwing);
}
static inline int argand_is_plain(ArgandEvaluate evaluate) {
    return evaluate == NULL || evaluate == _PyEval_EvalFrameDefault;
}

// ---- how deep this thread may recurse ----

static inline int argand_recursion_limit(void) { return PyThreadState_Get()->recursion_limit; }
static inline int argand_recursion_left(void) { return PyThreadState_Get()->recursion_remaining; }

// Sets the limit of this thread alone, and not what sys.getrecursionlimit tells.
static inline void argand_set_recursion_limit(int limit) {
    PyThreadState *thread = PyThreadState_Get();
    thread->recursion_remaining += limit - thread->recursion_limit;
    thread->recursion_limit = limit;
}

#endif
