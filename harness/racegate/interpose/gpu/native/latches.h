/* Latches: words in pinned memory for which streams wait. */
#ifndef RACEGATE_LATCHES_H
#define RACEGATE_LATCHES_H
void fw_open_all(void);
#endif
