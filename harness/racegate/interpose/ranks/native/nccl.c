/* NCCL without GPUs, under torch's own process group: communicators are numbers, operations are collected per thread and
   group, and each flush goes to Python through the virtual runtime's one callback. It moves no bytes itself. Every export
   of the real library that is not here is a weak function of stubs.c that ends the run with its name. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cuda_runtime_api.h>
#include "virtual.h"

typedef enum { OK = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 } result_t;
typedef struct { char bytes[128]; } unique_id;
/* The numbers are those of collectives.py. */
enum kind {
    ALL_REDUCE = 1, BROADCAST = 2, REDUCE = 3, ALL_GATHER = 4, REDUCE_SCATTER = 5, ALL_TO_ALL = 6, GATHER = 7, SCATTER = 8,
    SEND = 9, RECV = 10,
};
typedef struct communicator { uint64_t id, rank, ranks, splits; } *comm_t;
/* The beginning of ncclConfig_t, which later versions only make longer. */
struct config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster, ctas_min, ctas_max;
    const char *net;
    int split_share, traffic;
    const char *name;
};
/* As collectives.py unpacks it. */
struct operation { uint64_t kind, send, receive, count, type, reduction, root, comm, rank, stream; };

static void *checked(void *memory) {
    if (!memory) { fputs("racegate: the virtual NCCL is out of memory\n", stderr); _exit(3); }
    return memory;
}

/* ---- groups: nested ones are one, per thread */
static __thread int depth;
static __thread struct operation *operations;
static __thread size_t operation_count, operation_room;

static result_t flush(void) {
    size_t count = operation_count;
    operation_count = 0;
    if (count) vg_call(CALL_NCCL, (uint64_t)(uintptr_t)operations, count, 0, 0, "NCCL");
    return OK;
}
static result_t put(int kind, const void *send, void *receive, size_t count, int type, int reduction, int root, comm_t comm,
                    void *stream) {
    if (!comm) return INVALID_ARGUMENT;
    if (operation_count == operation_room) {
        operation_room = operation_room ? 2 * operation_room : 64;
        operations = checked(realloc(operations, operation_room * sizeof *operations));
    }
    operations[operation_count++] = (struct operation){
        (uint64_t)kind, (uintptr_t)send, (uintptr_t)receive, count, (uint64_t)type, (uint64_t)reduction, (uint64_t)root,
        comm->id, comm->rank, vg_stream((uintptr_t)stream)
    };
    return depth ? OK : flush();
}
result_t ncclGroupStart(void) { depth++; return OK; }
result_t ncclGroupEnd(void) {
    if (!depth) return INVALID_USAGE;
    return --depth ? OK : flush();
}

