/* The CUDA runtime on host memory: streams and events are handles, copies are decided by Python, kernels are refused.
   Every export of the real library that is not here is a weak function of stubs.c that ends the run with its name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cuda_runtime_api.h>
#include "virtual.h"

void vg_span_add(void *base, size_t size, int kind);
size_t vg_span_remove(void *base);
void vg_kernel_add(const void *function, const char *name);

#define N(x) ((uint64_t)(uintptr_t)(x))
#define OK return cudaSuccess
static __thread cudaError_t last_error = cudaSuccess;
static cudaError_t fail(cudaError_t error) { last_error = error; return error; }
/* 0 and 1: the legacy stream; 2: per thread; those of other GPUs than the first behind DEFAULT_STREAM */
static struct virtual_stream default_streams[3] = {{.id = 0}, {.id = 1}, {.id = 2}}, other_defaults[GPUS_MAX];
static struct virtual_stream *_Atomic streams; /* all that were created, newest first */

#define OWN(s) ((cudaStream_t)(uintptr_t)vg_stream(N(s)))
static struct virtual_stream *stream_of(cudaStream_t s) {
    uint64_t number = N(OWN(s));
    if (number - DEFAULT_STREAM < GPUS_MAX) return &other_defaults[number - DEFAULT_STREAM];
    return number < 3 ? &default_streams[number] : (struct virtual_stream *)s;
}

