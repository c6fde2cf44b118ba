/* Stands in front of the real CUDA runtime: what orders or touches memory is told to Python as the virtual runtime tells
   it, and then done by the real one. What is not here and only asks goes past; the rest are weak functions of stubs.c. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cuda_runtime_api.h>
#include "virtual.h"
#include "latches.h"
#include "real.h"

#define N(x) ((uint64_t)(uintptr_t)(x))
enum { CALL_ISSUED = 12 }; /* after the real call */

#define REAL(name) static __typeof__(&name) real; if (!real) *(void **)&real = fw_real(#name)

/* ---- whether this thread is inside an operator that Python has told of: its kernels and copies are the operator's */
static __thread int inside;
void fw_inside(int change) { inside += change; }
/* How many kernels, copies and settings this thread has launched. */
static __thread uint64_t launches;
uint64_t fw_launches(void) { return launches; }

/* ---- what is remembered of events, streams, graphs and their instances, by handle */
struct entry { uint64_t key, version, done, capture; };
static struct entry *entries;
static size_t entry_count, entry_capacity;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t graph_numbers;
static volatile int capturing;

static struct entry *slot_in(struct entry *table, size_t capacity, uint64_t key) {
    size_t slot = (key >> 4) * 0x9E3779B97F4A7C15ull & (capacity - 1);
    while (table[slot].key && table[slot].key != key) slot = (slot + 1) & (capacity - 1);
    return &table[slot];
}
static void grow(void) {
    size_t capacity = entry_capacity ? 2 * entry_capacity : 1024;
    struct entry *table = calloc(capacity, sizeof *table);
    if (!table) { fputs("racegate: out of memory\n", stderr); _exit(3); }
    for (size_t i = 0; i < entry_capacity; i++)
        if (entries[i].key) *slot_in(table, capacity, entries[i].key) = entries[i];
    free(entries);
    entries = table;
    entry_capacity = capacity;
}
/* With the lock held; the pointer is good until the lock is given back. */
static struct entry *entry_of(uint64_t key) {
    if (2 * (entry_count + 1) > entry_capacity) grow();
    struct entry *entry = slot_in(entries, entry_capacity, key + 8); /* the default stream's handle is 0 */
    if (!entry->key) { entry->key = key + 8; entry_count++; }
    return entry;
}
static void set_capture(uint64_t key, uint64_t capture) {
    pthread_mutex_lock(&lock);
    entry_of(key)->capture = capture;
    pthread_mutex_unlock(&lock);
}
uint64_t vg_capture_of(uint64_t key) {
    if (!capturing) return 0;
    pthread_mutex_lock(&lock);
    uint64_t capture = entry_of(key)->capture;
    pthread_mutex_unlock(&lock);
    return capture;
}
static uint64_t graph_of(uint64_t key) {
    pthread_mutex_lock(&lock);
    uint64_t capture = entry_of(key)->capture;
    pthread_mutex_unlock(&lock);
    return capture;
}

/* ---- memory */
static cudaError_t added(cudaError_t e, void **p, size_t n, enum log_kind kind) {
    if (e != cudaSuccess || !*p) return e;
    pthread_mutex_lock(&lock);
    entry_of(N(*p))->done = n; /* its size */
    pthread_mutex_unlock(&lock);
    vg_log(kind, N(*p), n, 0, 0);
    return e;
}
cudaError_t cudaMalloc(void **p, size_t n) { REAL(cudaMalloc); return added(real(p, n), p, n, LOG_MALLOC); }
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned f) { REAL(cudaHostAlloc); return added(real(p, n, f), p, n, LOG_HOST_ALLOC); }
cudaError_t cudaMallocHost(void **p, size_t n) { REAL(cudaMallocHost); return added(real(p, n), p, n, LOG_HOST_ALLOC); }
cudaError_t cudaHostRegister(void *p, size_t n, unsigned f) {
    REAL(cudaHostRegister);
    return added(real(p, n, f), &p, n, LOG_HOST_REGISTER);
}
/* All of these wait for the device, so no latch may stand. */
static void removed(void *p, enum log_kind kind) {
    if (!p) return;
    fw_open_all();
    pthread_mutex_lock(&lock);
    uint64_t size = entry_of(N(p))->done;
    pthread_mutex_unlock(&lock);
    vg_log(kind, N(p), size, 0, 0);
}
cudaError_t cudaFree(void *p) { REAL(cudaFree); removed(p, LOG_FREE); return real(p); }
cudaError_t cudaFreeHost(void *p) { REAL(cudaFreeHost); removed(p, LOG_HOST_FREE); return real(p); }
cudaError_t cudaHostUnregister(void *p) { REAL(cudaHostUnregister); removed(p, LOG_HOST_UNREGISTER); return real(p); }
void vg_release(void *p, size_t n) { (void)p; (void)n; }

