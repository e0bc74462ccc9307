// argand.runtime._native: calls of Python functions are looked at before they run (PEP 523).
//
// A Switch is a callable that sets the region of its thread while it runs: a compiled object sets
// its region, a disabled one sets none. The hook is installed in the interpreter only while some
// thread has a region, hands frames of other threads on at once, and chains to whatever was
// installed before it.
//
// A frame in a region: code that is marked (torch's own, the standard library, generated code; a
// Python rule decides once per code object) runs as usual. Otherwise the first entry whose guards
// hold is called with the collected values instead of the frame, and its result is the frame's:
// the caller clears the frame, run or not. With no such entry the region's callback is asked.
//
// While a hook is installed, a call from Python to Python takes C stack, which it does not take
// otherwise. So the hook steps aside when a thread has used its share: recursion that Python can
// do is not to end in a crash because of us (process.c measures).
#include "cpython.h"
#include "launch.h"
#include "process.h"
#include "regions.h"

#include <structmember.h>

#define SMALL_CALL 64 /* collected values kept on the C stack */

enum Mark { UNKNOWN, SKIPPED, WANTED }; /* in the extra slot of a code object */

static _Thread_local ArgandRegion *current = NULL;
static _Thread_local ArgandFrame *handed_on = NULL;
static _Thread_local Py_ssize_t aside = 0; /* times this thread has stepped aside */

// Process-wide, under the GIL.
static Py_ssize_t active = 0;    /* threads that have a region */
static Py_ssize_t suspended = 0; /* times threads have stepped aside */
static int installed = 0;     /* ours is the hook, or one installed later leads to it */
static int all_eager = 0;     /* stance force_eager */
static ArgandEvaluate previous = NULL;
static Py_ssize_t extra_index = -1;
static PyObject *skip_rule = NULL;
static PyObject *error_trimmer = NULL; /* called with an exception that leaves a compiled frame */
static PyObject *call_watcher = NULL; /* called in place of a compiled object, which it calls; NULL: nobody watches */
static _Thread_local int watching = 0; /* inside of the watcher */
static PyObject *off_answer = NULL;  /* OFF: run this frame and all it calls with the hook off */
static PyObject *skip_answer = NULL; /* SKIP: the callback wants no more questions about a code */

static PyObject *hook(PyThreadState *thread, ArgandFrame *frame, int throwing);

// ---- installing ----

// Installs or removes the hook, as it is needed now.
static void settle(void) {
    ArgandEvaluate now = argand_evaluator();
    if (active > 0 && suspended == 0) {
        // A hook that was put over ours and outlived it still leads to ours: installing ours over
        // it would make a circle.
        if (now == hook || (installed && !argand_is_plain(now))) return;
        previous = now;
        installed = 1;
        argand_set_evaluator(hook);
    } else if (now == hook) {
        installed = 0;
        argand_set_evaluator(previous);
    }
}

// Gives this thread a region, or none (NULL); the one before.
static ArgandRegion *change_region(ArgandRegion *region) {
    ArgandRegion *before = current;
    current = region;
    if ((before == NULL) != (region == NULL)) {
        active += region != NULL ? 1 : -1;
        if (active <= 1) settle();
    }
    return before;
}

static PyObject *hand_on(PyThreadState *thread, ArgandFrame *frame, int throwing) {
    if (argand_is_plain(previous) || handed_on == frame)
        return argand_evaluate_plainly(thread, frame, throwing);
    ArgandFrame *outer = handed_on;
    handed_on = frame; /* an earlier hook that leads back to ours finds the default */
    PyObject *result = previous(thread, frame, throwing);
    handed_on = outer;
    return result;
}

// Runs a frame and all it calls without our hook, whoever else wants it: the stack is used up.
static PyObject *step_aside(PyThreadState *thread, ArgandFrame *frame, int throwing) {
    suspended++, aside++;
    settle();
    PyObject *result = hand_on(thread, frame, throwing);
    suspended--, aside--;
    settle();
    return result;
}

// ---- frames ----

