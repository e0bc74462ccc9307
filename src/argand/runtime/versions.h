// Versions of dicts and classes: the one place (with versions.c) that knows where CPython keeps them.
//
// A version is a number that no other state of any dict (class) ever had; 0: there is none, ask the
// contents. Up to 3.13 dicts have versions (3.14 takes them away: there this is to answer from
// watchers, PyDict_Watch, or 0, which is right and slower).
#ifndef ARGAND_VERSIONS_H
#define ARGAND_VERSIONS_H

#include "native.h"

#include <stdint.h>

#define ARGAND_VALUES_IN_OBJECTS (PY_VERSION_HEX >= 0x030D0000)

#if ARGAND_VALUES_IN_OBJECTS
// Values that lie in the object itself are written without a new version of the dict over them: such a
// dict gets a table of its own before it is asked (versions.c).
uint64_t argand_version_outside(PyObject *dict);
#endif

static inline uint64_t argand_dict_version(PyObject *dict) {
    PyDictObject *held = (PyDictObject *)dict;
#if ARGAND_VALUES_IN_OBJECTS
    if (held->ma_values != NULL) return argand_version_outside(dict);
#endif
    return held->ma_version_tag;
}

// Changes with the class and with each of its bases.
static inline uint64_t argand_type_version(PyObject *type) {
    PyTypeObject *kind = (PyTypeObject *)type;
#if PY_VERSION_HEX < 0x030C0000
    return kind->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG ? kind->tp_version_tag : 0;
#else
    return kind->tp_version_tag; /* 0 as long as it is not valid */
#endif
}

// The dict of a class itself, borrowed. From 3.12 on classes of CPython's own C code keep theirs elsewhere.
static inline PyObject *argand_type_dict(PyObject *type) {
#if PY_VERSION_HEX < 0x030C0000
    return ((PyTypeObject *)type)->tp_dict;
#else
    PyObject *dict = PyType_GetDict((PyTypeObject *)type);
    Py_XDECREF(dict); /* the class holds it */
    return dict;
#endif
}

#endif
