/* Latches: words in pinned memory for which streams wait; marks: events that are nobody's but ours. */
#ifndef RACEGATE_LATCHES_H
#define RACEGATE_LATCHES_H
void *fw_real(const char *name);
void fw_open_all(void);
#endif
