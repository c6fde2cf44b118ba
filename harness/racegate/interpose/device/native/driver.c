/* The driver calls that torch makes before any kernel. The others are weak functions of stubs.c that end the run. */
#include <stdint.h>
#include <stddef.h>
#include "virtual.h"

typedef int (*any_function)(void);
int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDriverGetVersion(int *v) { *v = VG_CUDA_VERSION; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal ? 101 : 0; }
int cuCtxGetCurrent(void **context) { *context = (void *)1; return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
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
