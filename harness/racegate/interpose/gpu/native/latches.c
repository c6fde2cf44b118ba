/* Latches hold a stream back until the host opens them. A thread of its own opens those that stand too long: a host that
   is blocked cannot, and what blocks it may be unknown to the program. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <cuda_runtime_api.h>
#include "latches.h"
#include "real.h"

enum { LATCHES_MAX = 1 << 16, CLOSED = 0, OPEN = 1, EXPIRED = 2, AT_LEAST = 0 };
typedef int (*wait_value_t)(void *stream, unsigned long long address, uint32_t value, unsigned flags);
static volatile uint32_t *words;
static double closed_s[LATCHES_MAX];
static volatile int count;
static double limit_s = 10;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static void set(int latch, uint32_t value) { __sync_val_compare_and_swap(&words[latch], CLOSED, value); }

static void *watch(void *none) {
    (void)none;
    for (;;) {
        usleep(20000);
        for (int i = 0; i < count; i++)
            if (words[i] == CLOSED && now_s() - closed_s[i] > limit_s) set(i, EXPIRED);
    }
    return NULL;
}
/* seconds: how long a latch may stand */
void fw_limit(double seconds) { limit_s = seconds; }

static wait_value_t begin(void) {
    static wait_value_t wait_value;
    if (wait_value) return wait_value;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    cudaError_t (*allocate)(void **, size_t, unsigned) = (cudaError_t (*)(void **, size_t, unsigned))fw_real("cudaHostAlloc");
    void *memory = NULL;
    pthread_t thread;
    if (!driver || allocate(&memory, LATCHES_MAX * sizeof *words, cudaHostAllocPortable | cudaHostAllocMapped)) return NULL;
    words = memory;
    for (int i = 0; i < LATCHES_MAX; i++) words[i] = OPEN;
    if (pthread_create(&thread, NULL, watch, NULL)) return NULL;
    wait_value = (wait_value_t)dlsym(driver, "cuStreamWaitValue32_v2");
    return wait_value;
}
/* What is put on the stream from now on waits. Returns the latch, -1 if it cannot be. */
int fw_latch_put(uint64_t stream) {
    int (*set_device)(int) = (int (*)(int))fw_real("cudaSetDevice");
    pthread_mutex_lock(&lock);
    set_device(0); /* the driver wants the thread to have a context, which only the runtime gives by itself */
    wait_value_t wait_value = begin();
    int latch = wait_value && count < LATCHES_MAX ? count : -1;
    if (latch >= 0) {
        closed_s[latch] = now_s();
        words[latch] = CLOSED;
        count++;
        if (wait_value((void *)(uintptr_t)stream, (uintptr_t)&words[latch], OPEN, AT_LEAST)) { words[latch] = OPEN; latch = -1; }
    }
    pthread_mutex_unlock(&lock);
    return latch;
}
void fw_latch_open(int latch) { set(latch, OPEN); }
int fw_latch_expired(int latch) { return words[latch] == EXPIRED; }
void fw_open_all(void) { for (int i = 0; i < count; i++) set(i, OPEN); }
