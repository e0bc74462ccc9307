/* argand.runtime._native: guards. */
#include "native.h"

int argand_add_guards(PyObject *module) { return 0; }
