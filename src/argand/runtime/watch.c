// argand.runtime._native, watched memory: has anything been written into these weights since they were packed?
//
// Torch's version counters miss writes through .data, numpy and DLPack, and a hash of all contents reads them all at each
// call (decision 0022). So the kernel is asked: pages are write-protected through userfaultfd in its asynchronous mode
// (Linux 6.7), in which a write is let through and noted, and the ioctl PAGEMAP_SCAN tells which pages were written. No signal handler,
// no thread, no system call that fails on protected memory. Bytes on pages that are not wholly ours are hashed at each call. A
// written page means: hash everything, compare, protect again; so a stray write costs time, never a wrong answer.
//
// A page has one note for all who watch it: whoever finds it written and protects it anew tells the others (`doubted`).
//
// Not so where pages are shared with files or other processes (their writes are not noted here), nor on older kernels: contents
// are hashed at each call there. After a fork the child starts anew: descriptors and protection are its parent's.
#define _GNU_SOURCE
#include "watch.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { PAGE = 4096, LEAST_TRACKED = 4 * PAGE };

#ifdef __linux__
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// From the kernel's headers, which may be older here than the kernel.
typedef struct {
    uint64_t api, features, ioctls;
} UffdApi;
typedef struct {
    uint64_t start, length, mode, ioctls;
} UffdRegister;
typedef struct {
    uint64_t start, length, mode;
} UffdProtect;
typedef struct {
    uint64_t start, end, categories;
} PageRegion;
typedef struct {
    uint64_t size, flags, start, end, walk_end, regions, n_regions, most_pages;
    uint64_t inverted, all_of, any_of, returned;
} PageScan;

#define UFFD_USER_MODE_ONLY 1
#define UFFD_API 0xAAull
#define UFFD_WP_UNPOPULATED (1ull << 13)
#define UFFD_WP_ASYNC (1ull << 15)
#define UFFD_IOCTL_API _IOWR(0xAA, 0x3F, UffdApi)
#define UFFD_IOCTL_REGISTER _IOWR(0xAA, 0x00, UffdRegister)
#define UFFD_IOCTL_PROTECT _IOWR(0xAA, 0x06, UffdProtect)
#define UFFD_REGISTER_WRITES 2
#define PAGES_SCAN _IOWR('f', 16, PageScan)
enum { PAGE_WRITTEN = 1 << 1, PAGE_OF_FILE = 1 << 2, PAGE_PRESENT = 1 << 3 };

static int faults = -1, pages = -1; /* descriptors; -2: this kernel cannot */

static int faults_open(void) { return faults >= 0; }

static void close_descriptors(void) {
    if (faults >= 0)
        close(faults);
    if (pages >= 0)
        close(pages);
    faults = pages = -1;
}

// With the lock held, as all that follows.
static int open_descriptors(void) {
    if (faults == -1) {
        UffdApi api = {UFFD_API, UFFD_WP_ASYNC | UFFD_WP_UNPOPULATED, 0};
        faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
        pages = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        PageScan probe = {.size = sizeof probe, .all_of = PAGE_WRITTEN};
        int works = faults >= 0 && pages >= 0 && getpagesize() == PAGE && !ioctl(faults, UFFD_IOCTL_API, &api)
                    && (api.features & UFFD_WP_ASYNC) && ioctl(pages, PAGES_SCAN, &probe) >= 0;
        if (!works) {
            close_descriptors();
            faults = -2;
        }
    }
    return faults >= 0;
}

// Whether some page of the range was written, or nobody protected it.
static int any_written(uintptr_t start, uintptr_t end) {
    PageRegion found;
    PageScan scan = {.size = sizeof scan, .start = start, .end = end, .regions = (uintptr_t)&found, .n_regions = 1,
                     .most_pages = 1, .all_of = PAGE_WRITTEN, .returned = PAGE_WRITTEN};
    return ioctl(pages, PAGES_SCAN, &scan);
}

// Whether all pages are memory of this process alone. Only a page that is there tells: each is read first.
static int all_private(uintptr_t start, uintptr_t end) {
    for (uintptr_t page = start; page < end; page += PAGE)
        (void)*(volatile const char *)page;
    PageRegion found;
    PageScan scan = {.size = sizeof scan, .start = start, .end = end, .regions = (uintptr_t)&found, .n_regions = 1,
                     .most_pages = 1, .inverted = PAGE_PRESENT, .any_of = PAGE_OF_FILE | PAGE_PRESENT,
                     .returned = PAGE_OF_FILE | PAGE_PRESENT};
    return ioctl(pages, PAGES_SCAN, &scan) == 0;
}