/* ---- copies: told, made, and marked as issued if Python wants that */
static uint64_t told(uint64_t kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
    launches += kind == CALL_COPY || kind == CALL_SET;
    return vg_call((enum call_kind)kind, a, b, c, d, NULL);
}
#define FORWARD(tells, call)                                        \
    do {                                                            \
        uint64_t wanted = (tells);                                  \
        cudaError_t error = (call);                                 \
        if (wanted) told(CALL_ISSUED, wanted, (uint64_t)error, 0, 0); \
        return error;                                               \
    } while (0)
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, enum cudaMemcpyKind k) {
    REAL(cudaMemcpy);
    FORWARD(n ? told(CALL_COPY, N(d), N(s), n, 1ull << 63) : 0, real(d, s, n, k));
}
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind k, cudaStream_t st) {
    REAL(cudaMemcpyAsync);
    FORWARD(n ? told(CALL_COPY, N(d), N(s), n, N(st)) : 0, real(d, s, n, k, st));
}
cudaError_t cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, enum cudaMemcpyKind k,
                              cudaStream_t st) {
    REAL(cudaMemcpy2DAsync);
    uint64_t wanted = 0;
    for (size_t i = 0; w && i < h; i++) wanted |= told(CALL_COPY, N(d) + i * dp, N(s) + i * sp, w, N(st));
    FORWARD(wanted, real(d, dp, s, sp, w, h, k, st));
}
cudaError_t cudaMemset(void *d, int v, size_t n) {
    REAL(cudaMemset);
    FORWARD(n ? told(CALL_SET, N(d), (uint64_t)(v & 255), n, 0) : 0, real(d, v, n));
}
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t st) {
    REAL(cudaMemsetAsync);
    FORWARD(n ? told(CALL_SET, N(d), (uint64_t)(v & 255), n, N(st)) : 0, real(d, v, n, st));
}

/* ---- streams */
static cudaError_t created(cudaError_t e, cudaStream_t *s, unsigned flags) {
    if (e == cudaSuccess) { set_capture(N(*s), 0); vg_log(LOG_STREAM_CREATE, N(*s), flags, 0, 0); }
    return e;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned f, int p) {
    REAL(cudaStreamCreateWithPriority);
    return created(real(s, f, p), s, f);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned f) { REAL(cudaStreamCreateWithFlags); return created(real(s, f), s, f); }
cudaError_t cudaStreamCreate(cudaStream_t *s) { REAL(cudaStreamCreate); return created(real(s), s, 0); }
cudaError_t cudaStreamQuery(cudaStream_t s) {
    REAL(cudaStreamQuery);
    if (inside) return real(s);
    return told(CALL_STREAM_QUERY, N(s), 0, 0, 0) ? cudaErrorNotReady : real(s);
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    REAL(cudaStreamSynchronize);
    FORWARD(told(CALL_STREAM_SYNC, N(s), 0, 0, 0), real(s));
}
cudaError_t cudaDeviceSynchronize(void) {
    REAL(cudaDeviceSynchronize);
    FORWARD(told(CALL_DEVICE_SYNC, 0, 0, 0, 0), real());
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned f) {
    REAL(cudaStreamWaitEvent);
    pthread_mutex_lock(&lock);
    uint64_t capture = entry_of(N(e))->capture, version = entry_of(N(e))->version;
    if (capture) entry_of(N(s))->capture = capture;
    pthread_mutex_unlock(&lock);
    vg_log(LOG_STREAM_WAIT, N(s), N(e), version, capture);
    return real(s, e, f);
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *data) {
    REAL(cudaLaunchHostFunc);
    FORWARD(told(CALL_HOST_FUNCTION, N(s), 0, 0, 0), real(s, f, data));
}

/* ---- events: an allocator's question is answered by what a host wait has settled, so that a run does not depend on
   how fast the device was; the program's own questions are answered by Python */
