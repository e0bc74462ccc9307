/* argand.runtime._native: frames. */
#include "native.h"

int argand_add_frames(PyObject *module) { return 0; }
