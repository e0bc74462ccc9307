// fingerprint(tensor): 64 bits of the contents of a dense CPU tensor, at the speed of memory.
//
// What was made from a parameter once (a packed weight) may be used as long as the contents are the
// same. No counter tells that: writes through `.data`, numpy or DLPack leave no trace in torch.
// Each step of a lane is a bijection of its state for a given word and of the word for a given
// state, so a change of one word always changes the result; others collide once in 2^64.
#include "watch.h"

enum { LANES = 8, BLOCK = 1 << 16 };

static const uint64_t FACTOR = 0x9E3779B97F4A7C15ULL;

static inline uint64_t mix(uint64_t state, uint64_t word) {
    state = (state ^ word) * FACTOR;
    return state << 29 | state >> 35; /* or changes of top bits would meet and cancel */
}

static uint64_t hash_block(const char *data, size_t bytes) {
    uint64_t lanes[LANES] = {1, 2, 3, 4, 5, 6, 7, 8}, words[LANES], result = bytes;
    for (; bytes >= sizeof words; bytes -= sizeof words, data += sizeof words) {
        memcpy(words, data, sizeof words);
        for (int i = 0; i < LANES; i++)
            lanes[i] = mix(lanes[i], words[i]);
    }
    memset(words, 0, sizeof words);
    memcpy(words, data, bytes);
    for (int i = 0; i < LANES; i++)
        result = mix(result, mix(lanes[i], words[i]));
    return result;
}

typedef struct {
    const char *data;
    size_t bytes;
    uint64_t *hashes; /* of each block */
} Blocks;

static void hash_range(int64_t begin, int64_t end, void *context) {
    const Blocks *blocks = context;
    for (int64_t i = begin; i < end; i++) {
        size_t start = (size_t)i * BLOCK, left = blocks->bytes - start;
        blocks->hashes[i] = hash_block(blocks->data + start, left < BLOCK ? left : BLOCK);
    }
}

uint64_t argand_hash_bytes(const TorchLink *torch, const void *data, size_t bytes) {
    if (bytes <= BLOCK)
        return hash_block(data, bytes);
    int64_t total = (int64_t)((bytes + BLOCK - 1) / BLOCK);
    Blocks blocks = {data, bytes, PyMem_RawMalloc((size_t)total * sizeof(uint64_t))};
    uint64_t result = FACTOR;
    if (!blocks.hashes) { /* one after the other then */
        for (int64_t i = 0; i < total; i++) {
            size_t start = (size_t)i * BLOCK, left = bytes - start;
            result = mix(result, hash_block((const char *)data + start, left < BLOCK ? left : BLOCK));
        }
        return result;
    }
    torch->parallel_for(0, total, 8, hash_range, &blocks);
    for (int64_t i = 0; i < total; i++)
        result = mix(result, blocks.hashes[i]);
    PyMem_RawFree(blocks.hashes);
    return result;
}

PyObject *argand_fingerprint(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    const TorchLink *torch = argand_torch_link();
    if (!torch)
        return NULL;
    if (count != 2 || !PyObject_TypeCheck(args[0], torch->tensor_type)) {
        PyErr_SetString(PyExc_TypeError, "fingerprint takes a tensor and its size in bytes");
        return NULL;
    }
    void *data = NULL;
    Py_ssize_t bytes = PyLong_AsSsize_t(args[1]);
    if (bytes < 0 || torch->get_data_ptr(argand_handle(args[0]), &data)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "fingerprint: a tensor without memory");
        return NULL;
    }
    uint64_t result;
    Py_BEGIN_ALLOW_THREADS
    result = argand_hash_bytes(torch, data, (size_t)bytes);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLongLong(result);
}
