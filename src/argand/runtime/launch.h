// Shared by launch.c, torchlink.c and arena.c: what the launcher needs of torch and of memory.
//
// Torch is reached through functions it exports for C (the aoti_torch_* and torch_* interface of
// libtorch_cpu.so), found by dlsym at the first use: no torch headers, no C++ compiler.
#ifndef ARGAND_LAUNCH_H
#define ARGAND_LAUNCH_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

// An at::Tensor*, opaque to us.
typedef void *Handle;

typedef void (*RangeFunction)(int64_t begin, int64_t end, void *context);

typedef struct {
    int (*empty_strided)(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                         int32_t device_type, int32_t device_index, Handle *result);
    int (*from_blob)(void *data, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                     int64_t storage_offset, int32_t dtype, int32_t device_type,
                     int32_t device_index, Handle *result);
    int (*reinterpret)(Handle self, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                       int64_t storage_offset, Handle *result);
    int (*delete_tensor)(Handle tensor);
    int (*get_data_ptr)(Handle tensor, void **result);
    int (*get_sizes)(Handle tensor, int64_t **result);
    int (*get_strides)(Handle tensor, int64_t **result);
    int (*get_dim)(Handle tensor, int64_t *result);
    int (*get_dtype)(Handle tensor, int32_t *result);
    int (*get_storage_size)(Handle tensor, int64_t *bytes);
    int (*parallel_for)(int64_t begin, int64_t end, int64_t grain, RangeFunction function,
                        void *context);
    int (*get_num_threads)(void);
    void (*sgemm)(const char *, const char *, const int *, const int *, const int *, const float *,
                  const float *, const int *, const float *, const int *, const float *, float *,
                  const int *);
    void (*dgemm)(const char *, const char *, const int *, const int *, const int *, const double *,
                  const double *, const int *, const double *, const int *, const double *,
                  double *, const int *);
    void (*sgemm_batch)(const char *, const char *, const int *, const int *, const int *,
                        const float *, const float **, const int *, const float **, const int *,
                        const float *, float **, const int *, const int *, const int *);
    void (*dgemm_batch)(const char *, const char *, const int *, const int *, const int *,
                        const double *, const double **, const int *, const double **, const int *,
                        const double *, double **, const int *, const int *, const int *);
    _Bool (*grad_mode)(void);
    void (*set_grad_mode)(_Bool enabled);
    _Bool (*has_callbacks)(void); /* whether somebody records what this thread runs */
    int (*record_start)(const char *name, void *keywords, const void *inputs, uint64_t n_inputs,
                        Handle *record);
    int (*record_end)(Handle record);
    int (*copy)(Handle self, Handle source, int32_t non_blocking);
    PyObject *(*wrap)(Handle tensor); /* a new Python tensor sharing the at::Tensor */
    PyTypeObject *tensor_type;
} TorchLink;

// The link, or NULL with a Python exception: torch is not loaded or is not a version we know.
const TorchLink *argand_torch_link(void);

// The link if there is one by now, never an exception.
const TorchLink *argand_linked_torch(void);

// A piece of work for torch.profiler; NULL when nobody records, and then it costs a call of C.
Handle argand_record_start(const TorchLink *torch, const char *name);
void argand_record_end(const TorchLink *torch, Handle record);

// The at::Tensor inside a Python tensor (borrowed). The caller has checked the type.
static inline Handle argand_handle(PyObject *tensor) {
    return (char *)tensor + sizeof(PyObject);
}

// Scratch memory, 64-byte aligned, kept between calls. Call with the GIL held.
typedef struct Arena Arena;
Arena *argand_arena_take(size_t bytes); /* NULL with MemoryError */
void argand_arena_give(Arena *arena);
char *argand_arena_base(Arena *arena);
PyObject *argand_arena_release(PyObject *self, PyObject *ignored);
PyObject *argand_arena_statistics(PyObject *self, PyObject *ignored);

// fingerprint(tensor, bytes): 64 bits of the contents of a dense tensor.
PyObject *argand_fingerprint(PyObject *self, PyObject *const *args, Py_ssize_t count);

#endif