// The rule's word on a code object, asked once.
static enum Mark mark_of(PyCodeObject *code) {
    void *extra = NULL;
    if (_PyCode_GetExtra((PyObject *)code, extra_index, &extra) < 0) PyErr_Clear();
    if (extra != NULL) return (enum Mark)(intptr_t)extra;
    if (skip_rule == NULL) return WANTED;
    ArgandRegion *region = change_region(NULL);
    PyObject *answer = PyObject_CallOneArg(skip_rule, (PyObject *)code);
    change_region(region);
    int skip = answer == NULL ? -1 : PyObject_IsTrue(answer);
    Py_XDECREF(answer);
    if (skip < 0) {
        PyErr_WriteUnraisable(skip_rule);
        skip = 1;
    }
    enum Mark mark = skip ? SKIPPED : WANTED;
    if (_PyCode_SetExtra((PyObject *)code, extra_index, (void *)(intptr_t)mark) < 0) PyErr_Clear();
    return mark;
}

static int is_plain_function(const PyCodeObject *code) {
    const int wanted = CO_OPTIMIZED | CO_NEWLOCALS;
    const int unwanted = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    return (code->co_flags & wanted) == wanted && (code->co_flags & unwanted) == 0;
}

static PyObject *view_of(const ArgandFrame *frame) {
    PyCodeObject *code = argand_frame_code(frame);
    PyFunctionObject *function = argand_frame_function(frame);
    PyObject *const *raw = argand_frame_locals(frame);
    Py_ssize_t count = argand_frame_local_count(frame);
    PyObject *view = PyStructSequence_New(&ArgandView_Type);
    PyObject *locals = PyTuple_New(count);
    if (view == NULL || locals == NULL) {
        Py_XDECREF(view);
        Py_XDECREF(locals);
        return NULL;
    }
    PyObject *closure = function->func_closure;
    Py_ssize_t first_free = count - code->co_nfreevars;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *value = raw[i];
        // the frame's first instruction would copy the cells of free variables
        if (i >= first_free && closure != NULL) value = PyTuple_GET_ITEM(closure, i - first_free);
        PyTuple_SET_ITEM(locals, i, Py_NewRef(value == NULL ? argand_null : value));
    }
    PyStructSequence_SET_ITEM(view, 0, Py_NewRef(code));
    PyStructSequence_SET_ITEM(view, 1, Py_NewRef(function));
    PyStructSequence_SET_ITEM(view, 2, Py_NewRef(argand_frame_globals(frame)));
    PyStructSequence_SET_ITEM(view, 3, Py_NewRef(argand_frame_builtins(frame)));
    PyStructSequence_SET_ITEM(view, 4, locals);
    return view;
}

// The exception that leaves a compiled frame, without the frames of generated code.
static void trim_error(void) {
    if (error_trimmer == NULL || !PyErr_Occurred()) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL) PyException_SetTraceback(value, trace);
    ArgandRegion *region = change_region(NULL);
    PyObject *answer = PyObject_CallOneArg(error_trimmer, value);
    change_region(region);
    if (answer == NULL) PyErr_Clear();
    Py_XDECREF(answer);
    Py_XSETREF(trace, PyException_GetTraceback(value));
    PyErr_Restore(type, value, trace);
}

// For torch.profiler: a compiled call of a function, and where that is written.
static Handle record_frame(const TorchLink *torch, const ArgandFrame *frame) {
    PyCodeObject *code = argand_frame_code(frame);
    PyObject *name = PyUnicode_FromFormat("argand: %U (%U:%d)", code->co_qualname, code->co_filename,
                                          code->co_firstlineno);
    Handle record = name == NULL ? NULL : argand_record_start(torch, PyUnicode_AsUTF8(name));
    Py_XDECREF(name);
    PyErr_Clear();
    return record;
}

