// Memory whose contents must not change without our knowing: weights that were packed.
#ifndef ARGAND_WATCH_H
#define ARGAND_WATCH_H
#include "launch.h"

typedef struct Watch Watch;

Watch *argand_watch_new(Py_ssize_t count);
void argand_watch_free(Watch *watch);

// Whether any piece of memory has other contents, or lies elsewhere, than when this was last asked and said so (at first: yes).
// `frozen`: the user's word that contents stay; only places are looked at. Needs no GIL; one thread at a time.
int argand_watch_changed(Watch *watch, const TorchLink *torch, void *const *data, const int64_t *bytes, int frozen);

// Whether nothing was written since it was last asked: what was made of the contents since then is made of those it knows.
int argand_watch_stayed(const Watch *watch, const TorchLink *torch);

uint64_t argand_hash_bytes(const TorchLink *torch, const void *data, size_t bytes);

#endif