/* ---- the device: half of the memory that this host has, in whole GiB where it has two, so that it is the same in each run */
enum { HOST = 1, DEVICE = 2 };
static size_t memory_total;
static _Atomic size_t memory_used[GPUS_MAX];
static size_t limit_in(const char *path, size_t above) {
    FILE *file = fopen(path, "r");
    unsigned long long limit = 0;
    if (file && fscanf(file, "%llu", &limit) != 1) limit = 0; /* "max" */
    if (file) fclose(file);
    return limit && limit < above ? (size_t)limit : above;
}
__attribute__((constructor)) static void measure_host(void) {
    size_t host = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    host = limit_in("/sys/fs/cgroup/memory.max", host);
    host = limit_in("/sys/fs/cgroup/memory/memory.limit_in_bytes", host) / 2;
    memory_total = host >> 30 ? host >> 30 << 30 : host;
}
void vg_limit_memory(uint64_t bytes) { memory_total = (size_t)bytes; }
/* A context takes some of it for itself: two halves never fit. */
static size_t memory_usable(void) { return memory_total - (memory_total >> 7); }
/* Which GPU a program is told that it has, until Python says another. */
static struct { char name[256]; int major, minor, sms, sm_threads, sm_shared, shared_max, l2; } gpu = {
    "racegate virtual GPU", 9, 0, 132, 2048, 233472, 232448, 50 << 20
};
void vg_set_gpu(const char *name, const int *facts) {
    snprintf(gpu.name, sizeof gpu.name, "%s", name);
    gpu.major = facts[0]; gpu.minor = facts[1]; gpu.sms = facts[2]; gpu.sm_threads = facts[3];
    gpu.sm_shared = facts[4]; gpu.l2 = facts[5];
    gpu.shared_max = gpu.major < 8 ? gpu.sm_shared : gpu.sm_shared - 1024; /* the system keeps a KiB of each block */
}
int vg_take_memory(size_t n) {
    if (atomic_fetch_add(&memory_used[vg_current_gpu()], n) + n <= memory_usable()) return 1;
    memory_used[vg_current_gpu()] -= n;
    vg_log(LOG_FULL, n, 0, 0, 0);
    return 0;
}
void vg_give_memory(size_t n) { memory_used[vg_current_gpu()] -= n; }
static int gpu_count = 1;
void vg_set_gpus(int count) { gpu_count = count < GPUS_MAX ? count : GPUS_MAX; }
cudaError_t cudaGetDeviceCount(int *n) { *n = gpu_count; OK; }
cudaError_t cudaGetDevice(int *d) { *d = vg_current_gpu(); OK; }
cudaError_t cudaSetDevice(int d) {
    if (d >= 0 && d < gpu_count) { vg_use_gpu(d); OK; }
    vg_call(CALL_BAD_DEVICE, (uint64_t)d, 0, 0, 0, NULL);
    return fail(cudaErrorInvalidDevice);
}
cudaError_t cudaInitDevice(int d, unsigned a, unsigned b) { (void)a; (void)b; return cudaSetDevice(d); }
cudaError_t cudaDriverGetVersion(int *v) { *v = CUDART_VERSION; OK; }
cudaError_t cudaRuntimeGetVersion(int *v) { *v = CUDART_VERSION; OK; }
cudaError_t cudaGetLastError(void) { cudaError_t e = last_error; last_error = cudaSuccess; return e; }
cudaError_t cudaPeekAtLastError(void) { return last_error; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; OK; }
cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int d) { snprintf(id, (size_t)n, "0000:%02x:00.0", d); OK; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) { (void)a; (void)b; *can = 0; OK; }
cudaError_t cudaProfilerStart(void) { OK; }
cudaError_t cudaProfilerStop(void) { OK; }
cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d) {
    (void)d;
    switch ((int)a) {
    case cudaDevAttrComputeCapabilityMajor: *v = gpu.major; break;
    case cudaDevAttrComputeCapabilityMinor: *v = gpu.minor; break;
    case cudaDevAttrMultiProcessorCount: *v = gpu.sms; break;
    case cudaDevAttrMaxThreadsPerBlock: *v = 1024; break;
    case cudaDevAttrWarpSize: *v = 32; break;
    case cudaDevAttrUnifiedAddressing: *v = 1; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = gpu.shared_max; break;
    default: *v = 0;
    }
    OK;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
    if (d < 0 || d >= gpu_count) return fail(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", gpu.name);
    p->major = gpu.major; p->minor = gpu.minor; p->multiProcessorCount = gpu.sms; p->totalGlobalMem = memory_total; p->warpSize = 32;
    p->sharedMemPerBlock = 49152; p->sharedMemPerBlockOptin = (size_t)gpu.shared_max;
    p->sharedMemPerMultiprocessor = (size_t)gpu.sm_shared;
    p->maxThreadsPerBlock = 1024; p->maxThreadsPerMultiProcessor = gpu.sm_threads; p->regsPerBlock = 65536;
    p->maxGridSize[0] = 2147483647; p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024; p->maxThreadsDim[2] = 64;
    p->l2CacheSize = gpu.l2; p->unifiedAddressing = 1; p->canMapHostMemory = 1;
    OK;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
    (void)f;
    memset(a, 0, sizeof *a);
    a->binaryVersion = a->ptxVersion = 10 * gpu.major + gpu.minor; a->maxThreadsPerBlock = 1024;
    OK;
}

/* ---- memory: the device's lies at the same addresses in each process that asks for the same, as long as they are free */
#define DEVICE_BASE (1ull << 45) /* as in spans.py, which says where it ends */
#define DEVICE_END (1ull << 46)
static _Atomic uint64_t device_next = DEVICE_BASE;
static void *map(size_t n, int kind) {
    size_t size = n ? n : 1, room = (size + 65535) & ~(size_t)65535;
    uint64_t at = kind == DEVICE ? atomic_fetch_add(&device_next, room) : DEVICE_END;
    void *hint = at + room <= DEVICE_END ? (void *)(uintptr_t)at : NULL; /* no MAP_FIXED: anything else is as good */
    void *p = mmap(hint, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}
static cudaError_t allocate(void **p, size_t n, int kind, enum log_kind log) {
    if (kind == DEVICE && !vg_take_memory(n)) return fail(cudaErrorMemoryAllocation);
    if (!(*p = map(n, kind))) {
        if (kind == DEVICE) vg_give_memory(n);
        return fail(cudaErrorMemoryAllocation);
    }
    vg_span_add(*p, n, kind);
    vg_log(log, N(*p), n, 0, 0);
    OK;
}
/* The bytes stay until Python says that no pending operation uses them. */
void vg_release(void *p, size_t n) { munmap(p, n ? n : 1); }
static cudaError_t release(void *p, enum log_kind log) {
    if (!p) OK;
    int gpu = vg_memory_gpu(p);
    size_t n = vg_span_remove(p);
    if (!n) return fail(cudaErrorInvalidValue);
    if (log == LOG_FREE) memory_used[gpu] -= n;
    vg_log(log, N(p), n, 0, 0);
    OK;
}
cudaError_t cudaMalloc(void **p, size_t n) { return allocate(p, n, DEVICE, LOG_MALLOC); }
cudaError_t cudaFree(void *p) { return release(p, LOG_FREE); }
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned f) { (void)f; return allocate(p, n, HOST, LOG_HOST_ALLOC); }
cudaError_t cudaMallocHost(void **p, size_t n) { return allocate(p, n, HOST, LOG_HOST_ALLOC); }
cudaError_t cudaFreeHost(void *p) { return release(p, LOG_HOST_FREE); }
cudaError_t cudaHostRegister(void *p, size_t n, unsigned f) {
    (void)f;
    vg_span_add(p, n, 1);
    vg_log(LOG_HOST_REGISTER, N(p), n, 0, 0);
    OK;
}
cudaError_t cudaHostUnregister(void *p) {
    if (!vg_span_remove(p)) return fail(cudaErrorInvalidValue);
    vg_log(LOG_HOST_UNREGISTER, N(p), 0, 0, 0);
    OK;
}
cudaError_t cudaHostGetDevicePointer(void **d, void *h, unsigned f) { (void)f; *d = h; OK; }
cudaError_t cudaMemGetInfo(size_t *f, size_t *t) { *t = memory_total; *f = memory_usable() - memory_used[vg_current_gpu()]; OK; }
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
    int kind = vg_memory_kind(p);
    memset(a, 0, sizeof *a);
    a->device = kind ? vg_memory_gpu(p) : 0;
    a->type = kind == 1 ? cudaMemoryTypeHost : kind == 2 ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
    a->devicePointer = kind ? (void *)p : NULL;
    a->hostPointer = kind == 1 ? (void *)p : NULL;
    OK;
}