// Calls the entry whose guards hold; 0 when there is none. Not inlined: frames without entries are
// not to pay for its array with C stack.
__attribute__((noinline)) static int call_entry(ArgandRegion *region, PyThreadState *thread,
                                                ArgandFrame *frame, PyObject **result) {
    PyObject *small[SMALL_CALL + 1];
    PyObject **collected = small + 1; /* one slot before: vectorcall may use it for self */
    ArgandWorld world = {.locals = argand_frame_locals(frame),
                         .local_count = argand_frame_local_count(frame),
                         .globals = argand_frame_globals(frame),
                         .builtins = argand_frame_builtins(frame),
                         .function = (PyObject *)argand_frame_function(frame)};
    ArgandEntry *entry =
        argand_region_match(region, argand_frame_code(frame), &world, &collected, SMALL_CALL);
    if (entry == NULL) return 0;
    PyObject *target = Py_NewRef(entry->target);
    Py_ssize_t count = entry->program->collect_count;
    int is_small = collected == small + 1;
    size_t flag = is_small ? PY_VECTORCALL_ARGUMENTS_OFFSET : 0;
    if (argand_enter_call(thread) < 0) *result = NULL;
    else {
        const TorchLink *torch = argand_linked_torch();
        void *record = torch != NULL && torch->has_callbacks() ? record_frame(torch, frame) : NULL;
        *result = PyObject_Vectorcall(target, collected, (size_t)count | flag, NULL);
        if (record != NULL) argand_record_end(torch, record);
        argand_leave_call(thread);
    }
    if (*result == NULL) trim_error();
    for (Py_ssize_t i = 0; i < count; i++) Py_DECREF(collected[i]);
    if (!is_small) PyMem_Free(collected);
    Py_DECREF(target);
    Py_DECREF(entry);
    return 1;
}

// Asks the callback. 1: an entry was added. 0: run the frame. 2: run it with the hook off.
// -1: an exception is set.
static int ask_callback(ArgandRegion *region, ArgandFrame *frame) {
    PyCodeObject *code = argand_frame_code(frame);
    PyObject *view = view_of(frame);
    if (view == NULL) return -1;
    change_region(NULL);
    ArgandDepth depth = argand_deepen();
    PyObject *answer = PyObject_CallOneArg(region->callback, view);
    argand_undeepen(depth);
    change_region(region);
    Py_DECREF(view);
    if (answer == NULL) return -1;
    int status = 0;
    if (answer == skip_answer) status = argand_region_skip(region, code);
    else if (answer == off_answer) status = 2;
    else if (Py_IS_TYPE(answer, &ArgandEntry_Type))
        status = argand_region_add(region, code, (ArgandEntry *)answer) < 0 ? -1 : 1;
    else if (answer != Py_None) {
        PyErr_Format(PyExc_TypeError, "a region's callback returns Entry, SKIP, OFF or None, not %R",
                     answer);
        status = -1;
    }
    Py_DECREF(answer);
    return status;
}

// Runs a frame and all it calls with the hook off.
static PyObject *run_off(PyThreadState *thread, ArgandFrame *frame, int throwing) {
    ArgandRegion *region = change_region(NULL);
    PyObject *result = hand_on(thread, frame, throwing);
    change_region(region);
    return result;
}

// A frame of a region that may have an entry, or get one.
static PyObject *run_in_region(ArgandRegion *region, PyThreadState *thread, ArgandFrame *frame) {
    ArgandRow *row = argand_region_find(region, argand_frame_code(frame));
    if (row != NULL && row->skipped) return hand_on(thread, frame, 0);
    int closed = row != NULL && row->closed;
    PyObject *result;
    Py_INCREF(region);
    int status = call_entry(region, thread, frame, &result);
    if (status == 0 && !closed) {
        status = ask_callback(region, frame);
        if (status == 1) status = call_entry(region, thread, frame, &result);
        else if (status == 2) result = run_off(thread, frame, 0);
    }
    Py_DECREF(region);
    if (status == 0) return hand_on(thread, frame, 0);
    if (status != 2) argand_frame_drop(thread, frame); /* an entry answered, or an error did */
    return status < 0 ? NULL : result;
}

static PyObject *hook(PyThreadState *thread, ArgandFrame *frame, int throwing) {
    ArgandRegion *region = current;
    if (argand_stack_is_low()) return step_aside(thread, frame, throwing);
    if (region == NULL) {
        if (active == 0) settle(); /* one installed over ours has put ours back */
        return hand_on(thread, frame, throwing);
    }
    // The body of a module that is imported: what it calls is nobody's program to compile.
    if (argand_frame_is_module(frame) || argand_is_observing(thread) || (!throwing && argand_is_debugged()))
        return run_off(thread, frame, throwing);
    if (throwing || all_eager || !is_plain_function(argand_frame_code(frame)) ||
        handed_on == frame || mark_of(argand_frame_code(frame)) == SKIPPED)
        return hand_on(thread, frame, throwing);
    return run_in_region(region, thread, frame);
}

// ---- switches ----

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *function;
    ArgandRegion *region; /* NULL: no region, the hook is off */
    PyObject *dict;
    PyObject *weakrefs;
} Switch;

