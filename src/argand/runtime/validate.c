// argand.runtime._native: what a row of a guard program must look like for guards.c to trust it.
//
// Programs are made by runtime/guard_programs.py, also of captures that were read from a file. Everything
// is looked at here, once, so that a check at a call asks nothing twice.
#include "guards.h"

// ---- nodes ----

int argand_operand_fits(int op, PyObject *operand, int32_t index) {
    switch (op) {
    case OP_LOCAL:
    case OP_CLOSURE_CELL:
    case OP_DEFAULTS: return index >= 0;
    case OP_SIZE_OF: return index >= -2 - 65 * 64; /* -1: the offset in the storage; below: strides */
    case OP_ATTR:
    case OP_TYPE_ATTR: return PyUnicode_Check(operand);
    case OP_KEYED: return PyWeakref_CheckRef(operand);
    case OP_MADE: return PyCallable_Check(operand);
    default: return 1;
    }
}

// ---- checks ----

static int is_node(PyObject *number, Py_ssize_t count) {
    if (!PyLong_Check(number)) return 0;
    Py_ssize_t node = PyLong_AsSsize_t(number);
    PyErr_Clear();
    return node >= 0 && node < count;
}

static int are_nodes(PyObject *tuple, Py_ssize_t least, Py_ssize_t count) {
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) < least) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++)
        if (!is_node(PyTuple_GET_ITEM(tuple, i), count)) return 0;
    return 1;
}

static int is_small(PyObject *number, long low, long high) {
    if (!PyLong_Check(number)) return 0;
    int overflow;
    long value = PyLong_AsLongAndOverflow(number, &overflow);
    return !overflow && value >= low && value <= high;
}

static int is_side(PyObject *side, Py_ssize_t count, int depth);

// (operation, side, side), or a node
static int is_factor(PyObject *factor, Py_ssize_t count, int depth) {
    if (!PyTuple_Check(factor)) return is_node(factor, count);
    return PyTuple_GET_SIZE(factor) == 3 && is_small(PyTuple_GET_ITEM(factor, 0), 0, 3) &&
           is_side(PyTuple_GET_ITEM(factor, 1), count, depth) &&
           is_side(PyTuple_GET_ITEM(factor, 2), count, depth);
}

// ((coefficient, (factor, ...)), ...)
static int is_side(PyObject *side, Py_ssize_t count, int depth) {
    enum { DEEPEST = 100 };
    if (!PyTuple_Check(side) || depth > DEEPEST) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(side); i++) {
        PyObject *term = PyTuple_GET_ITEM(side, i);
        if (!PyTuple_Check(term) || PyTuple_GET_SIZE(term) != 2 ||
            !is_small(PyTuple_GET_ITEM(term, 0), LONG_MIN, LONG_MAX) ||
            !PyTuple_Check(PyTuple_GET_ITEM(term, 1)))
            return 0;
        PyObject *factors = PyTuple_GET_ITEM(term, 1);
        for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(factors); j++)
            if (!is_factor(PyTuple_GET_ITEM(factors, j), count, depth + 1)) return 0;
    }
    return 1;
}

static int is_state(PyObject *expected) {
    if (!PyTuple_Check(expected)) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(expected); i += 2)
        if (!PyCallable_Check(PyTuple_GET_ITEM(expected, i))) return 0;
    return 1;
}

int argand_expected_fits(int kind, PyObject *expected, Py_ssize_t nodes) {
    int is_triple = PyTuple_Check(expected) && PyTuple_GET_SIZE(expected) == 3;
    switch (kind) {
    case DICT_KEYS:
    case OBJECT_KEYS: return PyTuple_Check(expected);
    case HAS_ATTR:
    case NO_ATTR: return PyUnicode_Check(expected);
    case NOT_ALIASED:
    case NO_OVERLAP: return are_nodes(expected, 0, nodes);
    case SAME_OBJECT: return are_nodes(expected, 2, nodes);
    case GLOBAL_STATE: return is_state(expected);
    case RELATION:
        return is_triple && PyUnicode_Check(PyTuple_GET_ITEM(expected, 0)) &&
               is_side(PyTuple_GET_ITEM(expected, 1), nodes, 0) &&
               is_side(PyTuple_GET_ITEM(expected, 2), nodes, 0);
    case COMPARED:
        return is_triple && is_small(PyTuple_GET_ITEM(expected, 0), Py_LT, Py_GE) &&
               PyFloat_CheckExact(PyTuple_GET_ITEM(expected, 1));
    case TENSOR: return PyTuple_Check(expected);
    default: return 1;
    }
}
