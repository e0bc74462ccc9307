// argand.runtime._native: what must be fast at call time; the module and its parts.
#include "native.h"

static int add_parts(PyObject *module) {
    if (argand_add_tensors(module) < 0) return -1;
    if (argand_add_guards(module) < 0) return -1;
    if (argand_add_tables(module) < 0) return -1;
    if (argand_add_frames(module) < 0) return -1;
    if (argand_add_launch(module) < 0) return -1;
    if (argand_add_process(module) < 0) return -1;
    if (argand_add_gdb(module) < 0) return -1;
    return 0;
}

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native",
                                 "Guards, frames, tensors and kernel launch.", -1, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && add_parts(module) < 0) Py_CLEAR(module);
    return module;
}