// The watcher is called with the switch before the arguments; calls inside of it are not its business.
static PyObject *call_watched(PyObject *self, PyObject *const *args, size_t count, PyObject *names) {
    Py_ssize_t given = PyVectorcall_NARGS(count), all = given + (names ? PyTuple_GET_SIZE(names) : 0);
    PyObject **moved = PyMem_New(PyObject *, all + 1), *watcher = Py_NewRef(call_watcher);
    PyObject *result = NULL;
    if (moved == NULL) PyErr_NoMemory();
    else {
        moved[0] = self;
        memcpy(moved + 1, args, all * sizeof *args);
        watching = 1;
        result = PyObject_Vectorcall(watcher, moved, given + 1, names);
        watching = 0;
    }
    PyMem_Free(moved);
    Py_DECREF(watcher);
    return result;
}

static PyObject *switch_call(PyObject *self, PyObject *const *args, size_t count,
                             PyObject *names) {
    Switch *wrapper = (Switch *)self;
    ArgandRegion *outer = current;
    if (call_watcher != NULL && outer == NULL && !watching && wrapper->region != NULL)
        return call_watched(self, args, count, names);
    ArgandRegion *region = all_eager ? NULL : wrapper->region;
    if (region == outer) return PyObject_Vectorcall(wrapper->function, args, count, names);
    Py_INCREF(self);
    char *share = outer == NULL ? argand_begin_stack_share() : NULL;
    change_region(region);
    PyObject *result = PyObject_Vectorcall(wrapper->function, args, count, names);
    change_region(outer);
    if (outer == NULL) argand_end_stack_share(share);
    Py_DECREF(self);
    return result;
}

static PyObject *switch_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"function", "region", NULL};
    PyObject *function, *region = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O", names, &function, &region)) return NULL;
    if (!PyCallable_Check(function) ||
        (region != Py_None && !Py_IS_TYPE(region, &ArgandRegion_Type))) {
        PyErr_SetString(PyExc_TypeError, "Switch(callable, Region or None)");
        return NULL;
    }
    Switch *wrapper = (Switch *)type->tp_alloc(type, 0);
    if (wrapper == NULL) return NULL;
    wrapper->call = switch_call;
    wrapper->function = Py_NewRef(function);
    if (region != Py_None) wrapper->region = (ArgandRegion *)Py_NewRef(region);
    return (PyObject *)wrapper;
}

static int switch_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(((Switch *)self)->function);
    Py_VISIT(((Switch *)self)->region);
    Py_VISIT(((Switch *)self)->dict);
    return 0;
}

static int switch_clear(PyObject *self) {
    Py_CLEAR(((Switch *)self)->function);
    Py_CLEAR(((Switch *)self)->region);
    Py_CLEAR(((Switch *)self)->dict);
    return 0;
}

static void switch_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    if (((Switch *)self)->weakrefs != NULL) PyObject_ClearWeakRefs(self);
    switch_clear(self);
    Py_TYPE(self)->tp_free(self);
}

// In a class body it becomes a method, as the function would.
static PyObject *switch_get(PyObject *self, PyObject *instance, PyObject *owner) {
    return instance == NULL || instance == Py_None ? Py_NewRef(self)
                                                   : PyMethod_New(self, instance);
}

static PyObject *switch_repr(PyObject *self) {
    Switch *wrapper = (Switch *)self;
    return PyUnicode_FromFormat("<%s %R>", wrapper->region != NULL ? "compiled" : "disabled",
                                wrapper->function);
}

// Pickled and copied by name, as functions are.
static PyObject *switch_reduce(PyObject *self, PyObject *ignored) {
    return PyObject_GetAttrString(self, "__qualname__");
}

static PyMethodDef switch_methods[] = {{"__reduce__", switch_reduce, METH_NOARGS, NULL}, {NULL}};

static PyMemberDef switch_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(Switch, function), READONLY, "what is called"},
    {"region", T_OBJECT, offsetof(Switch, region), READONLY, "Region, or None: hook off"},
    {NULL}};

static PyGetSetDef switch_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {NULL}};