/* ---- copies: Python makes them, now or later; without Python they are made here */
static cudaError_t copy(void *d, const void *s, size_t n, cudaStream_t st, uint64_t blocking) {
    if (n && !vg_call(CALL_COPY, N(d), N(s), n, N(OWN(st)) | blocking << 63, NULL)) memmove(d, s, n);
    OK;
}
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, enum cudaMemcpyKind k) { (void)k; return copy(d, s, n, 0, 1); }
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind k, cudaStream_t st) {
    (void)k;
    return copy(d, s, n, st, 0);
}
cudaError_t cudaMemcpyPeerAsync(void *d, int dd, const void *s, int sd, size_t n, cudaStream_t st) {
    (void)dd; (void)sd;
    return copy(d, s, n, st, 0);
}
cudaError_t cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, enum cudaMemcpyKind k,
                              cudaStream_t st) {
    (void)k;
    for (size_t i = 0; i < h; i++) copy((char *)d + i * dp, (const char *)s + i * sp, w, st, 0);
    OK;
}
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t st) {
    if (n && !vg_call(CALL_SET, N(d), (uint64_t)(v & 255), n, N(OWN(st)), NULL)) memset(d, v, n);
    OK;
}
cudaError_t cudaMemset(void *d, int v, size_t n) { return cudaMemsetAsync(d, v, n, 0); }

/* ---- streams */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
    struct virtual_stream *stream = calloc(1, sizeof *stream);
    if (!stream) return fail(cudaErrorMemoryAllocation);
    stream->flags = flags;
    stream->priority = priority;
    stream->next = streams;
    while (!atomic_compare_exchange_weak(&streams, &stream->next, stream)) { }
    *s = (cudaStream_t)stream;
    vg_log(LOG_STREAM_CREATE, N(stream), flags, (uint64_t)vg_current_gpu(), 0);
    OK;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { return cudaStreamCreateWithPriority(s, flags, 0); }
cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithPriority(s, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { (void)s; OK; } /* its work goes on; the handle is never used again */
cudaError_t cudaStreamGetPriority(cudaStream_t s, int *p) { *p = stream_of(s)->priority; OK; }
cudaError_t cudaStreamGetFlags(cudaStream_t s, unsigned *f) { *f = (unsigned)stream_of(s)->flags; OK; }
cudaError_t cudaStreamQuery(cudaStream_t s) {
    return vg_call(CALL_STREAM_QUERY, N(OWN(s)), 0, 0, 0, NULL) ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) { vg_call(CALL_STREAM_SYNC, N(OWN(s)), 0, 0, 0, NULL); OK; }
cudaError_t cudaDeviceSynchronize(void) { vg_call(CALL_DEVICE_SYNC, (uint64_t)vg_current_gpu(), 0, 0, 0, NULL); OK; }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned f) {
    struct virtual_event *event = (struct virtual_event *)e;
    (void)f;
    if (event->capture) stream_of(s)->capture = event->capture;
    vg_log(LOG_STREAM_WAIT, N(OWN(s)), N(e), event->version, event->capture ? event->capture->id : 0);
    OK;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *data) {
    if (!vg_call(CALL_HOST_FUNCTION, N(OWN(s)), N(f), N(data), 0, NULL)) f(data);
    OK;
}

