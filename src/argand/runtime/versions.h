// Versions of dicts and classes: the one place that knows where CPython keeps them.
//
// A version is a number that no other state of any dict (class) ever had; 0: there is none, ask the
// contents. Python 3.12 takes dict versions away: there these functions are to answer from watchers
// (PyDict_Watch, PyType_Watch), or 0, which is right and slower.
#ifndef ARGAND_VERSIONS_H
#define ARGAND_VERSIONS_H

#include "native.h"

#include <stdint.h>

static inline uint64_t argand_dict_version(PyObject *dict) {
    return ((PyDictObject *)dict)->ma_version_tag;
}

// Changes with the class and with each of its bases.
static inline uint64_t argand_type_version(PyObject *type) {
    PyTypeObject *kind = (PyTypeObject *)type;
    return kind->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG ? kind->tp_version_tag : 0;
}

#endif
