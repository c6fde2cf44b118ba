/* Batches of copies, of the runtime and of the driver, and the driver's other names for what the runtime does. */
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "virtual.h"

size_t vg_span_remove(void *base);

enum { OK = 0, INVALID_VALUE = 1 };
#define AT(address) ((void *)(uintptr_t)(address))

/* ---- batches: copies on one stream. order: when their sources are read, by cudaMemcpySrcAccessOrder */
#if CUDART_VERSION >= 12080
struct batch { const uint64_t *to, *from; const size_t *sizes; uint64_t count, stream, order; };
static int batch(const struct batch *copies) {
    if (copies->order < cudaMemcpySrcAccessOrderStream || copies->order > cudaMemcpySrcAccessOrderAny) return INVALID_VALUE;
    if (!copies->count || vg_call(CALL_BATCH, (uint64_t)(uintptr_t)copies, 0, 0, 0, NULL)) return OK;
    for (size_t i = 0; i < copies->count; i++) memmove(AT(copies->to[i]), AT(copies->from[i]), copies->sizes[i]);
    return OK;
}
/* Attribute i is that of the copies from firsts[i] on. The legacy default stream takes no batches. */
static int batches(const uint64_t *to, const uint64_t *from, const size_t *sizes, size_t count,
                   const struct cudaMemcpyAttributes *attributes, const size_t *firsts, size_t attribute_count, void *stream) {
    int result = OK;
    if ((uintptr_t)stream < 2 || !count || !attribute_count || attribute_count > count || firsts[0]) return INVALID_VALUE;
    for (size_t i = 0; i < attribute_count && !result; i++) {
        size_t first = firsts[i], end = i + 1 < attribute_count ? firsts[i + 1] : count;
        if (first >= end || end > count) return INVALID_VALUE;
        struct batch one = {to + first, from + first, sizes + first, end - first, vg_stream((uint64_t)(uintptr_t)stream),
                            (uint64_t)attributes[i].srcAccessOrder};
        result = batch(&one);
    }
    return result;
}
int cuMemcpyBatchAsync_v2(uint64_t *to, uint64_t *from, size_t *sizes, size_t count, struct cudaMemcpyAttributes *attributes,
                          size_t *firsts, size_t attribute_count, void *stream) {
    return batches(to, from, sizes, count, attributes, firsts, attribute_count, stream);
}
/* As CUDA 12 has it. */
int cuMemcpyBatchAsync(uint64_t *to, uint64_t *from, size_t *sizes, size_t count, struct cudaMemcpyAttributes *attributes,
                       size_t *firsts, size_t attribute_count, size_t *failed, void *stream) {
    (void)failed;
    return batches(to, from, sizes, count, attributes, firsts, attribute_count, stream);
}
#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *sizes, size_t count,
                                 struct cudaMemcpyAttributes *attributes, size_t *firsts, size_t attribute_count,
                                 cudaStream_t stream) {
#else
cudaError_t cudaMemcpyBatchAsync(void **to, void **from, size_t *sizes, size_t count, struct cudaMemcpyAttributes *attributes,
                                 size_t *firsts, size_t attribute_count, size_t *failed, cudaStream_t stream) {
    (void)failed;
#endif
    return (cudaError_t)batches((const uint64_t *)to, (const uint64_t *)from, sizes, count, attributes, firsts, attribute_count,
                                stream);
}
#endif

/* ---- the driver's copies: which side a pointer is on is known by its address */
#define COPY(name, type_to, type_from) \
    int name(type_to to, type_from from, size_t size) { return (int)cudaMemcpy(AT(to), AT(from), size, cudaMemcpyDefault); }
#define COPY_ASYNC(name, type_to, type_from) \
    int name(type_to to, type_from from, size_t size, void *stream) { \
        return (int)cudaMemcpyAsync(AT(to), AT(from), size, cudaMemcpyDefault, stream); \
    }
COPY(cuMemcpy, uint64_t, uint64_t)
COPY(cuMemcpyHtoD_v2, uint64_t, const void *)
COPY(cuMemcpyDtoH_v2, void *, uint64_t)
COPY(cuMemcpyDtoD_v2, uint64_t, uint64_t)
COPY_ASYNC(cuMemcpyAsync, uint64_t, uint64_t)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, uint64_t, const void *)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, void *, uint64_t)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, uint64_t, uint64_t)
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t count, void *stream) {
    return (int)cudaMemsetAsync(AT(to), value, count, stream);
}

