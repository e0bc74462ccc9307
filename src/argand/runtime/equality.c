// argand.runtime._native: equality as guards need it.
//
// Same type and same value all the way down: True is not 1, -0.0 is not 0.0, nan is nan, dicts have
// the same order. Never raises; a comparison that raises says "different".
#include "cpython.h"

#include <string.h>

#define SMALL_SET 64 /* above this, sets are compared by == alone */

static int same_double(double a, double b) {
    return (a != a && b != b) || memcmp(&a, &b, sizeof a) == 0;
}

static int same_items(PyObject *const *a, PyObject *const *b, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++)
        if (!argand_equals(a[i], b[i])) return 0;
    return 1;
}

static int same_dict(PyObject *a, PyObject *b) {
    if (PyDict_GET_SIZE(a) != PyDict_GET_SIZE(b)) return 0;
    Py_ssize_t i = 0, j = 0;
    PyObject *key, *value, *other_key, *other_value;
    while (PyDict_Next(a, &i, &key, &value)) {
        if (!PyDict_Next(b, &j, &other_key, &other_value)) return 0;
        if (!argand_equals(key, other_key) || !argand_equals(value, other_value)) return 0;
    }
    return 1;
}

static int set_has(PyObject *set, PyObject *wanted) {
    Py_ssize_t i = 0;
    PyObject *item;
    while (argand_set_next(set, &i, &item))
        if (argand_equals(item, wanted)) return 1;
    return 0;
}

static int rich_equal(PyObject *a, PyObject *b) {
    int answer = PyObject_RichCompareBool(a, b, Py_EQ);
    if (answer < 0) PyErr_Clear();
    return answer > 0;
}

static int same_set(PyObject *a, PyObject *b) {
    if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return 0;
    if (PySet_GET_SIZE(a) > SMALL_SET) return rich_equal(a, b);
    Py_ssize_t i = 0;
    PyObject *item;
    while (argand_set_next(a, &i, &item))
        if (!set_has(b, item)) return 0;
    return 1;
}

static int same_attributes(PyObject *a, PyObject *b) {
    static const char *const names[] = {"start", "stop", "step"};
    for (int i = 0; i < 3; i++) {
        PyObject *left = PyObject_GetAttrString(a, names[i]);
        PyObject *right = PyObject_GetAttrString(b, names[i]);
        int same = left != NULL && right != NULL && argand_equals(left, right);
        Py_XDECREF(left);
        Py_XDECREF(right);
        if (!same) {
            PyErr_Clear();
            return 0;
        }
    }
    return 1;
}

static int same_value(PyObject *a, PyObject *b) {
    if (PyLong_CheckExact(a) || PyUnicode_CheckExact(a)) return rich_equal(a, b);
    if (PyFloat_CheckExact(a)) return same_double(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    if (PyComplex_CheckExact(a)) {
        Py_complex left = PyComplex_AsCComplex(a), right = PyComplex_AsCComplex(b);
        return same_double(left.real, right.real) && same_double(left.imag, right.imag);
    }
    if (PyTuple_Check(a))
        return PyTuple_GET_SIZE(a) == PyTuple_GET_SIZE(b) &&
               same_items(((PyTupleObject *)a)->ob_item, ((PyTupleObject *)b)->ob_item,
                          PyTuple_GET_SIZE(a));
    if (PyList_CheckExact(a))
        return PyList_GET_SIZE(a) == PyList_GET_SIZE(b) &&
               same_items(((PyListObject *)a)->ob_item, ((PyListObject *)b)->ob_item,
                          PyList_GET_SIZE(a));
    if (PyDict_CheckExact(a)) return same_dict(a, b);
    if (PyAnySet_CheckExact(a)) return same_set(a, b);
    if (PySlice_Check(a) || PyRange_Check(a)) return same_attributes(a, b);
    return rich_equal(a, b);
}

static int same_bytes(PyObject *expected, PyObject *value) {
    Py_buffer buffer;
    if (PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE) < 0) {
        PyErr_Clear();
        return 0;
    }
    int same = buffer.len == PyBytes_GET_SIZE(expected) &&
               memcmp(buffer.buf, PyBytes_AS_STRING(expected), (size_t)buffer.len) == 0;
    PyBuffer_Release(&buffer);
    return same;
}

// By the methods of the base, whatever the subclass says of its equality.
int argand_holds(PyObject *scalar, PyObject *value) {
    if (PyBytes_CheckExact(scalar)) return same_bytes(scalar, value);
    if (!PyType_IsSubtype(Py_TYPE(value), Py_TYPE(scalar))) return 0;
    if (PyFloat_CheckExact(scalar)) return same_double(PyFloat_AS_DOUBLE(scalar), PyFloat_AS_DOUBLE(value));
    if (PyComplex_CheckExact(scalar)) {
        Py_complex a = ((PyComplexObject *)scalar)->cval, b = ((PyComplexObject *)value)->cval;
        return same_double(a.real, b.real) && same_double(a.imag, b.imag);
    }
    PyObject *same = Py_TYPE(scalar)->tp_richcompare(scalar, value, Py_EQ);
    int answer = same == Py_True;
    if (same == NULL) PyErr_Clear();
    Py_XDECREF(same);
    return answer;
}

int argand_equals(PyObject *a, PyObject *b) {
    if (a == b) return 1;
    if (Py_TYPE(a) != Py_TYPE(b)) return 0;
    if (Py_EnterRecursiveCall(" in a guard")) {
        PyErr_Clear();
        return 0;
    }
    int same = same_value(a, b);
    Py_LeaveRecursiveCall();
    return same;
}