/* ---- events: an allocator's question is answered by what a host wait has settled, the program's own by Python */
static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}
/* logged, next: of one that was destroyed, and is freed when Python has forgotten it: its address names it until then.
   Records are numbered through, so that another event at that address is not taken for it. */
struct timed_event { struct virtual_event event; double recorded_ms; uint64_t logged; struct timed_event *next; };
static struct timed_event *_Atomic destroyed;
static _Atomic uint64_t records;
static void bury(struct timed_event *event) {
    event->next = atomic_load(&destroyed);
    while (!atomic_compare_exchange_weak(&destroyed, &event->next, event)) continue;
}
static void free_told(uint64_t count) {
    struct timed_event *left = atomic_exchange(&destroyed, NULL);
    while (left) {
        struct timed_event *event = left;
        left = event->next;
        if (event->logged <= count) free(event);
        else bury(event);
    }
}
__attribute__((constructor)) static void hear(void) { vg_when_told(free_told); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    struct timed_event *event = calloc(1, sizeof *event);
    if (!event) return fail(cudaErrorMemoryAllocation);
    event->event.flags = flags;
    *e = (cudaEvent_t)event;
    OK;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    struct timed_event *event = (struct timed_event *)e;
    int is_in_graph = event->event.capture != NULL; /* which names it as long as it is captured */
    vg_log(LOG_EVENT_DESTROY, N(e), 0, 0, 0);
    if (is_in_graph) OK;
    event->logged = vg_logged();
    bury(event);
    OK;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    struct timed_event *event = (struct timed_event *)e;
    event->event.version = atomic_fetch_add(&records, 1) + 1;
    event->event.capture = stream_of(s)->capture;
    event->recorded_ms = now_ms();
    vg_log(LOG_EVENT_RECORD, N(e), N(OWN(s)), event->event.version, event->event.capture ? event->event.capture->id : 0);
    OK;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned f) { (void)f; return cudaEventRecord(e, s); }
cudaError_t cudaEventSynchronize(cudaEvent_t e) { vg_call(CALL_EVENT_SYNC, N(e), 0, 0, 0, NULL); OK; }
static __thread int is_silent;
static __thread uint64_t asked;
void vg_ask_in_silence(void) { is_silent = 1; }
/* The event that this thread was last told is not complete, once; 0: none. */
uint64_t vg_take_asked(void) { uint64_t event = asked; asked = 0; return event; }
cudaError_t cudaEventQuery(cudaEvent_t e) {
    struct virtual_event *event = (struct virtual_event *)e;
    if (event->done < event->version) { asked = N(e); return cudaErrorNotReady; }
    if (event->version && !is_silent) vg_log(LOG_QUERY_TRUE, N(e), event->version, 0, 0);
    OK;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    *ms = (float)(((struct timed_event *)b)->recorded_ms - ((struct timed_event *)a)->recorded_ms);
    OK;
}
void vg_event_done(uint64_t event, uint64_t version) { ((struct virtual_event *)(uintptr_t)event)->done = version; }
uint64_t vg_event_version(uint64_t event) { return ((struct virtual_event *)(uintptr_t)event)->version; }

