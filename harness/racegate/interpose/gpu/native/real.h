/* The real CUDA runtime, past whatever stands in front of it. */
#ifndef RACEGATE_REAL_H
#define RACEGATE_REAL_H
#include <stdint.h>
void *fw_real(const char *name); /* the function of that name; ends the process if there is none */
uint64_t fw_mark(uint64_t stream);
int fw_mark_done(uint64_t mark);
int fw_mark_wait(uint64_t mark);
int fw_stream_wait(uint64_t stream);
#endif
