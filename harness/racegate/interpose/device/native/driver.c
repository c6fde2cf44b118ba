/* The driver calls that torch makes before any kernel. The others are weak functions of stubs.c that end the run. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stddef.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "virtual.h"

int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDriverGetVersion(int *v) { *v = VG_CUDA_VERSION; return 0; }
int cuDeviceGetCount(int *n) { return (int)cudaGetDeviceCount(n); }
int cuDeviceGet(int *device, int ordinal) {
    int count = 0;
    cudaGetDeviceCount(&count);
    *device = ordinal;
    return ordinal >= 0 && ordinal < count ? 0 : 101;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) { return (int)cudaDeviceGetAttribute(value, attribute, device); }
int cuMemGetInfo_v2(size_t *free, size_t *total) { return (int)cudaMemGetInfo(free, total); }
int cuCtxGetCurrent(void **context) { *context = (void *)1; return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuCtxGetDevice(int *device) { return (int)cudaGetDevice(device); }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = (void *)1; return 0; }
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    (void)device;
    *flags = 0;
    *active = 1;
    return 0;
}
int cuGetErrorString(int error, const char **text) { (void)error; *text = "an error of the virtual CUDA driver"; return 0; }
int cuGetErrorName(int error, const char **text) { return cuGetErrorString(error, text); }
int cuLogsRegisterCallback(void *function, void *data, void **handle) { (void)function; (void)data; if (handle) *handle = NULL; return 0; }
int cuLogsUnregisterCallback(void *handle) { (void)handle; return 0; }
/* What stands behind it has not happened until the host waits for it, as behind a kernel that takes long. */
int cuStreamWaitValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned flags) {
    int is_there = (int32_t)(*(volatile uint32_t *)(uintptr_t)address - value) >= 0;
    if (flags) return vg_unmodelled("cuStreamWaitValue32 with another condition than that the value is reached");
    if (!is_there) vg_call(CALL_VALUE_WAIT, vg_stream((uint64_t)(uintptr_t)stream), 0, 0, 0, NULL);
    return 0;
}
int cuStreamWaitValue32(void *stream, uint64_t address, uint32_t value, unsigned flags) {
    return cuStreamWaitValue32_v2(stream, address, value, flags);
}
static int is_from(const void *caller, const char *library) {
    Dl_info found;
    return dladdr(caller, &found) && found.dli_fname && strstr(found.dli_fname, library);
}
int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    (void)flags;
    if (is_from(__builtin_return_address(0), "libnccl"))
        return vg_unmodelled("NCCL: collectives between GPUs (the backend gloo runs on the host, and works)");
    *function = vg_entry_point(symbol, version);
    if (status) *status = *function ? 0 : 1;
    return *function ? 0 : 500; /* CUDA_ERROR_NOT_FOUND */
}
int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
/* Undocumented tables. The profiler goes on without them and profiles the host alone; a runtime that a library has linked
   into itself does not, and what it is asked for would be lost. */
int cuGetExportTable(const void **table, const void *id) {
    (void)id;
    const void *caller = __builtin_return_address(0);
    if (!is_from(caller, "libcupti") && !is_from(caller, "libnvrtc")) /* a compiler launches nothing */
        return vg_unmodelled_for("cuGetExportTable (for a CUDA runtime of its own)", caller);
    *table = NULL;
    return 500;
}