/* ---- graphs: what is captured is kept by Python under the graph's number */
static uint64_t graph_numbers;
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *m) { (void)m; OK; }
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *p) {
    *p = stream_of(s)->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    OK;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *count) {
    if (edges) *edges = NULL;
#else
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                        cudaGraph_t *graph, const cudaGraphNode_t **nodes, size_t *count) {
#endif
    struct virtual_graph *capture = stream_of(s)->capture;
    *status = capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    if (id) *id = capture ? capture->id : 0;
    if (graph) *graph = (cudaGraph_t)capture;
    if (nodes) *nodes = NULL;
    if (count) *count = 0;
    OK;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode m) {
    struct virtual_graph *graph = calloc(1, sizeof *graph);
    (void)m;
    if (!graph) return fail(cudaErrorMemoryAllocation);
    graph->id = ++graph_numbers;
    stream_of(s)->capture = graph;
    vg_log(LOG_CAPTURE_BEGIN, N(OWN(s)), graph->id, 0, 0);
    OK;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
    struct virtual_graph *capture = stream_of(s)->capture;
    *graph = (cudaGraph_t)capture;
    stream_of(s)->capture = NULL;
    for (struct virtual_stream *joined = streams; joined; joined = joined->next)
        if (joined->capture == capture) joined->capture = NULL;
    vg_log(LOG_CAPTURE_END, N(OWN(s)), ((struct virtual_graph *)*graph)->id, 0, 0);
    OK;
}
uint64_t vg_capture_of(uint64_t s) {
    struct virtual_graph *graph = stream_of((cudaStream_t)(uintptr_t)s)->capture;
    return graph ? graph->id : 0;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long f) {
    (void)f;
    *e = (cudaGraphExec_t)g;
    OK;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n) {
    if (nodes) vg_unmodelled("cudaGraphGetNodes (nodes of a graph, one by one)");
    *n = vg_call(CALL_GRAPH_NODES, ((struct virtual_graph *)g)->id, 0, 0, 0, NULL);
    OK;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) { (void)g; OK; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { (void)e; OK; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) {
    vg_call(CALL_GRAPH_LAUNCH, ((struct virtual_graph *)e)->id, N(OWN(s)), 0, 0, NULL);
    OK;
}

/* ---- kernels: their names are known, their bodies are not */
static cudaError_t launch(const void *f, cudaStream_t s) {
    if (!vg_call(CALL_LAUNCH, N(f), N(OWN(s)), 0, 0, vg_kernel_name(f))) vg_unmodelled(vg_kernel_name(f));
    OK;
}
cudaError_t cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **a, size_t n, cudaStream_t s) {
    (void)g; (void)b; (void)a; (void)n;
    return launch(f, s);
}
cudaError_t cudaLaunchCooperativeKernel(const void *f, dim3 g, dim3 b, void **a, size_t n, cudaStream_t s) {
    (void)g; (void)b; (void)a; (void)n;
    return launch(f, s);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **a) { (void)a; return launch(f, c->stream); }
cudaError_t __cudaLaunchKernel(void *k, dim3 g, dim3 b, void **a, size_t n, cudaStream_t s) {
    (void)g; (void)b; (void)a; (void)n;
    return launch(k, s);
}
cudaError_t __cudaGetKernel(void **k, const void *f) { *k = (void *)f; OK; }
char __cudaInitModule(void **handle) { (void)handle; return 0; }
void **__cudaRegisterFatBinary(void *binary) { return calloc(1, sizeof binary); }
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
void __cudaRegisterFunction(void **h, const char *f, char *df, const char *name, int limit, void *tid, void *bid,
                            void *bd, void *gd, int *ws) {
    (void)h; (void)df; (void)limit; (void)tid; (void)bid; (void)bd; (void)gd; (void)ws;
    vg_kernel_add(f, name);
}
void __cudaRegisterVar(void **h, char *v, char *a, const char *n, int e, size_t s, int c, int g) {
    (void)h; (void)v; (void)a; (void)n; (void)e; (void)s; (void)c; (void)g;
}
static __thread struct { dim3 grid, block; size_t shared; void *stream; } pushed;
unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t n, void *s) {
    pushed.grid = g; pushed.block = b; pushed.shared = n; pushed.stream = s;
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *g, dim3 *b, size_t *n, void *s) {
    *g = pushed.grid; *b = pushed.block; *n = pushed.shared; *(void **)s = pushed.stream;
    OK;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t s, unsigned fl) {
    (void)f; (void)b; (void)s; (void)fl;
    *n = 1;
    OK;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int b, size_t s) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, b, s, 0);
}

/* ---- driver entry points by name: those of driver.c, or the stub that ends the run when it is called */
static cudaError_t entry_point(const char *symbol, void **function, unsigned version, enum cudaDriverEntryPointQueryResult *status) {
    *function = strncmp(symbol, "cu", 2) ? NULL : vg_entry_point(symbol, (int)version);
    if (status) *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return *function ? cudaSuccess : fail(cudaErrorSymbolNotFound);
}
cudaError_t cudaGetDriverEntryPoint(const char *s, void **f, unsigned long long fl, enum cudaDriverEntryPointQueryResult *q) {
    (void)fl;
    return entry_point(s, f, CUDART_VERSION, q);
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *s, void **f, unsigned v, unsigned long long fl,
                                             enum cudaDriverEntryPointQueryResult *q) {
    (void)fl;
    return entry_point(s, f, v, q);
}
