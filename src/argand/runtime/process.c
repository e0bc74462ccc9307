// argand.runtime._native: limits of the process and its threads that compiled code has to respect.
//
// Stack: under a hook every call from Python to Python takes C stack. A thread may spend a quarter of
// what was left when its region was entered; the rest stays for code that needs it in eager too, and
// for the compiler. Recursion: the compiler needs several Python frames for one of the user's, and
// raises the limit of its own thread alone. Signals: a handler can be replaced for a while without
// changing how system calls are interrupted.
#include "process.h"
#include "cpython.h"
#include "platform.h"

enum { MOST_CALLS = 20000, SHARE = 4, BYTES_PER_CALL = 1536 /* of C stack: a call from C to Python, with room to spare */ };

// ---- stack ----

typedef struct {
    char *lowest, *highest; /* of the thread's stack; equal when it cannot be known */
    char *floor;            /* frames below it are not for the hook */
    int known;
} Stack;

static _Thread_local Stack stack;

static void measure(void) {
    stack.known = 1;
    char *lowest, *highest;
    if (!argand_stack_bounds(&lowest, &highest)) return;
    stack.lowest = lowest;
    stack.highest = highest;
    stack.floor = highest - (highest - lowest) / SHARE;
}

// Where we are on the stack; NULL on a stack that is not the thread's own, as of some coroutines.
static char *here(void) {
    if (!stack.known) measure();
    char *place = __builtin_frame_address(0);
    return place > stack.lowest && place < stack.highest ? place : NULL;
}

int argand_stack_is_low(void) {
    char *place = here();
    return place != NULL && place < stack.floor;
}

char *argand_begin_stack_share(void) {
    char *place = here(), *before = stack.floor;
    if (place != NULL) stack.floor = place - (place - stack.lowest) / SHARE;
    return before;
}

void argand_end_stack_share(char *before) { stack.floor = before; }

static PyObject *stack_left(PyObject *module, PyObject *ignored) {
    char *place = here();
    return PyLong_FromSsize_t(place == NULL ? 0 : place - stack.lowest);
}

// ---- recursion ----

// What this thread has been granted beyond its own limit, unless somebody has set another since.
static _Thread_local ArgandDepth granted;

// Calls of Python that the program itself may still make in this thread.
static int own_left(void) {
    int is_granted = granted.during != granted.before && argand_recursion_limit() == granted.during;
    return argand_recursion_left() - (is_granted ? granted.during - granted.before : 0);
}

ArgandDepth argand_deepen(void) {
    ArgandDepth outer = granted;
    if (outer.during != outer.before && argand_recursion_limit() == outer.during) return outer;
    char *place = here();
    long room = place == NULL ? 1000 : (place - stack.lowest) / BYTES_PER_CALL;
    long more = (room < MOST_CALLS ? room : MOST_CALLS) - argand_recursion_left();
    int before = argand_recursion_limit();
    if (more > 0) argand_set_recursion_limit(before + (int)more);
    granted = (ArgandDepth){before, argand_recursion_limit()};
    return outer;
}

void argand_undeepen(ArgandDepth outer) {
    if (granted.during == outer.during && granted.before == outer.before) return;
    if (argand_recursion_limit() == granted.during) argand_set_recursion_limit(granted.before);
    granted = outer;
}

static PyObject *recursion_left(PyObject *module, PyObject *ignored) {
    return PyLong_FromLong(own_left());
}

// ---- signals ----

// swap_handler(number, handler, set): set(number, handler), keeping the flags and the mask of the
// system's side: signal.signal would turn the restarting of system calls off.
static PyObject *swap_handler(PyObject *module, PyObject *args) {
    int number;
    PyObject *handler, *set;
    if (!PyArg_ParseTuple(args, "iOO", &number, &handler, &set)) return NULL;
    ArgandAction *action = argand_action_of(number);
    PyObject *before = PyObject_CallFunction(set, "iO", number, handler);
    argand_put_back_action(number, action, before != NULL);
    return before;
}

// ---- threads ----

static PyObject *at_turn(PyObject *module, PyObject *args) {
    Py_buffer code;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(args, "y*n", &code, &at)) return NULL;
    int found = at >= 0 && at < code.len && argand_is_turn(((const unsigned char *)code.buf)[at]);
    PyBuffer_Release(&code);
    return PyBool_FromLong(found);
}

// ---- debuggers ----

static PyObject *debug_rule = NULL; /* called with a trace function: is it a debugger's? */

int argand_is_debugged(void) {
    PyThreadState *thread = PyThreadState_Get();
    PyObject *tracer = argand_tracer(thread);
    if (tracer == NULL) tracer = argand_monitor(thread);
    if (tracer == NULL || debug_rule == NULL) return 0;
    Py_INCREF(tracer);
    PyThreadState_EnterTracing(thread);
    PyObject *answer = PyObject_CallOneArg(debug_rule, tracer);
    PyThreadState_LeaveTracing(thread);
    Py_DECREF(tracer);
    if (answer == NULL) PyErr_WriteUnraisable(debug_rule);
    Py_XDECREF(answer);
    return answer == Py_True;
}

static PyObject *set_debug_rule(PyObject *module, PyObject *rule) {
    Py_XSETREF(debug_rule, Py_NewRef(rule));
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"at_turn", at_turn, METH_VARARGS, "at_turn(co_code, f_lasti): whether a thread may give up the lock there"},
    {"set_debug_rule", set_debug_rule, METH_O,
     "set_debug_rule(f): f(trace function, or name of a monitoring debugger) says whether it is a debugger's"},
    {"stack_left", stack_left, METH_NOARGS, "bytes of C stack this thread has left; 0: unknown"},
    {"recursion_left", recursion_left, METH_NOARGS, "calls of Python the program may make in this thread"},
    {"swap_handler", swap_handler, METH_VARARGS,
     "swap_handler(number, handler, signal.signal): sets a handler, keeps the system's flags"},
    {NULL}};

int argand_add_process(PyObject *module) { return PyModule_AddFunctions(module, functions); }
