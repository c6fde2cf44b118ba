/* What the runtime says of its errors. */
#include <stddef.h>
#include <cuda_runtime_api.h>

/* Names and words of the real runtime, of those errors that are given here or asked for by number. */
static const struct error { cudaError_t code; const char *name, *words; } errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal (the virtual machine has one GPU)"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
};
static const struct error *error_of(cudaError_t code) {
    static const struct error unknown = {cudaErrorUnknown, "an error of the virtual CUDA runtime", "an error of the virtual CUDA runtime"};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) return &errors[i];
    return &unknown;
}
const char *cudaGetErrorName(cudaError_t e) { return error_of(e)->name; }
const char *cudaGetErrorString(cudaError_t e) { return error_of(e)->words; }
