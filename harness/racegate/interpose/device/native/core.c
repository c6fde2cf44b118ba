/* The log of calls, the callback into Python, and what is remembered of addresses and kernels. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "virtual.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int counts_forks;
static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { vg_news[3] += (uint64_t)counts_forks; pthread_mutex_unlock(&lock); }
static void in_child(void) {
    if (counts_forks) vg_news[2] = vg_news[0] = 1;
    pthread_mutex_unlock(&lock);
}
__attribute__((constructor)) static void start(void) { pthread_atfork(before_fork, after_fork, in_child); }
void vg_watch_forks(void) { counts_forks = 1; vg_news[2] = vg_news[3] = 0; }
static struct log_entry *entries;
static uint64_t entry_count, entry_capacity, entries_told;
static callback_t callback;
static void (*on_told)(uint64_t);
/* Set when there is something that Python has not read: anything; touches of pages; that this process was forked by the
   program. The last counts forks. */
volatile uint64_t vg_news[4];

void vg_set_callback(callback_t function) { callback = function; }
void vg_when_told(void (*told)(uint64_t count)) { on_told = told; }
volatile uint64_t *vg_news_address(void) { return vg_news; }

static void *checked(void *memory) {
    if (!memory) { fputs("racegate: the virtual CUDA runtime is out of memory\n", stderr); _exit(3); }
    return memory;
}

/* Of the calling thread; never given to another, as pthread_self is. Odd if autograd started the thread, by its name. */
uint64_t vg_thread(void) {
    static __thread uint64_t own;
    static uint64_t count;
    if (!own) {
        char name[16] = "";
        prctl(PR_GET_NAME, name);
        own = 2 * __sync_add_and_fetch(&count, 1) | !strncmp(name, "pt_autograd", 11);
    }
    return own;
}

void vg_log(enum log_kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    pthread_mutex_lock(&lock);
    if (entry_count == entry_capacity) {
        entry_capacity = entry_capacity ? 2 * entry_capacity : 1024;
        entries = checked(realloc(entries, entry_capacity * sizeof *entries));
    }
    entries[entry_count++] = (struct log_entry){kind, vg_thread(), a, b, c, d};
    vg_news[0] = 1;
    pthread_mutex_unlock(&lock);
}

/* How many entries there ever were. */
uint64_t vg_logged(void) {
    pthread_mutex_lock(&lock);
    uint64_t count = entries_told + entry_count;
    pthread_mutex_unlock(&lock);
    return count;
}

/* Moves up to `room` entries to `out`, oldest first; returns how many. Who asks has done with what it was told before. */
uint64_t vg_drain(struct log_entry *out, uint64_t room) {
    pthread_mutex_lock(&lock);
    if (on_told) on_told(entries_told);
    uint64_t count = entry_count < room ? entry_count : room;
    memcpy(out, entries, count * sizeof *out);
    memmove(entries, entries + count, (entry_count - count) * sizeof *entries);
    entry_count -= count;
    entries_told += count;
    pthread_mutex_unlock(&lock);
    return count;
}

uint64_t vg_call(enum call_kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d, const char *name) {
    return callback ? callback(kind, a, b, c, d, name ? name : "") : 0;
}

int vg_unmodelled(const char *name) {
    if (callback) vg_call(CALL_UNMODELLED, 0, 0, 0, 0, name); /* prints the program's stack and ends the process */
    fprintf(stderr, "racegate: not modelled: %s was called, and the virtual CUDA runtime has no answer\n", name);
    _exit(3);
}

int vg_unmodelled_for(const char *name, const void *caller) {
    char text[512];
    Dl_info library;
    const char *file = dladdr(caller, &library) ? library.dli_fname : NULL, *slash = file ? strrchr(file, '/') : NULL;
    snprintf(text, sizeof text, "%s, which %s calls", name, !file ? "the program" : slash ? slash + 1 : file);
    return vg_unmodelled(text);
}

/* ---- addresses: pinned host memory and device memory */
static __thread int current; /* GPU of this thread */
int vg_current_gpu(void) { return current; }
void vg_use_gpu(int gpu) { current = gpu; }
uint64_t vg_stream(uint64_t stream) { return stream < 2 && current ? DEFAULT_STREAM + (uint64_t)current : stream; }

struct span { char *base; size_t size; int kind, gpu; };
static struct span *spans;
static size_t span_count, span_capacity;

void vg_span_add(void *base, size_t size, int kind) {
    pthread_mutex_lock(&lock);
    if (span_count == span_capacity) {
        span_capacity = span_capacity ? 2 * span_capacity : 256;
        spans = checked(realloc(spans, span_capacity * sizeof *spans));
    }
    spans[span_count++] = (struct span){base, size, kind, vg_current_gpu()};
    pthread_mutex_unlock(&lock);
}

/* Forgets the span that starts at base; returns its size, 0 if there is none. */
size_t vg_span_remove(void *base) {
    size_t size = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < span_count; i++)
        if (spans[i].base == (char *)base) { size = spans[i].size; spans[i] = spans[--span_count]; break; }
    pthread_mutex_unlock(&lock);
    return size;
}

static struct span span_of(const void *address) {
    struct span found = {0};
    const char *p = address;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < span_count && !found.kind; i++)
        if (p >= spans[i].base && p < spans[i].base + spans[i].size) found = spans[i];
    pthread_mutex_unlock(&lock);
    return found;
}
int vg_memory_kind(const void *address) { return span_of(address).kind; }
int vg_memory_gpu(const void *address) { return span_of(address).gpu; }

/* ---- kernels: the name of a function that a library registered */
struct kernel { const void *function; const char *name; };
static struct kernel *kernels;
static size_t kernel_count, kernel_capacity;

static size_t slot_of(const struct kernel *table, size_t capacity, const void *function) {
    size_t slot = ((uintptr_t)function >> 4) * 0x9E3779B97F4A7C15ull & (capacity - 1);
    while (table[slot].function && table[slot].function != function) slot = (slot + 1) & (capacity - 1);
    return slot;
}

static void grow_kernels(void) {
    size_t capacity = kernel_capacity ? 2 * kernel_capacity : 1 << 16;
    struct kernel *table = checked(calloc(capacity, sizeof *table));
    for (size_t i = 0; i < kernel_capacity; i++)
        if (kernels[i].function) table[slot_of(table, capacity, kernels[i].function)] = kernels[i];
    free(kernels);
    kernels = table;
    kernel_capacity = capacity;
}

void vg_kernel_add(const void *function, const char *name) {
    pthread_mutex_lock(&lock);
    if (2 * (kernel_count + 1) > kernel_capacity) grow_kernels();
    size_t slot = slot_of(kernels, kernel_capacity, function);
    kernel_count += !kernels[slot].function;
    kernels[slot] = (struct kernel){function, name};
    pthread_mutex_unlock(&lock);
}

const char *vg_kernel_name(const void *function) {
    const char *name = NULL;
    pthread_mutex_lock(&lock);
    if (kernel_capacity) name = kernels[slot_of(kernels, kernel_capacity, function)].name;
    pthread_mutex_unlock(&lock);
    return name ? name : "a kernel that no library registered";
}
