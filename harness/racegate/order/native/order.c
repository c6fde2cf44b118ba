/* Vector clocks of all lanes and the shadow of all memory: what every event touches, and nothing that only a finding
   needs. order/interface.py says what the functions mean, and tests have them in Python too; tests/order
   holds both against reachability. Only ever called with Python's lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "lanes.h"
#include "python_api.h"

PyObject *racegate_union_of(PyObject *pairs); /* ranges.c */

/* One operation of a stream, or one host access; kept for as long as a byte remembers it. Who knows the number `also` of
   the lane `also_lane` knows it too: memory went from hand to hand. */
struct access { word index, number, also; uint32_t lane, also_lane, holders; PyObject *label, *stack; };
/* A range in which all bytes have the same history. reads: the last one of each lane since the write, oldest lane first. */
struct cell { word low, high; struct access *write, **reads; uint32_t read_count, read_room; };
/* A stretch of memory that was allocated at once. Its cells cover it without gaps. */
struct stretch { word low, high; int is_watched; struct cell *cells; size_t count, room; };
/* An earlier access to common bytes that nothing orders before the present one. */
struct race { struct access *earlier; word low, high; int earlier_writes, is_write; };
struct order {
    struct lanes lanes;
    struct stretch **stretches; size_t stretch_count, stretch_room; /* by address */
    struct stretch *last; /* looked up last */
    struct access *latest;
    int is_watched; /* the latest access touched memory that is watched */
    word events;
};

/* ---- accesses */
static struct access *hold(struct access *access) { if (access) access->holders++; return access; }
static void drop(struct access *access) {
    if (!access || --access->holders) return;
    Py_DecRef(access->label);
    Py_DecRef(access->stack);
    free(access);
}
static PyObject *taken(PyObject *object) { Py_IncRef(object); return object; }
static PyObject *none(void) { return taken(&_Py_NoneStruct); }
static PyObject *tuple_of_access(const struct access *access) {
    PyObject *tuple = PyTuple_New(5);
    if (!tuple) return NULL;
    PyTuple_SetItem(tuple, 0, PyLong_FromUnsignedLongLong(access->index));
    PyTuple_SetItem(tuple, 1, PyLong_FromUnsignedLongLong(access->lane));
    PyTuple_SetItem(tuple, 2, PyLong_FromUnsignedLongLong(access->number));
    PyTuple_SetItem(tuple, 3, taken(access->label));
    PyTuple_SetItem(tuple, 4, taken(access->stack));
    return tuple;
}

/* ---- clocks */
static PyObject *list_of_clock(const struct clock *clock) {
    size_t count = clock->known;
    PyObject *list = PyList_New((ssize_t)count);
    for (size_t i = 0; list && i < count; i++)
        PyList_SetItem(list, (ssize_t)i, PyLong_FromUnsignedLongLong(clock->numbers[i]));
    return list;
}
static void join_list(struct clock *clock, PyObject *list) {
    for (ssize_t i = PyList_Size(list) - 1; i >= 0; i--)
        know(clock, (size_t)i, PyLong_AsUnsignedLongLong(PyList_GetItem(list, i)));
}

