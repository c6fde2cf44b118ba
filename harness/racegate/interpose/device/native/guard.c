/* Pages of pinned memory that the device may be using: a touch by code that nobody reports (memoryview, ctypes, a C
   extension, a plain NumPy view) faults, is logged with its first byte and with what the page held, and goes on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include "virtual.h"

enum { GUARDS_MAX = 256, TOUCHES_MAX = 1024, PAGE = 4096 };
struct guarded { uintptr_t low, high; };
static struct guarded guards[GUARDS_MAX];
static volatile int guard_count;
/* number: one more than its place among all touches, stored last; has_page: `pages` holds its page as it was before. */
static struct { uint64_t thread, address, size, is_write, has_page; volatile uint64_t number; } touches[TOUCHES_MAX];
static unsigned char pages[TOUCHES_MAX][PAGE];
static volatile uint64_t touch_count, touch_read;
static struct sigaction previous;
static int started;

static int open_page(uintptr_t address) {
    for (int i = 0; i < guard_count; i++)
        if (address >= guards[i].low && address < guards[i].high)
            return !mprotect((void *)(address & ~(uintptr_t)(PAGE - 1)), PAGE, PROT_READ | PROT_WRITE);
    return 0;
}
static void note(uintptr_t address, size_t size, int is_write, const void *page) {
    uint64_t at = __sync_fetch_and_add(&touch_count, 1), slot = at % TOUCHES_MAX;
    touches[slot].number = 0;
    __sync_synchronize();
    touches[slot].thread = vg_thread();
    touches[slot].address = address;
    touches[slot].size = size;
    touches[slot].is_write = (uint64_t)is_write;
    touches[slot].has_page = page != NULL;
    if (page) memcpy(pages[slot], page, PAGE);
    __sync_synchronize();
    touches[slot].number = at + 1;
    vg_news[1] = 1; /* first: who sees the other looks at this one */
    vg_news[0] = 1;
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
        note(address, 1, is_write, (void *)(address & ~(uintptr_t)(PAGE - 1)));
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
/* Oldest touch not taken yet into out[5] (thread, address, size, is a write, has a page), its page as it was before into
   page[PAGE]; 0 if there is none. Of more than TOUCHES_MAX at once the oldest are lost. */
int vg_touch(uint64_t *out, void *page) {
    while (touch_read != touch_count) {
        if (touch_count - touch_read > TOUCHES_MAX) touch_read = touch_count - TOUCHES_MAX;
        uint64_t at = touch_read, slot = at % TOUCHES_MAX, number = touches[slot].number;
        if (number < at + 1) return 0; /* another thread is writing it down */
        touch_read++;
        __sync_synchronize();
        out[0] = touches[slot].thread; out[1] = touches[slot].address; out[2] = touches[slot].size;
        out[3] = touches[slot].is_write; out[4] = touches[slot].has_page;
        if (out[4]) memcpy(page, pages[slot], PAGE);
        __sync_synchronize();
        if (number == at + 1 && touches[slot].number == number) return 1;
    }
    return 0;
}

int vg_has_guards(void) { return guard_count; }
/* Opens the guarded pages of [data, data + size), for whoever touches them without a fault. */
void vg_open_range(const void *data, size_t size) {
    uintptr_t low = (uintptr_t)data, high = low + size;
    for (int i = 0; i < guard_count; i++)
        if (low < guards[i].high && guards[i].low < high) {
            uintptr_t from = low > guards[i].low ? low : guards[i].low, to = high < guards[i].high ? high : guards[i].high;
            uintptr_t page = from & ~(uintptr_t)(PAGE - 1);
            mprotect((void *)page, to - page, PROT_READ | PROT_WRITE);
        }
}
/* Notes that it was touched, as far as it is guarded. */
void vg_note_range(const void *data, size_t size, int is_write) {
    uintptr_t low = (uintptr_t)data, high = low + size;
    for (int i = 0; i < guard_count; i++)
        if (low < guards[i].high && guards[i].low < high) {
            uintptr_t from = low > guards[i].low ? low : guards[i].low, to = high < guards[i].high ? high : guards[i].high;
            note(from, to - from, is_write, NULL);
        }
}