static void recorded(cudaEvent_t e, cudaStream_t s) {
    pthread_mutex_lock(&lock);
    uint64_t capture = capturing ? entry_of(N(s))->capture : 0;
    struct entry *event = entry_of(N(e));
    uint64_t version = ++event->version;
    event->capture = capture;
    pthread_mutex_unlock(&lock);
    vg_log(LOG_EVENT_RECORD, N(e), N(s), version, capture);
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { REAL(cudaEventRecord); recorded(e, s); return real(e, s); }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) {
    REAL(cudaEventRecordWithFlags);
    recorded(e, s);
    return real(e, s, f);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    REAL(cudaEventDestroy);
    pthread_mutex_lock(&lock);
    struct entry *event = entry_of(N(e));
    event->done = event->version;
    event->capture = 0;
    pthread_mutex_unlock(&lock);
    vg_log(LOG_EVENT_DESTROY, N(e), 0, 0, 0);
    return real(e);
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    REAL(cudaEventSynchronize);
    FORWARD(told(CALL_EVENT_SYNC, N(e), 0, 0, 0), real(e));
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    pthread_mutex_lock(&lock);
    struct entry event = *entry_of(N(e));
    pthread_mutex_unlock(&lock);
    if (event.done < event.version) return cudaErrorNotReady;
    if (event.version) vg_log(LOG_QUERY_TRUE, N(e), event.version, 0, 0);
    return cudaSuccess;
}
void vg_event_done(uint64_t key, uint64_t version) {
    pthread_mutex_lock(&lock);
    entry_of(key)->done = version;
    pthread_mutex_unlock(&lock);
}
uint64_t vg_event_version(uint64_t key) {
    pthread_mutex_lock(&lock);
    uint64_t version = entry_of(key)->version;
    pthread_mutex_unlock(&lock);
    return version;
}

/* ---- graphs */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode m) {
    REAL(cudaStreamBeginCapture);
    pthread_mutex_lock(&lock);
    uint64_t number = entry_of(N(s))->capture = ++graph_numbers;
    capturing++;
    pthread_mutex_unlock(&lock);
    vg_log(LOG_CAPTURE_BEGIN, N(s), number, 0, 0);
    return real(s, m);
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
    REAL(cudaStreamEndCapture);
    cudaError_t error = real(s, graph);
    pthread_mutex_lock(&lock);
    uint64_t number = entry_of(N(s))->capture;
    for (size_t i = 0; i < entry_capacity; i++)
        if (entries[i].capture == number && !entries[i].version) entries[i].capture = 0;
    capturing--;
    if (error == cudaSuccess && *graph) entry_of(N(*graph))->capture = number;
    pthread_mutex_unlock(&lock);
    vg_log(LOG_CAPTURE_END, N(s), number, 0, 0);
    return error;
}
static cudaError_t instantiated(cudaError_t error, cudaGraphExec_t *e, cudaGraph_t g) {
    if (error == cudaSuccess) set_capture(N(*e), graph_of(N(g)));
    return error;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long f) {
    REAL(cudaGraphInstantiateWithFlags);
    return instantiated(real(e, g, f), e, g);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long f) {
    REAL(cudaGraphInstantiate);
    return instantiated(real(e, g, f), e, g);
}
cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *e, cudaGraph_t g, cudaGraphInstantiateParams *p) {
    REAL(cudaGraphInstantiateWithParams);
    return instantiated(real(e, g, p), e, g);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
    REAL(cudaGraphLaunch);
    uint64_t number = graph_of(N(e));
    if (!number) vg_unmodelled("cudaGraphLaunch of a graph that was not captured");
    FORWARD(told(CALL_GRAPH_LAUNCH, number, N(s), 0, 0), real(e, s));
}

/* ---- kernels: inside an operator they are the operator's; else nobody knows what they touch */
static void launched(const void *f, cudaStream_t s) {
    const char *name = "a kernel without a name";
    launches++;
    if (inside) return;
    REAL(cudaFuncGetName);
    if (real(&name, f) != cudaSuccess || !name) name = "a kernel without a name";
    if (vg_call(CALL_LAUNCH, N(f), N(s), 0, 0, name)) vg_unmodelled(name);
}
cudaError_t cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **a, size_t n, cudaStream_t s) {
    REAL(cudaLaunchKernel);
    launched(f, s);
    return real(f, g, b, a, n, s);
}
cudaError_t cudaLaunchCooperativeKernel(const void *f, dim3 g, dim3 b, void **a, size_t n, cudaStream_t s) {
    REAL(cudaLaunchCooperativeKernel);
    launched(f, s);
    return real(f, g, b, a, n, s);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **a) {
    REAL(cudaLaunchKernelExC);
    launched(f, c->stream);
    return real(c, f, a);
}
#if CUDART_VERSION >= 13000
cudaError_t __cudaLaunchKernel(void *k, dim3 g, dim3 b, void **a, size_t n, cudaStream_t s) {
    static cudaError_t (*real)(void *, dim3, dim3, void **, size_t, cudaStream_t);
    if (!real) *(void **)&real = fw_real("__cudaLaunchKernel");
    launched(k, s);
    return real(k, g, b, a, n, s);
}
#endif
