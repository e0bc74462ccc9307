// argand.runtime._native: versions of dicts over values that lie in an object itself.
//
// From 3.13 on `object.name = value` writes such a value without a new version of the dict over it. But
// it tells those who watch the dict: so a dict that is asked for its version is watched from then on, and
// the watcher gives it a new version. A probe tells once whether this CPython does so; where it does not,
// or has no watcher left, such dicts have no version: right, and slower.
#include "cpython.h"
#include "versions.h"

#if ARGAND_VALUES_IN_OBJECTS
static int watcher = -1; /* -1: not asked for yet, -2: there is none */
uint64_t argand_watched = 0;

static void renew(PyDictObject *dict) {
    uint64_t kept = dict->ma_version_tag & DICT_WATCHER_AND_MODIFICATION_MASK;
    dict->ma_version_tag = DICT_NEXT_VERSION(PyInterpreterState_Get()) | kept;
}

static int on_event(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value) {
    renew((PyDictObject *)dict);
    return 0;
}

// An object of a class of its own with one attribute; NULL with an exception.
static PyObject *sample(void) {
    PyObject *kind = PyObject_CallFunction((PyObject *)&PyType_Type, "s(){}", "Sample");
    PyObject *made = kind == NULL ? NULL : PyObject_CallNoArgs(kind);
    Py_XDECREF(kind);
    if (made != NULL && PyObject_SetAttrString(made, "name", Py_None) < 0) Py_CLEAR(made);
    return made;
}

// Whether an attribute that is written over, and one that is deleted, give a watched dict a new version.
static int probe(void) {
    PyObject *object = sample();
    PyObject *dict = object == NULL ? NULL : PyObject_GenericGetDict(object, NULL);
    int works = 0;
    if (dict != NULL && ((PyDictObject *)dict)->ma_values != NULL && PyDict_Watch(watcher, dict) == 0) {
        uint64_t first = ((PyDictObject *)dict)->ma_version_tag;
        int written = PyObject_SetAttrString(object, "name", Py_True) == 0;
        uint64_t second = ((PyDictObject *)dict)->ma_version_tag;
        int deleted = PyObject_DelAttrString(object, "name") == 0;
        works = written && deleted && first != second && ((PyDictObject *)dict)->ma_version_tag != second;
    }
    Py_XDECREF(dict);
    Py_XDECREF(object);
    return works;
}

static void find_watcher(void) {
    watcher = PyDict_AddWatcher(on_event);
    if (watcher >= 0) {
        if (probe()) argand_watched = (uint64_t)1 << watcher;
        else PyDict_ClearWatcher(watcher);
    }
    if (argand_watched == 0) watcher = -2;
    PyErr_Clear();
}

uint64_t argand_watch_dict(PyObject *dict) {
    if (watcher == -1) find_watcher();
    if (watcher < 0) return 0;
    if (PyDict_Watch(watcher, dict) < 0) {
        PyErr_Clear();
        return 0;
    }
    renew((PyDictObject *)dict); /* what was written before went unseen */
    return ((PyDictObject *)dict)->ma_version_tag;
}
#endif
