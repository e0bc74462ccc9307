// argand.runtime._native: what the parts of the extension share.
//
// Each part is one .c file with an argand_add_<part>(module) that adds its types and functions;
// _native.c calls them in order. CPython headers only: torch is reached through Python objects.
#ifndef ARGAND_NATIVE_H
#define ARGAND_NATIVE_H

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

// 0 on success, -1 with an exception set.
int argand_add_tensors(PyObject *module);
int argand_add_guards(PyObject *module);
int argand_add_tables(PyObject *module);
int argand_add_frames(PyObject *module);
int argand_add_launch(PyObject *module);
int argand_add_process(PyObject *module);
int argand_add_gdb(PyObject *module);

// Same type and value, deep; never raises (equality.c).
int argand_equals(PyObject *a, PyObject *b);

// Whether an object of a subclass of the class of a number or text, or a buffer for bytes, has its value.
int argand_holds(PyObject *scalar, PyObject *value);

#endif
