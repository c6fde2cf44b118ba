/* NVML as far as torch, vLLM and pynvml ask for a device: one GPU, without a driver. Loaded under the name by which they
   look for the real one; what is not here they do not find, and say so. */
#include <stdio.h>
#include <string.h>
#include <stdint.h>
#include <cuda_runtime_api.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
static char gpu; /* its address is the handle */

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
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = &gpu; return index ? INVALID_ARGUMENT : SUCCESS; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device) { (void)id; *device = &gpu; return SUCCESS; }
int nvmlDeviceGetHandleByUUID(const char *id, void **device) { (void)id; *device = &gpu; return SUCCESS; }
int nvmlDeviceGetIndex(void *device, unsigned *index) { (void)device; *index = 0; return SUCCESS; }
int nvmlDeviceGetUUID(void *device, char *id, unsigned size) {
    (void)device;
    return text(id, size, "GPU-00000000-0000-0000-0000-000000000000");
}
int nvmlDeviceGetName(void *device, char *name, unsigned size) {
    struct cudaDeviceProp properties;
    (void)device;
    cudaGetDeviceProperties(&properties, 0);
    return text(name, size, properties.name);
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    (void)device;
    cudaDeviceGetAttribute(major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(minor, cudaDevAttrComputeCapabilityMinor, 0);
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
/* One GPU has no links to others, and belongs to no fabric. */
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type) {
    (void)device; (void)link; (void)type;
    return NOT_SUPPORTED;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, void *info) {
    (void)device; (void)link; (void)info;
    return NOT_SUPPORTED;
}
int nvmlDeviceGetGpuFabricInfoV(void *device, void *info) { (void)device; (void)info; return SUCCESS; }
