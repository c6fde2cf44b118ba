/* See lanes.h. An operation has the number that its thread has when it was issued. So who knows that the thread came so
   far knows that the stream was given the operation before, and what it gives the stream itself comes after it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lanes.h"

enum { WAITS_MAX = 4096 }; /* of more, every second of the older half is forgotten */

void *grown(void *memory, size_t size) {
    void *more = realloc(memory, size ? size : 1);
    if (!more) { fputs("racegate: the recorder is out of memory\n", stderr); _exit(3); }
    return more;
}

word number_in(const struct clock *clock, size_t lane) { return lane < clock->known ? clock->numbers[lane] : 0; }
void know(struct clock *clock, size_t lane, word number) {
    if (lane >= clock->known) {
        clock->numbers = grown(clock->numbers, (lane + 1) * sizeof *clock->numbers);
        memset(clock->numbers + clock->known, 0, (lane + 1 - clock->known) * sizeof *clock->numbers);
        clock->known = lane + 1;
    }
    if (number > clock->numbers[lane]) clock->numbers[lane] = number;
}
void join(struct clock *clock, const struct clock *other) {
    if (other->known) know(clock, other->known - 1, 0);
    for (size_t i = 0; i < other->known; i++)
        if (other->numbers[i] > clock->numbers[i]) clock->numbers[i] = other->numbers[i];
}

size_t lanes_add(struct lanes *lanes, struct lane made) {
    ROOM_FOR(lanes->all, lanes->count, lanes->room)
    size_t at = lanes->count++;
    struct lane *lane = lanes->all[at] = grown(NULL, sizeof *lane);
    *lane = made;
    if (lane->stream == NOBODY) lane->stream = (long)at;
    know(&lane->clock, at, 0);
    return at;
}
size_t lanes_lane_of(struct lanes *lanes, size_t thread, size_t stream) {
    for (size_t i = stream; i < lanes->count; i++)
        if (lanes->all[i]->stream == (long)stream && lanes->all[i]->owner == (long)thread) return i;
    struct lane *first = lanes->all[stream];
    if (first->owner == NOBODY) { first->owner = (long)thread; return stream; }
    return lanes_add(lanes, (struct lane){.stream = (long)stream, .owner = (long)thread, .is_blocking = first->is_blocking});
}
word tick(struct lanes *lanes, size_t lane) {
    know(&lanes->all[lane]->clock, lane, ++lanes->all[lane]->number);
    return lanes->all[lane]->number;
}

/* What the lane knew after its last wait up to a number of its thread; NULL: it had not waited. */
static const struct clock *knew(const struct lane *lane, word number) {
    size_t low = 0, high = lane->wait_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (lane->waits[middle].number <= number) low = middle + 1; else high = middle;
    }
    return low ? &lane->waits[low - 1].clock : NULL;
}
static void thin(struct lane *lane) {
    size_t kept = 0;
    for (size_t i = 0; i < lane->wait_count; i++)
        if (i % 2 || i >= WAITS_MAX / 2) lane->waits[kept++] = lane->waits[i];
        else free(lane->waits[i].clock.numbers);
    lane->wait_count = kept;
}
static void note_wait(struct lane *lane, word number) {
    if (lane->wait_count == WAITS_MAX) thin(lane);
    ROOM_FOR(lane->waits, lane->wait_count, lane->wait_room)
    struct wait *wait = &lane->waits[lane->wait_count++];
    *wait = (struct wait){.number = number};
    join(&wait->clock, &lane->clock);
}
/* What the stream was given, as far as the thread knows. */
static void add_own(const struct lanes *lanes, size_t thread, size_t stream, struct clock *covered) {
    for (size_t i = stream; i < lanes->count; i++) {
        const struct lane *lane = lanes->all[i];
        if (lane->stream != (long)stream || lane->owner == NOBODY) continue;
        if (lane->owner == (long)thread) { join(covered, &lane->clock); continue; }
        word given = number_in(&lanes->all[thread]->clock, (size_t)lane->owner);
        const struct clock *waited = knew(lane, given);
        know(covered, i, given < lane->number ? given : lane->number);
        if (waited) join(covered, waited);
    }
}
/* The legacy default stream and the blocking streams wait for each other. Whether there was one to wait for. */
static int add_legacy(const struct lanes *lanes, size_t thread, size_t stream, struct clock *covered) {
    int has_waited = 0;
    if (lanes->legacy == NOBODY) return 0;
    if (stream != (size_t)lanes->legacy) {
        if (!lanes->all[stream]->is_blocking) return 0;
        add_own(lanes, thread, (size_t)lanes->legacy, covered);
        return 1;
    }
    for (size_t i = 0; i < lanes->count; i++)
        if (lanes->all[i]->is_blocking && lanes->all[i]->stream == (long)i) {
            add_own(lanes, thread, i, covered);
            has_waited = 1;
        }
    return has_waited;
}
void add_given(const struct lanes *lanes, size_t thread, size_t stream, struct clock *covered) {
    add_own(lanes, thread, stream, covered);
    add_legacy(lanes, thread, stream, covered);
}
void add_waited(const struct lanes *lanes, size_t thread, size_t stream, struct clock *covered) {
    add_own(lanes, thread, stream, covered);
    if ((long)stream == lanes->legacy) add_legacy(lanes, thread, stream, covered);
}
/* What a thread gives a stream comes after what it knows. Whether another stream was waited for. */
static int follow(const struct lanes *lanes, size_t thread, struct lane *lane) {
    add_own(lanes, thread, (size_t)lane->stream, &lane->clock);
    int has_waited = add_legacy(lanes, thread, (size_t)lane->stream, &lane->clock);
    join(&lane->clock, &lanes->all[thread]->clock);
    return has_waited;
}
word lanes_issue(struct lanes *lanes, size_t thread, size_t at) {
    struct lane *lane = lanes->all[at];
    int has_waited = follow(lanes, thread, lane);
    lane->number = tick(lanes, thread); /* what the thread does afterwards is not ordered before the operation */
    know(&lane->clock, at, lane->number);
    if (has_waited) note_wait(lane, lane->number);
    return lane->number;
}
void lanes_make_wait(struct lanes *lanes, size_t thread, size_t at, const struct clock *clock) {
    struct lane *lane = lanes->all[at];
    follow(lanes, thread, lane);
    join(&lane->clock, clock);
    note_wait(lane, tick(lanes, thread));
}
void free_lanes(struct lanes *lanes) {
    for (size_t i = 0; i < lanes->count; i++) {
        struct lane *lane = lanes->all[i];
        for (size_t w = 0; w < lane->wait_count; w++) free(lane->waits[w].clock.numbers);
        free(lane->waits);
        free(lane->clock.numbers);
        free(lane);
    }
    free(lanes->all);
}