/* ---- the shadow: after FastTrack (Flanagan and Freund 2009) */
static void forget_reads(struct cell *cell) {
    for (uint32_t i = 0; i < cell->read_count; i++) drop(cell->reads[i]);
    cell->read_count = 0;
}
static void empty(struct cell *cell) {
    forget_reads(cell);
    free(cell->reads);
    drop(cell->write);
    *cell = (struct cell){0};
}
static void free_stretch(struct stretch *stretch) {
    for (size_t i = 0; i < stretch->count; i++) empty(&stretch->cells[i]);
    free(stretch->cells);
    free(stretch);
}
/* How many stretches begin at or below the address. */
static size_t stretches_up_to(const struct order *order, word address) {
    size_t low = 0, high = order->stretch_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (order->stretches[middle]->low <= address) low = middle + 1; else high = middle;
    }
    return low;
}
static struct stretch *find(struct order *order, word address) {
    struct stretch *last = order->last;
    if (last && last->low <= address && address < last->high) return last;
    size_t at = stretches_up_to(order, address);
    if (!at || address >= order->stretches[at - 1]->high) return NULL;
    return order->last = order->stretches[at - 1];
}
/* Index of the cell that holds the address; the count of cells if none does. */
static size_t cell_of(const struct stretch *stretch, word address) {
    size_t low = 0, high = stretch->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (stretch->cells[middle].high <= address) low = middle + 1; else high = middle;
    }
    return low;
}
/* Index of the cell that starts at `at`, cutting the one around it. */
static size_t cut(struct stretch *stretch, word at) {
    size_t index = cell_of(stretch, at);
    if (index == stretch->count || stretch->cells[index].low == at) return index;
    ROOM_FOR(stretch->cells, stretch->count, stretch->room)
    memmove(&stretch->cells[index + 1], &stretch->cells[index], (stretch->count - index) * sizeof(struct cell));
    stretch->count++;
    struct cell *left = &stretch->cells[index], *right = left + 1;
    left->high = right->low = at;
    hold(right->write);
    if (left->reads) {
        right->reads = grown(NULL, left->read_room * sizeof *left->reads);
        for (uint32_t i = 0; i < left->read_count; i++) right->reads[i] = hold(left->reads[i]);
    }
    return index + 1;
}
static int knows(const struct clock *clock, const struct access *earlier) {
    if (number_in(clock, earlier->lane) >= earlier->number) return 1;
    return earlier->also && number_in(clock, earlier->also_lane) >= earlier->also;
}
static int is_unordered(const struct order *order, const struct access *earlier, const struct access *access) {
    if (!earlier || earlier->lane == access->lane) return 0;
    return !knows(&order->lanes.all[access->lane]->clock, earlier);
}
/* Races are put into words for Python when all is touched: to make an object may run code of the program. */
struct races { struct race *found; size_t count, room; };
static void note_race(struct races *races, struct access *earlier, int earlier_writes, const struct cell *cell, int is_write) {
    ROOM_FOR(races->found, races->count, races->room)
    races->found[races->count++] = (struct race){hold(earlier), cell->low, cell->high, earlier_writes, is_write};
}
static PyObject *tuple_of_race(const struct race *race) {
    PyObject *tuple = PyTuple_New(5);
    if (!tuple) return NULL;
    PyTuple_SetItem(tuple, 0, tuple_of_access(race->earlier));
    PyTuple_SetItem(tuple, 1, PyBool_FromLong(race->earlier_writes));
    PyTuple_SetItem(tuple, 2, PyLong_FromUnsignedLongLong(race->low));
    PyTuple_SetItem(tuple, 3, PyLong_FromUnsignedLongLong(race->high));
    PyTuple_SetItem(tuple, 4, PyBool_FromLong(race->is_write));
    return tuple;
}
/* (the access, its races); None if there are none. */
static PyObject *report(struct access *access, struct races *races) {
    if (!races->count) return none();
    hold(access);
    PyObject *both = PyTuple_New(2), *list = PyTuple_New((ssize_t)races->count);
    for (size_t i = 0; i < races->count; i++) {
        if (list) PyTuple_SetItem(list, (ssize_t)i, tuple_of_race(&races->found[i]));
        drop(races->found[i].earlier);
    }
    if (both) PyTuple_SetItem(both, 0, tuple_of_access(access));
    if (both) PyTuple_SetItem(both, 1, list);
    drop(access);
    free(races->found);
    return both;
}
static void read_cell(struct cell *cell, struct access *access) {
    for (uint32_t i = 0; i < cell->read_count; i++)
        if (cell->reads[i]->lane == access->lane) {
            drop(cell->reads[i]);
            cell->reads[i] = hold(access);
            return;
        }
    ROOM_FOR(cell->reads, cell->read_count, cell->read_room)
    cell->reads[cell->read_count++] = hold(access);
}
static void touch(struct order *order, struct access *access, word low, word high, int is_write, struct races *races) {
    struct stretch *stretch = find(order, low);
    if (!stretch || low >= high) return;
    order->is_watched |= stretch->is_watched;
    if (high > stretch->high) high = stretch->high;
    size_t first = cut(stretch, low), last = cut(stretch, high);
    for (size_t i = first; i < last; i++) {
        struct cell *cell = &stretch->cells[i];
        if (is_unordered(order, cell->write, access)) note_race(races, cell->write, 1, cell, is_write);
        if (!is_write) { read_cell(cell, access); continue; }
        for (uint32_t r = 0; r < cell->read_count; r++)
            if (is_unordered(order, cell->reads[r], access)) note_race(races, cell->reads[r], 0, cell, 1);
    }
    if (!is_write) return;
    struct cell *written = &stretch->cells[first]; /* all bytes of a write have one history */
    for (size_t i = first + 1; i < last; i++) empty(&stretch->cells[i]);
    memmove(written + 1, &stretch->cells[last], (stretch->count - last) * sizeof(struct cell));
    stretch->count -= last - first - 1;
    forget_reads(written);
    drop(written->write);
    written->write = hold(access);
    written->high = high;
}

