// argand.runtime._native: versions of dicts over values that lie in an object itself.
//
// On 3.13 `object.name = value` writes such a value without a new version of the dict over it, and up to
// 3.13.0 without a word to those who watch the dict. So a dict that is asked for its version moves out of
// its object first: from then on it has a table of its own, as every dict of 3.11, and each write of an
// attribute goes through it. Only where the values lie differs: they, their order and the dict stay.
#include "cpython.h"
#include "versions.h"

#if ARGAND_VALUES_IN_OBJECTS
// Taking out the last item makes a table; it is put back at the place it had. Nothing runs in between:
// the object is held by the pair, and its name is a text.
static int move_out(PyObject *dict) {
    PyObject *pair = PyObject_CallMethod((PyObject *)&PyDict_Type, "popitem", "O", dict);
    if (pair == NULL) return -1;
    int done = PyDict_SetItem(dict, PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
    Py_DECREF(pair);
    return done;
}

static int lies_in_object(const PyDictObject *dict) {
    return dict->ma_values != NULL && dict->ma_values->embedded;
}

uint64_t argand_version_outside(PyObject *dict) {
    PyDictObject *held = (PyDictObject *)dict;
    if (lies_in_object(held) && PyDict_GET_SIZE(dict) > 0 && PyDict_CheckExact(dict) && move_out(dict) < 0)
        PyErr_Clear();
    return lies_in_object(held) ? 0 : held->ma_version_tag;
}
#endif