// The stretches of pages that were written, or that nobody protected; how many, or -1 where there are more than `most`. (The
// kernel is several times faster at this question than at any other.)
static int written_stretches(uintptr_t start, uintptr_t end, PageRegion *found, Py_ssize_t most) {
    PageScan scan = {.size = sizeof scan, .start = start, .end = end, .regions = (uintptr_t)found, .n_regions = (uint64_t)most,
                     .all_of = PAGE_WRITTEN, .returned = PAGE_WRITTEN};
    int count = ioctl(pages, PAGES_SCAN, &scan);
    return scan.walk_end == end ? count : -1;
}

// Note writes into these pages from now on.
static int protect(uintptr_t start, uintptr_t end) {
    UffdRegister range = {start, end - start, UFFD_REGISTER_WRITES, 0};
    UffdProtect all = {start, end - start, 1};
    return ioctl(faults, UFFD_IOCTL_REGISTER, &range) || ioctl(faults, UFFD_IOCTL_PROTECT, &all) ? -1 : 0;
}
#else
static int faults_open(void) { return 0; }
static void close_descriptors(void) {}
static int open_descriptors(void) { return 0; }
static int any_written(uintptr_t start, uintptr_t end) { return -1; }
static int all_private(uintptr_t start, uintptr_t end) { return 0; }
static int protect(uintptr_t start, uintptr_t end) { return -1; }
typedef struct {
    uint64_t start, end, categories;
} PageRegion;
static int written_stretches(uintptr_t start, uintptr_t end, PageRegion *found, Py_ssize_t most) { return -1; }
#endif

static atomic_int forks;
static pthread_once_t registered = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the descriptors and of all tracked pieces */

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }

static void in_child(void) {
    atomic_fetch_add(&forks, 1);
    close_descriptors();
    pthread_mutex_unlock(&lock);
}

static void register_fork(void) { pthread_atfork(before_fork, in_parent, in_child); }

int argand_fork_count(void) {
    pthread_once(&registered, register_fork);
    return atomic_load(&forks);
}

typedef struct {
    const char *data;
    size_t bytes;
    uint64_t hash, edges; /* of all bytes; of those on pages that others use too */
    char tracked;
    char doubted; /* another watch found a page of ours written, and protected it again */
    char calm;    /* seen in this call: its pages were not written */
} Piece;

struct Watch {
    Watch *before, *after; /* the list of all */
    Py_ssize_t count;
    int forks;
    char filled;
    char sorted;          /* `order` is by address */
    PageRegion *found;    /* room for what a scan finds */
    Piece **order;
    Piece pieces[];
};

static Watch *all;

static size_t room_for(Py_ssize_t count) { return 4 * (size_t)count + 64; }