/* What the clock knows of these bytes is known to all who know what a lane does now. */
static struct access *adopted(struct access *access, const struct clock *clock, size_t lane, word number) {
    if (!access || !knows(clock, access)) return access;
    struct access *own = grown(NULL, sizeof *own);
    *own = *access;
    own->also = number;
    own->also_lane = (uint32_t)lane;
    own->holders = 1;
    taken(own->label);
    taken(own->stack);
    drop(access);
    return own;
}
static void adopt_bytes(struct order *order, size_t lane, const struct clock *clock, word low, word high) {
    struct stretch *stretch = find(order, low);
    word number = order->lanes.all[lane]->number;
    if (!stretch || low >= high) return;
    size_t first = cut(stretch, low), last = cut(stretch, high < stretch->high ? high : stretch->high);
    for (size_t i = first; i < last; i++) {
        struct cell *cell = &stretch->cells[i];
        cell->write = adopted(cell->write, clock, lane, number);
        for (uint32_t r = 0; r < cell->read_count; r++) cell->reads[r] = adopted(cell->reads[r], clock, lane, number);
    }
}

/* ---- what Python calls: every function gets its recorder as `self` */
static const char NAME[] = "racegate.order";
static struct order *order_of(PyObject *self) { return PyCapsule_GetPointer(self, NAME); }
static PyObject *number_of(word number) { return PyLong_FromUnsignedLongLong(number); }
static word get(PyObject *number) { return PyLong_AsUnsignedLongLong(number); }
#define FUNCTION(name, wanted) \
    static PyObject *name##_body(struct order *order, PyObject *const *args); \
    static PyObject *name(PyObject *self, PyObject *const *args, ssize_t count) { \
        if (count != (wanted)) { PyErr_SetString(PyExc_TypeError, #name " takes " #wanted " arguments"); return NULL; } \
        PyObject *result = name##_body(order_of(self), args); \
        if (!PyErr_Occurred()) return result; \
        if (result) Py_DecRef(result); \
        return NULL; \
    } \
    static PyObject *name##_body(struct order *order, PyObject *const *args)

static int has_lane(const struct order *order, word lane) {
    if (lane < order->lanes.count) return 1;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "there is no such lane");
    return 0;
}
static int has_lanes(const struct order *order, word thread, word other) { return has_lane(order, thread) && has_lane(order, other); }
static struct lane *lane_at(const struct order *order, word lane) { return order->lanes.all[lane]; }
/* A clock of what the program knows to be covered, as a list; the clock is no more. */
static PyObject *list_of_covered(struct clock *covered) {
    PyObject *list = list_of_clock(covered);
    free(covered->numbers);
    return list;
}
FUNCTION(add_lane, 3) { /* is a host thread, is the legacy default stream, is a blocking stream */
    int is_host = PyLong_AsLong(args[0]) != 0;
    size_t lane = lanes_add(&order->lanes, (struct lane){
        .stream = NOBODY, .owner = NOBODY, .is_host = is_host, .is_blocking = PyLong_AsLong(args[2]) != 0,
    });
    if (PyLong_AsLong(args[1])) order->lanes.legacy = (long)lane;
    if (is_host) tick(&order->lanes, lane);
    return number_of(lane);
}
FUNCTION(lane_of, 2) { /* the lane of what a thread gives a stream */
    word thread = get(args[0]), stream = get(args[1]);
    return has_lanes(order, thread, stream) ? number_of(lanes_lane_of(&order->lanes, thread, stream)) : NULL;
}
FUNCTION(last_number, 1) { return has_lane(order, get(args[0])) ? number_of(lane_at(order, get(args[0]))->number) : NULL; }
FUNCTION(next_number, 1) { return has_lane(order, get(args[0])) ? number_of(tick(&order->lanes, get(args[0]))) : NULL; }
FUNCTION(clock_of, 1) { return has_lane(order, get(args[0])) ? list_of_clock(&lane_at(order, get(args[0]))->clock) : NULL; }
FUNCTION(learn, 2) { /* a lane comes to know a clock */
    if (!has_lane(order, get(args[0]))) return NULL;
    join_list(&lane_at(order, get(args[0]))->clock, args[1]);
    return none();
}
FUNCTION(make_wait, 3) { /* a thread makes a lane of its wait for what a clock covers */
    word thread = get(args[0]), lane = get(args[1]);
    if (!has_lanes(order, thread, lane)) return NULL;
    struct clock clock = {0};
    join_list(&clock, args[2]);
    lanes_make_wait(&order->lanes, thread, lane, &clock);
    free(clock.numbers);
    return none();
}
FUNCTION(put, 2) { /* a thread puts an operation on a lane of its: its number there */
    word thread = get(args[0]), lane = get(args[1]);
    return has_lanes(order, thread, lane) ? number_of(lanes_issue(&order->lanes, thread, lane)) : NULL;
}
FUNCTION(events, 0) { (void)args; return number_of(order->events); }
FUNCTION(count_event, 0) { (void)args; return number_of(++order->events); }
FUNCTION(record, 2) { /* an event of a thread on a stream: what it covers */
    word thread = get(args[0]), stream = get(args[1]);
    if (!has_lanes(order, thread, stream)) return NULL;
    struct clock covered = {0};
    order->events++;
    add_given(&order->lanes, thread, stream, &covered);
    join(&covered, &lane_at(order, thread)->clock);
    tick(&order->lanes, thread);
    return list_of_covered(&covered);
}
FUNCTION(stream_clock, 2) { /* what a wait of a thread for a stream covers */
    word thread = get(args[0]), stream = get(args[1]);
    if (!has_lanes(order, thread, stream)) return NULL;
    struct clock covered = {0};
    add_waited(&order->lanes, thread, stream, &covered);
    return list_of_covered(&covered);
}
/* Reads, then writes, of the latest access. */
static PyObject *touch_all(struct order *order, PyObject *reads, PyObject *writes) {
    struct races races = {0};
    PyObject *parts[2] = {reads, writes};
    for (int is_write = 0; is_write < 2; is_write++) {
        ssize_t count = PyTuple_Size(parts[is_write]);
        for (ssize_t i = 0; i < count; i++) {
            PyObject *pair = PyTuple_GetItem(parts[is_write], i);
            word low = get(PyTuple_GetItem(pair, 0)), high = get(PyTuple_GetItem(pair, 1));
            touch(order, order->latest, low, high, is_write, &races);
        }
    }
    return report(order->latest, &races);
}
static void begin_access(struct order *order, size_t lane, PyObject *label, PyObject *stack) {
    struct access *access = grown(NULL, sizeof *access);
    *access = (struct access){
        .index = ++order->events, .number = lane_at(order, lane)->number, .lane = (uint32_t)lane, .holders = 1,
        .label = taken(label), .stack = taken(stack),
    };
    drop(order->latest);
    order->latest = access;
    order->is_watched = 0;
}
FUNCTION(issue, 6) { /* thread, lane of its on a stream, label, stack, reads, writes: see report */
    word thread = get(args[0]), lane = get(args[1]);
    if (!has_lanes(order, thread, lane)) return NULL;
    lanes_issue(&order->lanes, thread, lane);
    begin_access(order, lane, args[2], args[3]);
    return touch_all(order, args[4], args[5]);
}
FUNCTION(host, 5) { /* thread, label, stack, reads, writes: likewise */
    word thread = get(args[0]);
    if (!has_lane(order, thread)) return NULL;
    begin_access(order, thread, args[1], args[2]);
    return touch_all(order, args[3], args[4]);
}
FUNCTION(latest, 0) { (void)args; return order->latest ? tuple_of_access(order->latest) : none(); }

FUNCTION(is_watched, 0) { (void)args; return PyBool_FromLong(order->is_watched); }

static void remove_stretch(struct order *order, word low) {
    size_t at = stretches_up_to(order, low);
    if (!at || order->stretches[at - 1]->low != low) return;
    free_stretch(order->stretches[at - 1]);
    order->last = NULL;
    memmove(&order->stretches[at - 1], &order->stretches[at], (order->stretch_count - at) * sizeof *order->stretches);
    order->stretch_count--;
}
FUNCTION(add_memory, 3) { /* first byte, size, is watched: its bytes have no history */
    word low = get(args[0]), size = get(args[1]);
    remove_stretch(order, low);
    struct stretch *stretch = grown(NULL, sizeof *stretch);
    *stretch = (struct stretch){.low = low, .high = low + size, .is_watched = (int)PyLong_AsLong(args[2])};
    ROOM_FOR(stretch->cells, stretch->count, stretch->room)
    stretch->cells[stretch->count++] = (struct cell){.low = low, .high = low + size};
    size_t at = stretches_up_to(order, low);
    ROOM_FOR(order->stretches, order->stretch_count, order->stretch_room)
    memmove(&order->stretches[at + 1], &order->stretches[at], (order->stretch_count - at) * sizeof *order->stretches);
    order->stretches[at] = stretch;
    order->stretch_count++;
    return none();
}
FUNCTION(remove_memory, 1) { remove_stretch(order, get(args[0])); return none(); }
FUNCTION(adopt, 5) { /* a thread, a lane of its (its own, or on a stream), a clock, first byte, one past the last */
    word thread = get(args[0]), lane = get(args[1]);
    if (!has_lanes(order, thread, lane)) return NULL;
    struct clock clock = {0};
    join_list(&clock, args[2]);
    if (lane != thread) lanes_issue(&order->lanes, thread, lane);
    adopt_bytes(order, lane, &clock, get(args[3]), get(args[4]));
    free(clock.numbers);
    return none();
}
FUNCTION(is_memory, 1) { return PyBool_FromLong(find(order, get(args[0])) != NULL); }
FUNCTION(unwritten, 3) { /* first byte, one past the last, an event: what nothing has written since */
    word low = get(args[0]), high = get(args[1]), since = get(args[2]);
    struct stretch *stretch = find(order, low);
    PyObject *pairs = PyList_New(0);
    if (stretch && high > stretch->high) high = stretch->high;
    for (size_t i = stretch ? cell_of(stretch, low) : 0; stretch && pairs && i < stretch->count; i++) {
        const struct cell *cell = &stretch->cells[i];
        if (cell->low >= high) break;
        if (cell->write && cell->write->index > since) continue;
        PyObject *pair = PyTuple_New(2);
        if (!pair) break;
        PyTuple_SetItem(pair, 0, number_of(cell->low > low ? cell->low : low));
        PyTuple_SetItem(pair, 1, number_of(cell->high < high ? cell->high : high));
        PyList_Append(pairs, pair);
        Py_DecRef(pair);
    }
    PyObject *ranges = pairs ? racegate_union_of(pairs) : NULL;
    if (pairs) Py_DecRef(pairs);
    return ranges;
}
FUNCTION(count_cells, 0) {
    size_t count = 0;
    (void)args;
    for (size_t i = 0; i < order->stretch_count; i++) count += order->stretches[i]->count;
    return number_of(count);
}

static void destroy(PyObject *capsule) {
    struct order *order = order_of(capsule);
    while (order->stretch_count) free_stretch(order->stretches[--order->stretch_count]);
    free_lanes(&order->lanes);
    drop(order->latest);
    free(order->stretches);
    free(order);
}
static struct method METHODS[] = {
    {"add_lane", add_lane, FAST, NULL}, {"lane_of", lane_of, FAST, NULL}, {"last_number", last_number, FAST, NULL},
    {"next_number", next_number, FAST, NULL}, {"clock_of", clock_of, FAST, NULL}, {"learn", learn, FAST, NULL},
    {"make_wait", make_wait, FAST, NULL}, {"put", put, FAST, NULL}, {"events", events, FAST, NULL}, {"count_event", count_event, FAST, NULL},
    {"record", record, FAST, NULL}, {"stream_clock", stream_clock, FAST, NULL}, {"issue", issue, FAST, NULL},
    {"host", host, FAST, NULL}, {"latest", latest, FAST, NULL}, {"is_watched", is_watched, FAST, NULL}, {"add_memory", add_memory, FAST, NULL},
    {"adopt", adopt, FAST, NULL}, {"remove_memory", remove_memory, FAST, NULL}, {"is_memory", is_memory, FAST, NULL},
    {"unwritten", unwritten, FAST, NULL}, {"count_cells", count_cells, FAST, NULL},
};
/* The functions of a new recorder, in the order of METHODS. */
PyObject *racegate_order(void) {
    enum { COUNT = sizeof METHODS / sizeof *METHODS };
    struct order *order = grown(NULL, sizeof *order);
    *order = (struct order){.lanes.legacy = NOBODY};
    PyObject *self = PyCapsule_New(order, NAME, destroy), *functions = self ? PyTuple_New(COUNT) : NULL;
    for (ssize_t i = 0; functions && i < COUNT; i++)
        PyTuple_SetItem(functions, i, PyCFunction_NewEx(&METHODS[i], self, NULL));
    if (self) Py_DecRef(self);
    return functions;
}
