/* Entry points of the driver by name, in the form for a version of CUDA. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include "virtual.h"

/* Entry points by name: those of this library, its stubs included, which end the run when they are called. One name has
   several forms: who asks says for which version of CUDA it was built. */
static const struct { const char *name, *form; int since; } FORMS[] = {
    {"cuGetProcAddress", "cuGetProcAddress_v2", 12000}, {"cuMemcpyBatchAsync", "cuMemcpyBatchAsync_v2", 13000},
    {"cuStreamWaitValue32", "cuStreamWaitValue32_v2", 11070}, {"cuMemGetInfo", "cuMemGetInfo_v2", 3020},
    {"cuMemAlloc", "cuMemAlloc_v2", 3020}, {"cuMemFree", "cuMemFree_v2", 3020},
    {"cuMemHostRegister", "cuMemHostRegister_v2", 6050}, {"cuMemcpyHtoD", "cuMemcpyHtoD_v2", 3020},
    {"cuMemcpyDtoH", "cuMemcpyDtoH_v2", 3020}, {"cuMemcpyDtoD", "cuMemcpyDtoD_v2", 3020},
    {"cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2", 3020}, {"cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2", 3020},
    {"cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync_v2", 3020}, {"cuStreamDestroy", "cuStreamDestroy_v2", 4000},
    {"cuEventDestroy", "cuEventDestroy_v2", 4000},
};
void *vg_entry_point(const char *symbol, int version) {
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++)
        if (!strcmp(symbol, FORMS[i].name) && version >= FORMS[i].since) symbol = FORMS[i].form;
    return dlsym(RTLD_DEFAULT, symbol);
}
