// argand.runtime._native, link to torch: C functions of the torch that Python has loaded.
#include "launch.h"
#include "platform.h"

static TorchLink link_table;
static int link_ready;

typedef struct {
    const char *library;
    const char *symbol;
    void *slot;
} Wanted;

static int resolve(const Wanted *wanted) {
    void *symbol = argand_loaded_symbol(wanted->library, wanted->symbol);
    if (!symbol) {
        PyErr_Format(PyExc_ImportError, "argand: the library %s has no %s; is torch imported, and 2.13?",
                     wanted->library, wanted->symbol);
        return -1;
    }
    *(void **)wanted->slot = symbol;
    return 0;
}

// The at::Tensor is the first field of a Python tensor. Proved on a real one before we rely on it:
// a tensor whose sizes are read back through torch's own accessor.
static int verify_layout(TorchLink *found) {
    const int64_t sizes[2] = {3, 5}, strides[2] = {7, 1};
    Handle handle;
    if (found->empty_strided(2, sizes, strides, 6, 0, 0, &handle)) {
        PyErr_SetString(PyExc_ImportError, "argand: torch cannot make a tensor");
        return -1;
    }
    PyObject *tensor = found->wrap(handle);
    int64_t *read = NULL;
    void *expected = NULL, *actual = NULL;
    int right = tensor && Py_TYPE(tensor)->tp_basicsize >= (Py_ssize_t)(sizeof(PyObject) + 8)
                && *(void **)argand_handle(tensor) == *(void **)handle
                && !found->get_sizes(argand_handle(tensor), &read) && read[0] == 3 && read[1] == 5
                && !found->get_data_ptr(handle, &expected)
                && !found->get_data_ptr(argand_handle(tensor), &actual) && expected == actual;
    found->delete_tensor(handle);
    if (tensor)
        found->tensor_type = Py_TYPE(tensor);
    Py_XDECREF(tensor);
    if (!right && !PyErr_Occurred())
        PyErr_SetString(PyExc_ImportError, "argand: unknown layout of torch.Tensor objects");
    return right ? 0 : -1;
}

const TorchLink *argand_torch_link(void) {
    if (link_ready)
        return &link_table;
    TorchLink found;
    const char *cpu = "torch_cpu", *python = "torch_python";
    const Wanted wanted[] = {
        {cpu, "aoti_torch_empty_strided", &found.empty_strided},
        {cpu, "aoti_torch_create_tensor_from_blob", &found.from_blob},
        {cpu, "aoti_torch__reinterpret_tensor", &found.reinterpret},
        {cpu, "aoti_torch_delete_tensor_object", &found.delete_tensor},
        {cpu, "aoti_torch_get_data_ptr", &found.get_data_ptr},
        {cpu, "aoti_torch_get_sizes", &found.get_sizes},
        {cpu, "aoti_torch_get_strides", &found.get_strides},
        {cpu, "aoti_torch_get_dim", &found.get_dim},
        {cpu, "aoti_torch_get_dtype", &found.get_dtype},
        {cpu, "aoti_torch_get_storage_size", &found.get_storage_size},
        {cpu, "torch_parallel_for", &found.parallel_for},
        {cpu, "_ZN2at15get_num_threadsEv", &found.get_num_threads},
        {cpu, "sgemm_", &found.sgemm},
        {cpu, "dgemm_", &found.dgemm},
        {cpu, "sgemm_batch_", &found.sgemm_batch},
        {cpu, "dgemm_batch_", &found.dgemm_batch},
        {cpu, "aoti_torch_grad_mode_is_enabled", &found.grad_mode},
        {cpu, "aoti_torch_grad_mode_set_enabled", &found.set_grad_mode},
        {cpu, "_ZN2at12hasCallbacksEv", &found.has_callbacks},
        {cpu, "aoti_record_function_start", &found.record_start},
        {cpu, "aoti_record_function_end", &found.record_end},
        {cpu, "aoti_torch_copy_", &found.copy},
        {python, "_Z16THPVariable_WrapRKN2at10TensorBaseE", &found.wrap},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (resolve(&wanted[i]))
            return NULL;
    if (verify_layout(&found))
        return NULL;
    link_table = found;
    link_ready = 1;
    return &link_table;
}

const TorchLink *argand_linked_torch(void) {
    return link_ready ? &link_table : NULL;
}

Handle argand_record_start(const TorchLink *torch, const char *name) {
    Handle record = NULL;
    if (name && !torch->record_start(name, NULL, NULL, 0, &record))
        return record;
    PyErr_Clear();
    return NULL;
}

void argand_record_end(const TorchLink *torch, Handle record) {
    if (record)
        torch->record_end(record);
}
