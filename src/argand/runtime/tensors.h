// Tensor metadata, read where torch keeps it.
#ifndef ARGAND_TENSORS_H
#define ARGAND_TENSORS_H

#include "native.h"

#include <stdint.h>

// What a tensor must look like: a TensorSpec of runtime/guards.py in C.
typedef struct {
    PyTypeObject *type; /* borrowed: the guard program kills its entry with the type */
    uint64_t keys;
    uint32_t header; /* dtype code, device type and device index, as torch stores them */
    int requires_grad;
    int has_strides;
    Py_ssize_t dims;
    int64_t *sizes; /* sizes then strides; -1 allows anything */
    PyObject *spec; /* the Python row, for the slow comparison */
} ArgandTensorCheck;

// From the tuple made by runtime/guard_programs.py; NULL with an exception set.
ArgandTensorCheck *argand_tensor_check_new(PyObject *row);
void argand_tensor_check_free(ArgandTensorCheck *check);

// 1 it matches, 0 it does not, -1 an exception is set (slow comparison only).
int argand_tensor_matches(const ArgandTensorCheck *check, PyObject *value);

// Whether argand_tensor_matches runs no Python code.
int argand_tensors_are_fast(void);

// New reference to the int size of one dimension, or NULL (without exception) if there is none.
PyObject *argand_tensor_size(PyObject *tensor, Py_ssize_t dim);

// Identity of the storage of a tensor, or NULL if it has none or is not readable.
const void *argand_tensor_storage(PyObject *tensor);

#endif
