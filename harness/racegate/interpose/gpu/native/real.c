/* The real CUDA runtime, found by its path; and marks: events on it that are nobody's but ours. What calls it here goes
   past what stands in front of it, so nothing is told of. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "real.h"

enum { DISABLE_TIMING = 2 }; /* cudaEventDisableTiming */
typedef void *handle;        /* of a stream, of an event */

void *fw_real(const char *name) {
    static void *runtime;
    if (!runtime) {
        const char *path = getenv("RACEGATE_CUDART");
        runtime = dlopen(path ? path : "", RTLD_NOW | RTLD_LOCAL);
        if (!path || !runtime) { fprintf(stderr, "racegate: no CUDA runtime at %s: %s\n", path ? path : "(RACEGATE_CUDART is not set)", dlerror()); _exit(2); }
    }
    void *function = dlsym(runtime, name);
    if (!function) { fprintf(stderr, "racegate: the CUDA runtime has no %s\n", name); _exit(3); }
    return function;
}
/* Before any other library asks for a runtime by its name: so that all get this one. */
__attribute__((constructor)) static void begin(void) { fw_real("cudaGetDevice"); }

static handle handle_of(uint64_t number) { return (handle)(uintptr_t)number; }
/* A function of the runtime that takes one handle and says whether it failed. */
static int ask(const char *name, uint64_t number) { return ((int (*)(handle))fw_real(name))(handle_of(number)); }

/* 0: none could be made */
uint64_t fw_mark(uint64_t stream) {
    int (*create)(handle *, unsigned) = (int (*)(handle *, unsigned))fw_real("cudaEventCreateWithFlags");
    int (*record)(handle, handle) = (int (*)(handle, handle))fw_real("cudaEventRecord");
    handle event = NULL;
    if (create(&event, DISABLE_TIMING)) return 0;
    return record(event, handle_of(stream)) ? 0 : (uint64_t)(uintptr_t)event;
}
int fw_mark_done(uint64_t mark) { return !ask("cudaEventQuery", mark); }
int fw_mark_wait(uint64_t mark) { return ask("cudaEventSynchronize", mark); }
int fw_stream_wait(uint64_t stream) { return ask("cudaStreamSynchronize", stream); }
