/* Lanes of a program, its host threads and streams, and what each knows: the clocks of order.c. */
#ifndef RACEGATE_LANES_H
#define RACEGATE_LANES_H
#include <stddef.h>

typedef unsigned long long word;

/* By lane the last number that is known to have happened; 0 beyond `known`. */
struct clock { word *numbers; size_t known; };
/* What a stream's lane knew after it was made to wait, and the number that its thread had then. */
struct wait { word number; struct clock clock; };
/* Of a host thread, or of what one thread gives one stream. number: of what it did last
   stream: the first lane of the same stream, a thread's own; owner: the thread that gives it work, NOBODY before the first */
struct lane {
    word number;
    struct clock clock;
    long stream, owner;
    int is_host, is_blocking;
    struct wait *waits;
    size_t wait_count, wait_room;
};
/* legacy: the first lane of the legacy default stream, NOBODY: there is none */
struct lanes { struct lane **all; size_t count, room; long legacy; };
enum { NOBODY = -1 };

void *grown(void *memory, size_t size);
#define ROOM_FOR(array, count, room) \
    if ((count) == (room)) { (room) = (room) ? 2 * (room) : 4; (array) = grown((array), (room) * sizeof *(array)); }

word number_in(const struct clock *clock, size_t lane);
void know(struct clock *clock, size_t lane, word number);
void join(struct clock *clock, const struct clock *other);
/* A new lane; of a stream that has others, what its thread and its stream are. */
size_t lanes_add(struct lanes *lanes, struct lane made);
/* The lane of what a thread gives a stream. */
size_t lanes_lane_of(struct lanes *lanes, size_t thread, size_t stream);
/* The lane has done something more: its number. */
word tick(struct lanes *lanes, size_t lane);
/* A thread gives a stream an operation, through the lane that is theirs: its number. */
word lanes_issue(struct lanes *lanes, size_t thread, size_t lane);
/* A thread makes a stream wait for what a clock covers. */
void lanes_make_wait(struct lanes *lanes, size_t thread, size_t lane, const struct clock *clock);
/* Adds what comes before whatever the thread gives the stream next. */
void add_given(const struct lanes *lanes, size_t thread, size_t stream, struct clock *covered);
/* Adds what a wait of the thread for the stream covers. A wait for the legacy default stream is one for the blocking
   streams too; one for a blocking stream is none for the legacy one. */
void add_waited(const struct lanes *lanes, size_t thread, size_t stream, struct clock *covered);
void free_lanes(struct lanes *lanes);
#endif