/* ---- communicators */
static comm_t join(uint64_t id, uint64_t rank, uint64_t ranks, const struct config *config, int waits) {
    comm_t comm = checked(calloc(1, sizeof *comm));
    *comm = (struct communicator){id, rank, ranks, 0};
    int is_named = config && config->size >= sizeof *config && config->name;
    vg_call(CALL_NCCL_JOIN, id, rank, ranks, (uint64_t)waits, is_named ? config->name : "");
    return comm;
}
/* Of the process that asks, among all of the run, and how often it has. */
result_t ncclGetUniqueId(unique_id *id) {
    static uint64_t made;
    const char *place = getenv("RACEGATE_PLACE");
    uint64_t number = ((uint64_t)(place ? atoi(place) + 1 : 1) << 32) | __sync_add_and_fetch(&made, 1);
    memset(id, 0, sizeof *id);
    memcpy(id->bytes, &number, sizeof number);
    return OK;
}
static uint64_t number_of(const unique_id *id) {
    uint64_t number;
    memcpy(&number, id->bytes, sizeof number);
    return number;
}
result_t ncclCommInitRankConfig(comm_t *comm, int ranks, unique_id id, int rank, struct config *config) {
    if (rank < 0 || rank >= ranks) return INVALID_ARGUMENT;
    *comm = join(number_of(&id), (uint64_t)rank, (uint64_t)ranks, config, !depth);
    return OK;
}
result_t ncclCommInitRank(comm_t *comm, int ranks, unique_id id, int rank) {
    return ncclCommInitRankConfig(comm, ranks, id, rank, NULL);
}
result_t ncclCommInitRankScalable(comm_t *comm, int ranks, int rank, int count, unique_id *ids, struct config *config) {
    return count < 1 ? INVALID_ARGUMENT : ncclCommInitRankConfig(comm, ranks, ids[0], rank, config);
}
/* Python says the new number, rank and size when all ranks of the communicator have said their colour and key. */
result_t ncclCommSplit(comm_t comm, int colour, int key, comm_t *made, struct config *config) {
    uint64_t said[3] = {++comm->splits, (uint64_t)(int64_t)colour, (uint64_t)(int64_t)key}, told[3] = {0, 0, 0};
    vg_call(CALL_NCCL_SPLIT, comm->id, comm->rank, (uint64_t)(uintptr_t)said, (uint64_t)(uintptr_t)told, "ncclCommSplit");
    *made = colour < 0 ? NULL : join(told[0], told[1], told[2], config, 0); /* the split has waited */
    return OK;
}
result_t ncclCommFinalize(comm_t comm) { (void)comm; return OK; }
result_t ncclCommDestroy(comm_t comm) { (void)comm; return OK; } /* a watchdog may still ask for its errors */
result_t ncclCommAbort(comm_t comm) { (void)comm; return OK; }
result_t ncclCommRevoke(comm_t comm, int flags) { (void)comm; (void)flags; return OK; }
/* Who asks for errors without being a thread of Python is torch's watchdog: what it finds complete orders nothing. */
result_t ncclCommGetAsyncError(comm_t comm, result_t *error) {
    static void *(*python_thread)(void);
    (void)comm;
    if (!python_thread) python_thread = (void *(*)(void))dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
    if (python_thread && !python_thread()) vg_ask_in_silence();
    *error = OK;
    return OK;
}
result_t ncclCommCount(comm_t comm, int *ranks) { *ranks = (int)comm->ranks; return OK; }
result_t ncclCommUserRank(comm_t comm, int *rank) { *rank = (int)comm->rank; return OK; }
result_t ncclCommCuDevice(comm_t comm, int *device) { (void)comm; return cudaGetDevice(device) ? SYSTEM_ERROR : OK; }
result_t ncclCommRegister(comm_t comm, void *memory, size_t size, void **handle) {
    (void)comm; (void)size;
    *handle = memory;
    return OK;
}
result_t ncclCommDeregister(comm_t comm, void *handle) { (void)comm; (void)handle; return OK; }
result_t ncclGetVersion(int *version) { *version = VG_NCCL_VERSION; return OK; }
const char *ncclGetErrorString(result_t result) { return result ? "an error of the virtual NCCL" : "no error"; }
const char *ncclGetLastError(comm_t comm) { (void)comm; return ""; }
result_t ncclMemAlloc(void **memory, size_t size) { return cudaMalloc(memory, size) ? SYSTEM_ERROR : OK; }
result_t ncclMemFree(void *memory) { return cudaFree(memory) ? INVALID_ARGUMENT : OK; }

/* ---- operations */
#define IN const void *send
#define OUT void *receive
#define COUNT size_t count, int type
#define ON comm_t comm, void *stream
result_t ncclAllReduce(IN, OUT, COUNT, int op, ON) { return put(ALL_REDUCE, send, receive, count, type, op, 0, comm, stream); }
result_t ncclBroadcast(IN, OUT, COUNT, int root, ON) { return put(BROADCAST, send, receive, count, type, 0, root, comm, stream); }
result_t ncclBcast(OUT, COUNT, int root, ON) { return put(BROADCAST, receive, receive, count, type, 0, root, comm, stream); }
result_t ncclReduce(IN, OUT, COUNT, int op, int root, ON) { return put(REDUCE, send, receive, count, type, op, root, comm, stream); }
result_t ncclAllGather(IN, OUT, COUNT, ON) { return put(ALL_GATHER, send, receive, count, type, 0, 0, comm, stream); }
result_t ncclReduceScatter(IN, OUT, COUNT, int op, ON) {
    return put(REDUCE_SCATTER, send, receive, count, type, op, 0, comm, stream);
}
result_t ncclAlltoAll(IN, OUT, COUNT, ON) { return put(ALL_TO_ALL, send, receive, count, type, 0, 0, comm, stream); }
result_t ncclGather(IN, OUT, COUNT, int root, ON) { return put(GATHER, send, receive, count, type, 0, root, comm, stream); }
result_t ncclScatter(IN, OUT, COUNT, int root, ON) { return put(SCATTER, send, receive, count, type, 0, root, comm, stream); }
result_t ncclSend(IN, COUNT, int peer, ON) { return put(SEND, send, NULL, count, type, 0, peer, comm, stream); }
result_t ncclRecv(OUT, COUNT, int peer, ON) { return put(RECV, NULL, receive, count, type, 0, peer, comm, stream); }
