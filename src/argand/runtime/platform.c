// argand.runtime._native, the operating system: memory, clocks, loaded libraries, stacks, signals, forks.
//
// Three systems in one file, question by question, so that a port is read from top to bottom. What a system
// lacks has the answer "unknown" or does nothing; every caller has to live with that.
#define _GNU_SOURCE
#include "platform.h"
#include <stdlib.h>

#ifdef _WIN32
#include <windows.h>
#include <malloc.h>
#include <stdio.h>
#else
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#endif

// ---- memory ----

#ifdef _WIN32
char *argand_map(size_t bytes) { return VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE); }
void argand_unmap(char *memory, size_t bytes) { VirtualFree(memory, 0, MEM_RELEASE); }
void *argand_allocate_aligned(size_t alignment, size_t bytes) { return _aligned_malloc(bytes, alignment); }
void argand_free_aligned(void *memory) { _aligned_free(memory); }
#else
char *argand_map(size_t bytes) {
    char *start = mmap(NULL, bytes + ARGAND_HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)start % ARGAND_HUGE_PAGE;
    if (before)
        munmap(start, before);
    munmap(start + before + bytes, ARGAND_HUGE_PAGE - before);
    argand_advise(start + before, bytes);
    return start + before;
}

void argand_unmap(char *memory, size_t bytes) { munmap(memory, bytes); }

void *argand_allocate_aligned(size_t alignment, size_t bytes) { return aligned_alloc(alignment, bytes); }
void argand_free_aligned(void *memory) { free(memory); }
#endif

void argand_advise(void *memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
    uintptr_t first = ((uintptr_t)memory + ARGAND_HUGE_PAGE - 1) / ARGAND_HUGE_PAGE * ARGAND_HUGE_PAGE;
    uintptr_t last = ((uintptr_t)memory + bytes) / ARGAND_HUGE_PAGE * ARGAND_HUGE_PAGE;
    if (last > first)
        madvise((void *)first, last - first, MADV_HUGEPAGE);
#endif
}

// ---- time ----

#ifdef _WIN32
int64_t argand_nanoseconds(void) {
    LARGE_INTEGER count, frequency;
    QueryPerformanceCounter(&count);
    QueryPerformanceFrequency(&frequency);
    int64_t whole = count.QuadPart / frequency.QuadPart, rest = count.QuadPart % frequency.QuadPart;
    return whole * 1000000000LL + rest * 1000000000LL / frequency.QuadPart;
}

int64_t argand_coarse_seconds(void) { return (int64_t)(GetTickCount64() / 1000); }
#else
int64_t argand_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int64_t argand_coarse_seconds(void) {
    struct timespec now;
#ifdef CLOCK_MONOTONIC_COARSE
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return now.tv_sec;
}
#endif

// ---- loaded libraries ----

#ifdef _WIN32
void *argand_loaded_symbol(const char *library, const char *symbol) {
    char name[64];
    snprintf(name, sizeof name, "%s.dll", library);
    HMODULE loaded = GetModuleHandleA(name);
    return loaded ? (void *)(uintptr_t)GetProcAddress(loaded, symbol) : NULL;
}
#else
void *argand_loaded_symbol(const char *library, const char *symbol) {
    char name[64];
#ifdef __APPLE__
    snprintf(name, sizeof name, "@rpath/lib%s.dylib", library);
#else
    snprintf(name, sizeof name, "lib%s.so", library);
#endif
    void *loaded = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    return loaded ? dlsym(loaded, symbol) : NULL;
}
#endif

// ---- stacks ----

int argand_stack_bounds(char **lowest, char **highest) {
#if defined(_WIN32)
    ULONG_PTR low, high;
    GetCurrentThreadStackLimits(&low, &high);
    *lowest = (char *)low;
    *highest = (char *)high;
    return 1;
#elif defined(__APPLE__)
    *highest = pthread_get_stackaddr_np(pthread_self());
    *lowest = *highest - pthread_get_stacksize_np(pthread_self());
    return 1;
#else
    pthread_attr_t attributes;
    void *address = NULL;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes))
        return 0;
    int known = !pthread_attr_getstack(&attributes, &address, &size);
    pthread_attr_destroy(&attributes);
    *lowest = address;
    *highest = *lowest + size;
    return known;
#endif
}

// ---- signals ----

#ifdef _WIN32
ArgandAction *argand_action_of(int number) { return NULL; }
void argand_put_back_action(int number, ArgandAction *action, int wanted) {}
#else
struct ArgandAction {
    struct sigaction action;
};

ArgandAction *argand_action_of(int number) {
    ArgandAction *found = malloc(sizeof *found);
    if (found && sigaction(number, NULL, &found->action)) {
        free(found);
        return NULL;
    }
    return found;
}

void argand_put_back_action(int number, ArgandAction *action, int wanted) {
    if (action && wanted)
        sigaction(number, &action->action, NULL);
    free(action);
}
#endif

// ---- forks ----

#ifdef _WIN32
static SRWLOCK lock = SRWLOCK_INIT;

void argand_lock_pages(void) { AcquireSRWLockExclusive(&lock); }
void argand_unlock_pages(void) { ReleaseSRWLockExclusive(&lock); }
int argand_fork_count(void) { return 0; }
#else
static atomic_int forks;
static pthread_once_t registered = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void argand_lock_pages(void) { pthread_mutex_lock(&lock); }
void argand_unlock_pages(void) { pthread_mutex_unlock(&lock); }

static void in_child(void) {
    atomic_fetch_add(&forks, 1);
    argand_pages_close();
    argand_unlock_pages();
}

static void register_fork(void) { pthread_atfork(argand_lock_pages, argand_unlock_pages, in_child); }

int argand_fork_count(void) {
    pthread_once(&registered, register_fork);
    return atomic_load(&forks);
}
#endif
