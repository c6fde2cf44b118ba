/* Virtual memory of the driver, on which torch's expandable segments rest. A reserved range of addresses is device memory
   from the beginning, whatever is mapped where: its pages come when they are touched, and keep their history when memory
   is taken out and mapped again, which needs an order of its own. They stay until the range is given back, because what
   is held back may touch them late. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include "virtual.h"

void vg_span_add(void *base, size_t size, int kind);
size_t vg_span_remove(void *base);

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2 };
static const size_t GRANULARITY = 2ul << 20;

int cuMemGetAllocationGranularity(size_t *granularity, const void *properties, int option) {
    (void)properties; (void)option;
    *granularity = GRANULARITY;
    return OK;
}
int cuMemAddressReserve(uint64_t *address, size_t size, size_t alignment, uint64_t wanted, uint64_t flags) {
    (void)alignment; (void)wanted; (void)flags;
    int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *got = mmap(NULL, size + GRANULARITY, PROT_READ | PROT_WRITE, how, -1, 0);
    if (got == MAP_FAILED) return OUT_OF_MEMORY;
    size_t skipped = -(uintptr_t)got & (GRANULARITY - 1);
    if (skipped) munmap(got, skipped);
    if (skipped < GRANULARITY) munmap(got + skipped + size, GRANULARITY - skipped);
    *address = (uintptr_t)got + skipped;
    vg_span_add(got + skipped, size, 2);
    vg_log(LOG_MALLOC, *address, size, 0, 0);
    return OK;
}
int cuMemAddressFree(uint64_t address, size_t size) {
    if (vg_span_remove((void *)(uintptr_t)address) != size) return INVALID_VALUE;
    vg_log(LOG_FREE, address, size, 0, 0);
    return OK;
}
int cuMemCreate(uint64_t *handle, size_t size, const void *properties, uint64_t flags) {
    (void)properties; (void)flags;
    if (!vg_take_memory(size)) return OUT_OF_MEMORY;
    *handle = size;
    return OK;
}
int cuMemRelease(uint64_t handle) { vg_give_memory(handle); return OK; }
int cuMemMap(uint64_t address, size_t size, size_t offset, uint64_t handle, uint64_t flags) {
    (void)address; (void)flags;
    return offset + size > handle ? INVALID_VALUE : OK;
}
int cuMemSetAccess(uint64_t address, size_t size, const void *access, size_t count) {
    (void)address; (void)size; (void)access; (void)count;
    return OK;
}
/* What the memory held is lost; nothing may touch it any more. */
int cuMemUnmap(uint64_t address, size_t size) { vg_log(LOG_UNMAP, address, size, 0, 0); return OK; }