static PyTypeObject Switch_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "argand.runtime._native.Switch",
    .tp_doc = "Switch(function, region=None): calls function with the thread's region set.",
    .tp_basicsize = sizeof(Switch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = switch_new,
    .tp_traverse = switch_traverse,
    .tp_clear = switch_clear,
    .tp_dealloc = switch_dealloc,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Switch, call),
    .tp_descr_get = switch_get,
    .tp_repr = switch_repr,
    .tp_methods = switch_methods,
    .tp_members = switch_members,
    .tp_getset = switch_attributes,
    .tp_dictoffset = offsetof(Switch, dict),
    .tp_weaklistoffset = offsetof(Switch, weakrefs),
};

// ---- module functions ----

static PyObject *set_skip_rule(PyObject *module, PyObject *rule) {
    Py_XSETREF(skip_rule, Py_NewRef(rule));
    Py_RETURN_NONE;
}

static PyObject *set_error_trimmer(PyObject *module, PyObject *trimmer) {
    Py_XSETREF(error_trimmer, Py_NewRef(trimmer));
    Py_RETURN_NONE;
}

static PyObject *set_call_watcher(PyObject *module, PyObject *watcher) {
    Py_XSETREF(call_watcher, watcher == Py_None ? NULL : Py_NewRef(watcher));
    Py_RETURN_NONE;
}

static PyObject *mark_code(PyObject *module, PyObject *args) {
    PyObject *code;
    int wanted;
    if (!PyArg_ParseTuple(args, "O!p", &PyCode_Type, &code, &wanted)) return NULL;
    intptr_t mark = wanted ? WANTED : SKIPPED;
    if (_PyCode_SetExtra(code, extra_index, (void *)mark) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *set_all_eager(PyObject *module, PyObject *flag) {
    int value = PyObject_IsTrue(flag);
    if (value < 0) return NULL;
    all_eager = value;
    Py_RETURN_NONE;
}

static PyObject *current_region(PyObject *module, PyObject *ignored) {
    return Py_NewRef(current == NULL ? Py_None : (PyObject *)current);
}

static PyObject *hook_is_installed(PyObject *module, PyObject *ignored) {
    return PyBool_FromLong(argand_evaluator() == hook);
}

// In the child of a fork only the calling thread is left: what others wanted is forgotten.
static PyObject *forget_other_threads(PyObject *module, PyObject *ignored) {
    active = current != NULL;
    suspended = aside;
    settle();
    Py_RETURN_NONE;
}

static PyObject *disabled(PyObject *module, PyObject *function) {
    return PyObject_CallOneArg((PyObject *)&Switch_Type, function);
}

static PyMethodDef functions[] = {
    {"set_skip_rule", set_skip_rule, METH_O, "set_skip_rule(f): f(code) says once whether to skip"},
    {"set_error_trimmer", set_error_trimmer, METH_O,
     "set_error_trimmer(f): f(error) for an exception that leaves a compiled frame"},
    {"set_call_watcher", set_call_watcher, METH_O,
     "set_call_watcher(f): f(compiled, *args) in place of outermost calls of compiled objects; None: no more"},
    {"mark_code", mark_code, METH_VARARGS, "mark_code(code, wanted): instead of asking the rule"},
    {"set_all_eager", set_all_eager, METH_O, "set_all_eager(flag): compiled calls run plainly"},
    {"current_region", current_region, METH_NOARGS, "the region of this thread, or None"},
    {"hook_is_installed", hook_is_installed, METH_NOARGS, "whether the interpreter has our hook"},
    {"forget_other_threads", forget_other_threads, METH_NOARGS, "after a fork, in the child"},
    {"disabled", disabled, METH_O, "disabled(function): a Switch that turns the hook off"},
    {NULL}};

int argand_add_frames(PyObject *module) {
    if (argand_add_regions(module) < 0 || PyType_Ready(&Switch_Type) < 0) return -1;
    extra_index = _PyEval_RequestCodeExtraIndex(NULL);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_ImportError, "no room left for marks on code objects");
        return -1;
    }
    skip_answer = PyUnicode_InternFromString("argand.SKIP");
    if (skip_answer == NULL || PyModule_AddObjectRef(module, "SKIP", skip_answer) < 0) return -1;
    off_answer = PyUnicode_InternFromString("argand.OFF");
    if (off_answer == NULL || PyModule_AddObjectRef(module, "OFF", off_answer) < 0) return -1;
    if (PyModule_AddObjectRef(module, "Switch", (PyObject *)&Switch_Type) < 0) return -1;
    return PyModule_AddFunctions(module, functions);
}
