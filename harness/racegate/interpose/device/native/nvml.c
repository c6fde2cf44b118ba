/* NVML as far as torch, vLLM and pynvml ask for devices: those of the runtime, without a driver. Loaded under the name by which they
   look for the real one; what is not here they do not find, and say so. */
#include <stdio.h>
#include <string.h>
#include <stdint.h>
#include <cuda_runtime_api.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
enum { GPUS_MAX = 64 };
static char gpus[GPUS_MAX]; /* an address is a handle */
static int index_of(void *device) { return (int)((char *)device - gpus); }

static int text(char *to, unsigned size, const char *from) {
    return snprintf(to, size, "%s", from) < (int)size ? SUCCESS : INSUFFICIENT_SIZE;
}
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int error) { return error ? "an error of the virtual NVML" : "Success"; }
int nvmlSystemGetDriverVersion(char *version, unsigned size) { return text(version, size, "virtual"); }
int nvmlSystemGetNVMLVersion(char *version, unsigned size) { return text(version, size, "virtual"); }
int nvmlSystemGetCudaDriverVersion(int *version) { *version = VG_CUDA_VERSION; return SUCCESS; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { *version = VG_CUDA_VERSION; return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) {
    int seen = 0;
    cudaGetDeviceCount(&seen);
    *count = (unsigned)seen;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    unsigned count;
    nvmlDeviceGetCount_v2(&count);
    if (index >= count || index >= GPUS_MAX) return INVALID_ARGUMENT;
    *device = &gpus[index];
    return SUCCESS;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) {
    unsigned index = 0; /* the bus, as cudaDeviceGetPCIBusId tells it */
    sscanf(id, "%*x:%x:", &index);
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}
static const char UUID[] = "GPU-00000000-0000-0000-0000-";
int nvmlDeviceGetHandleByUUID(const char *id, void **device) {
    unsigned index = 0;
    if (!strncmp(id, UUID, sizeof UUID - 1)) sscanf(id + sizeof UUID - 1, "%12u", &index);
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}
int nvmlDeviceGetIndex(void *device, unsigned *index) { *index = (unsigned)index_of(device); return SUCCESS; }
int nvmlDeviceGetUUID(void *device, char *id, unsigned size) {
    return snprintf(id, size, "%s%012d", UUID, index_of(device)) < (int)size ? SUCCESS : INSUFFICIENT_SIZE;
}
int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    struct cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, index_of(device));
    return text(name, size, properties.name);
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, index_of(device));
    cudaDeviceGetAttribute(minor, cudaDevAttrComputeCapabilityMinor, index_of(device));
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    size_t free, total;
    (void)device;
    cudaMemGetInfo(&free, &total);
    *memory = (struct memory){total, free, total - free};
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory) {
    struct memory plain;
    nvmlDeviceGetMemoryInfo(device, &plain);
    *memory = (struct memory_v2){memory->version, plain.total, 0, plain.free, plain.used};
    return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *processes) {
    (void)device; (void)processes;
    *count = 0;
    return SUCCESS;
}
/* No GPU has links to others, or belongs to a fabric. */
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type) {
    (void)device; (void)link; (void)type;
    return NOT_SUPPORTED;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, void *info) {
    (void)device; (void)link; (void)info;
    return NOT_SUPPORTED;
}
int nvmlDeviceGetGpuFabricInfoV(void *device, void *info) { (void)device; (void)info; return SUCCESS; }