/* ---- memory, streams and events, whose handles are those of the runtime */
int cuMemAlloc_v2(uint64_t *memory, size_t size) { return (int)cudaMalloc((void **)memory, size); }
int cuMemFree_v2(uint64_t memory) { return (int)cudaFree(AT(memory)); }
int cuMemHostAlloc(void **memory, size_t size, unsigned flags) { return (int)cudaHostAlloc(memory, size, flags); }
int cuMemFreeHost(void *memory) { return (int)cudaFreeHost(memory); }
int cuMemHostRegister_v2(void *memory, size_t size, unsigned flags) { return (int)cudaHostRegister(memory, size, flags); }
int cuMemHostUnregister(void *memory) { return (int)cudaHostUnregister(memory); }
int cuStreamCreate(void **stream, unsigned flags) { return (int)cudaStreamCreateWithFlags((cudaStream_t *)stream, flags); }
int cuStreamDestroy_v2(void *stream) { return (int)cudaStreamDestroy(stream); }
int cuStreamSynchronize(void *stream) { return (int)cudaStreamSynchronize(stream); }
int cuStreamQuery(void *stream) { return (int)cudaStreamQuery(stream); }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return (int)cudaStreamWaitEvent(stream, event, flags); }
int cuLaunchHostFunc(void *stream, void (*function)(void *), void *data) { return (int)cudaLaunchHostFunc(stream, function, data); }
int cuEventCreate(void **event, unsigned flags) { return (int)cudaEventCreateWithFlags((cudaEvent_t *)event, flags); }
int cuEventDestroy_v2(void *event) { return (int)cudaEventDestroy(event); }
int cuEventRecord(void *event, void *stream) { return (int)cudaEventRecord(event, stream); }
int cuEventSynchronize(void *event) { return (int)cudaEventSynchronize(event); }
int cuCtxSynchronize(void) { return (int)cudaDeviceSynchronize(); }

/* ---- memory in the order of a stream: who is given it may touch it from there on, until where it is given back. Its
   addresses are not given out again: what the driver makes of that is ordered by the driver itself. */
enum { GIVEN_BACK = 0, GIVEN = 1 };
static cudaError_t change_owner(void *memory, size_t size, int is_given, cudaStream_t stream) {
    vg_call(CALL_OWNER, (uint64_t)(uintptr_t)memory, size, (uint64_t)is_given, vg_stream((uint64_t)(uintptr_t)stream), NULL);
    return cudaSuccess;
}
cudaError_t cudaMallocAsync(void **memory, size_t size, cudaStream_t stream) {
    cudaError_t error = cudaMalloc(memory, size);
    return error ? error : change_owner(*memory, size, GIVEN, stream);
}
cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream) {
    size_t size = vg_span_remove(memory);
    if (!size) return memory ? cudaErrorInvalidValue : cudaSuccess;
    vg_give_memory(size);
    return change_owner(memory, size, GIVEN_BACK, stream);
}
static struct cudaMemPoolProps *const POOL = (void *)1; /* every pool is one */
cudaError_t cudaMallocFromPoolAsync(void **memory, size_t size, cudaMemPool_t pool, cudaStream_t stream) {
    (void)pool;
    return cudaMallocAsync(memory, size, stream);
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) { (void)device; *pool = (cudaMemPool_t)POOL; return cudaSuccess; }
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) { return cudaDeviceGetDefaultMemPool(pool, device); }
cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const struct cudaMemPoolProps *wanted) {
    (void)wanted;
    return cudaDeviceGetDefaultMemPool(pool, 0);
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) { (void)pool; return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t kept) { (void)pool; (void)kept; return cudaSuccess; }
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    (void)pool; (void)attribute; (void)value;
    return cudaSuccess;
}
