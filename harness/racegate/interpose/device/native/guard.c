/* Pages of pinned memory that the device may be using: a touch by code that nobody reports (memoryview, ctypes, a C
   extension, a plain NumPy view) faults, is logged with its first byte, and goes on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>
#include <sys/socket.h>
#include "virtual.h"

enum { GUARDS_MAX = 256, TOUCHES_MAX = 1024, PAGE = 4096 };
struct guarded { uintptr_t low, high; };
static struct guarded guards[GUARDS_MAX];
static volatile int guard_count;
static struct { uint64_t thread, address, is_write; } touches[TOUCHES_MAX];
static volatile uint64_t touch_count, touch_read;
static struct sigaction previous;
static int started;

static int open_page(uintptr_t address) {
    for (int i = 0; i < guard_count; i++)
        if (address >= guards[i].low && address < guards[i].high)
            return !mprotect((void *)(address & ~(uintptr_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
    return 0;
}
static void note(uintptr_t address, int is_write) {
    uint64_t at = __sync_fetch_and_add(&touch_count, 1);
    touches[at % TOUCHES_MAX].thread = (uint64_t)pthread_self();
    touches[at % TOUCHES_MAX].address = address;
    touches[at % TOUCHES_MAX].is_write = (uint64_t)is_write;
    vg_news = 1;
}
static void on_fault(int number, siginfo_t *info, void *context) {
    uintptr_t address = (uintptr_t)info->si_addr;
    if (open_page(address)) {
        int is_write = 1;
#if defined(__x86_64__)
        is_write = ((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] >> 1 & 1;
#else
        (void)context;
#endif
        note(address, is_write);
        return;
    }
    if (previous.sa_flags & SA_SIGINFO) { previous.sa_sigaction(number, info, context); return; }
    if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) { previous.sa_handler(number); return; }
    signal(SIGSEGV, SIG_DFL); /* the instruction runs again and ends the process as it would have */
}
void vg_guard_start(void) {
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK};
    action.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &action, &previous);
    started = 1;
}
/* Whoever sets a handler of its own (faulthandler does) is asked after ours. */
int sigaction(int number, const struct sigaction *action, struct sigaction *old) {
    static int (*real)(int, const struct sigaction *, struct sigaction *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "sigaction");
    if (number != SIGSEGV || !started) return real(number, action, old);
    if (old) *old = previous;
    if (action) previous = *action;
    return 0;
}
/* mode 0: nothing may pass (the device writes there); 1: reads may pass (the device reads); 2: open. Whole pages. */
int vg_guard(uintptr_t low, uintptr_t high, int mode) {
    low &= ~(uintptr_t)(PAGE - 1);
    high = (high + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    int at = 0;
    while (at < guard_count && (guards[at].low != low || guards[at].high != high)) at++;
    if (mode == 2) {
        mprotect((void *)low, high - low, PROT_READ | PROT_WRITE);
        if (at < guard_count) guards[at] = guards[--guard_count];
        return 1;
    }
    if (at == guard_count) {
        if (guard_count == GUARDS_MAX) return 0;
        guards[guard_count++] = (struct guarded){low, high};
    }
    return !mprotect((void *)low, high - low, mode ? PROT_READ : PROT_NONE);
}
/* Oldest touch not taken yet into out[3]; 0 if there is none. */
int vg_touch(uint64_t *out) {
    if (touch_read == touch_count) return 0;
    if (touch_count - touch_read > TOUCHES_MAX) touch_read = touch_count - TOUCHES_MAX;
    uint64_t at = touch_read++ % TOUCHES_MAX;
    out[0] = touches[at].thread; out[1] = touches[at].address; out[2] = touches[at].is_write;
    return 1;
}

/* The kernel does not fault on our behalf: it refuses. So what is read into or written from guarded memory is opened. */
static void open_range(const void *data, size_t size, int is_write) {
    uintptr_t low = (uintptr_t)data, high = low + size;
    for (int i = 0; i < guard_count; i++)
        if (low < guards[i].high && guards[i].low < high) {
            uintptr_t from = low > guards[i].low ? low : guards[i].low, to = high < guards[i].high ? high : guards[i].high;
            uintptr_t page = from & ~(uintptr_t)(PAGE - 1);
            mprotect((void *)page, to - page, PROT_READ | PROT_WRITE);
            note(from, is_write);
        }
}
#define REAL(type, name) static type real; if (!real) real = (type)dlsym(RTLD_NEXT, name)
typedef ssize_t (*io_t)(int, void *, size_t);
typedef ssize_t (*pio_t)(int, void *, size_t, off_t);
typedef ssize_t (*sio_t)(int, void *, size_t, int);
ssize_t read(int f, void *b, size_t n) { REAL(io_t, "read"); if (guard_count) open_range(b, n, 1); return real(f, b, n); }
ssize_t write(int f, const void *b, size_t n) {
    REAL(io_t, "write");
    if (guard_count) open_range(b, n, 0);
    return real(f, (void *)b, n);
}
ssize_t pread(int f, void *b, size_t n, off_t o) { REAL(pio_t, "pread"); if (guard_count) open_range(b, n, 1); return real(f, b, n, o); }
ssize_t pread64(int f, void *b, size_t n, off_t o) { REAL(pio_t, "pread64"); if (guard_count) open_range(b, n, 1); return real(f, b, n, o); }
ssize_t recv(int f, void *b, size_t n, int g) { REAL(sio_t, "recv"); if (guard_count) open_range(b, n, 1); return real(f, b, n, g); }
ssize_t send(int f, const void *b, size_t n, int g) {
    REAL(sio_t, "send");
    if (guard_count) open_range(b, n, 0);
    return real(f, (void *)b, n, g);
}
