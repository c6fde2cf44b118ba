/* What the parts of the virtual CUDA runtime share: handles, the log of calls, the one callback into Python. */
#ifndef RACEGATE_VIRTUAL_H
#define RACEGATE_VIRTUAL_H
#include <stddef.h>
#include <stdint.h>

/* Calls that may be made while the caller holds a lock of its own (torch's allocators do) are only logged, and read by
   Python before it looks at anything else: asking for Python's lock there could wait for a thread that waits for theirs.
   All other calls go through the callback. The numbers are those of library.py. */
enum log_kind {
    LOG_MALLOC = 1, LOG_FREE = 2, LOG_HOST_ALLOC = 3, LOG_HOST_FREE = 4, LOG_HOST_REGISTER = 5, LOG_HOST_UNREGISTER = 6,
    LOG_STREAM_CREATE = 7, LOG_EVENT_RECORD = 8, LOG_STREAM_WAIT = 9, LOG_EVENT_DESTROY = 10, LOG_QUERY_TRUE = 11,
    LOG_CAPTURE_BEGIN = 12, LOG_CAPTURE_END = 13, LOG_FULL = 14, LOG_UNMAP = 15,
};
enum call_kind {
    CALL_COPY = 1, CALL_SET = 2, CALL_LAUNCH = 3, CALL_EVENT_SYNC = 4, CALL_STREAM_SYNC = 5, CALL_DEVICE_SYNC = 6,
    CALL_STREAM_QUERY = 7, CALL_HOST_FUNCTION = 8, CALL_GRAPH_LAUNCH = 9, CALL_UNMODELLED = 10, CALL_BAD_DEVICE = 11,
    CALL_GRAPH_NODES = 13, CALL_VALUE_WAIT = 14, CALL_NCCL = 15, CALL_NCCL_JOIN = 16, CALL_NCCL_SPLIT = 17,
    CALL_BATCH = 18, CALL_OWNER = 19,
};
struct log_entry { uint64_t kind, thread, a, b, c, d; };
struct virtual_graph { uint64_t id; };
struct virtual_stream { uint64_t id, flags; int priority; struct virtual_graph *capture; struct virtual_stream *next; };
struct virtual_event { uint64_t version, done, flags; struct virtual_graph *capture; };

extern volatile uint64_t vg_news[4];

typedef uint64_t (*callback_t)(uint64_t kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d, const char *name);

uint64_t vg_thread(void);
void vg_log(enum log_kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d);
uint64_t vg_logged(void);
void vg_when_told(void (*told)(uint64_t count)); /* told: Python has done with so many entries of the log; must not log */
uint64_t vg_call(enum call_kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d, const char *name);
int vg_unmodelled(const char *name);
int vg_unmodelled_for(const char *name, const void *caller); /* caller: an address in the library that asked */
const char *vg_kernel_name(const void *function);
int vg_take_memory(size_t n); /* 0: the device has not so much left */
void vg_give_memory(size_t n);
int vg_has_guards(void);
void vg_open_range(const void *data, size_t size);
void vg_note_range(const void *data, size_t size, int is_write);
void vg_ask_in_silence(void); /* what this thread finds complete from now on is nobody's knowledge */
void *vg_entry_point(const char *symbol, int version); /* of the driver, in the form of that version of CUDA */
int vg_memory_kind(const void *address); /* 0 unknown, 1 host (pinned), 2 device */
int vg_memory_gpu(const void *address); /* of memory that is known */
int vg_current_gpu(void); /* of this thread */
void vg_use_gpu(int gpu);
/* What names the default stream of the current GPU: the runtime's own number is the same for all. */
enum { GPUS_MAX = 64, DEFAULT_STREAM = 0x100 };
uint64_t vg_stream(uint64_t stream);
#endif