Watch *argand_watch_new(Py_ssize_t count) {
    Watch *watch = PyMem_RawCalloc(1, sizeof *watch + count * sizeof *watch->pieces);
    if (!watch) {
        PyErr_NoMemory();
        return NULL;
    }
    watch->count = count;
    watch->forks = argand_fork_count();
    watch->order = PyMem_RawCalloc((size_t)count + 1, sizeof *watch->order);
    watch->found = PyMem_RawCalloc(room_for(count), sizeof *watch->found);
    if (!watch->order || !watch->found) {
        PyMem_RawFree(watch->order);
        PyMem_RawFree(watch->found);
        PyMem_RawFree(watch);
        PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        watch->order[i] = &watch->pieces[i];
    pthread_mutex_lock(&lock);
    watch->after = all;
    if (all)
        all->before = watch;
    all = watch;
    pthread_mutex_unlock(&lock);
    return watch;
}

void argand_watch_free(Watch *watch) {
    if (!watch)
        return;
    pthread_mutex_lock(&lock);
    if (watch->before)
        watch->before->after = watch->after;
    else
        all = watch->after;
    if (watch->after)
        watch->after->before = watch->before;
    pthread_mutex_unlock(&lock);
    PyMem_RawFree(watch->order);
    PyMem_RawFree(watch->found);
    PyMem_RawFree(watch);
}

// The pages that are wholly inside.
static uintptr_t first_page(const Piece *piece) { return ((uintptr_t)piece->data + PAGE - 1) & ~(uintptr_t)(PAGE - 1); }
static uintptr_t past_pages(const Piece *piece) {
    return ((uintptr_t)piece->data + piece->bytes) & ~(uintptr_t)(PAGE - 1);
}

static uint64_t hash_edges(const TorchLink *torch, const Piece *piece) {
    size_t head = first_page(piece) - (uintptr_t)piece->data;
    const char *tail = (const char *)past_pages(piece);
    uint64_t hash = argand_hash_bytes(torch, piece->data, head);
    return hash * 31 + argand_hash_bytes(torch, tail, (size_t)(piece->data + piece->bytes - tail));
}

static void tell_others(const Piece *piece) {
    for (Watch *watch = all; watch; watch = watch->after)
        for (Py_ssize_t i = 0; i < watch->count; i++) {
            Piece *other = &watch->pieces[i];
            if (other != piece && other->tracked && first_page(other) < past_pages(piece)
                && first_page(piece) < past_pages(other))
                other->doubted = 1;
        }
}

// Whether the pages of a piece are as they were; if not, or if nobody watched them, they are protected from now on.
static int pages_unwritten(Piece *piece) {
    pthread_mutex_lock(&lock);
    uintptr_t start = first_page(piece), end = past_pages(piece);
    int unwritten = piece->tracked && !piece->doubted;
    piece->doubted = 0;
    if (!open_descriptors())
        unwritten = piece->tracked = 0;
    else if (!unwritten || any_written(start, end)) {
        unwritten = 0;
        piece->tracked = all_private(start, end);
        if (piece->tracked && any_written(start, end)) {
            tell_others(piece);
            piece->tracked = !protect(start, end);
        }
    }
    pthread_mutex_unlock(&lock);
    return unwritten;
}

static int by_address(const void *left, const void *right) {
    const Piece *a = *(Piece *const *)left, *b = *(Piece *const *)right;
    return (a->data > b->data) - (a->data < b->data);
}

// One question to the kernel for all pieces that lie near each other, in place of one for each.
static void find_calm(Watch *watch) {
    enum { NEAR = 1 << 22 };
    if (!watch->sorted)
        qsort(watch->order, (size_t)watch->count, sizeof *watch->order, by_address);
    watch->sorted = 1;
    pthread_mutex_lock(&lock);
    for (Py_ssize_t i = 0, next; i < watch->count && faults_open(); i = next) {
        next = i + 1;
        if (!watch->order[i]->tracked)
            continue;
        uintptr_t start = first_page(watch->order[i]), end = past_pages(watch->order[i]);
        for (; next < watch->count; next++) {
            const Piece *piece = watch->order[next];
            if (piece->tracked && first_page(piece) > end + NEAR)
                break;
            if (piece->tracked && past_pages(piece) > end)
                end = past_pages(piece);
        }
        int count = written_stretches(start, end, watch->found, (Py_ssize_t)room_for(watch->count));
        const PageRegion *region = watch->found, *last = region + (count > 0 ? count : 0);
        for (Py_ssize_t k = i; k < next && count >= 0; k++) {
            Piece *piece = watch->order[k];
            while (region < last && region->end <= first_page(piece))
                region++;
            piece->calm = piece->tracked && !piece->doubted && (region == last || region->start >= past_pages(piece));
        }
    }
    pthread_mutex_unlock(&lock);
}

// Protected first, hashed then: a write in between is noted, and found at the next call.
static int piece_changed(const TorchLink *torch, Piece *piece) {
    int large = piece->bytes >= LEAST_TRACKED;
    if (large && (piece->calm || pages_unwritten(piece)) && hash_edges(torch, piece) == piece->edges)
        return 0;
    uint64_t before = piece->hash;
    piece->hash = argand_hash_bytes(torch, piece->data, piece->bytes);
    piece->edges = piece->tracked ? hash_edges(torch, piece) : 0;
    return piece->hash != before;
}

int argand_watch_changed(Watch *watch, const TorchLink *torch, void *const *data, const int64_t *bytes, int frozen) {
    int changed = !watch->filled, forked = watch->forks != argand_fork_count();
    for (Py_ssize_t i = 0; i < watch->count; i++)
        watch->pieces[i].calm = 0;
    int placed = watch->filled && !forked;
    for (Py_ssize_t i = 0; placed && i < watch->count; i++)
        placed = watch->pieces[i].data == data[i];
    if (placed && !frozen)
        find_calm(watch);
    for (Py_ssize_t i = 0; i < watch->count; i++) {
        Piece *piece = &watch->pieces[i];
        int moved = !watch->filled || piece->data != data[i] || piece->bytes != (size_t)bytes[i];
        if (moved || forked) {
            pthread_mutex_lock(&lock);
            piece->data = data[i];
            piece->bytes = (size_t)bytes[i];
            piece->tracked = 0;
            watch->sorted = 0;
            pthread_mutex_unlock(&lock);
        }
        changed |= moved;
        if (!frozen)
            changed |= piece_changed(torch, piece);
    }
    watch->filled = 1;
    watch->forks = argand_fork_count();
    return changed;
}
