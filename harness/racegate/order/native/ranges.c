/* The union of byte ranges: order/ranges.py says what that is. */
#include <stdlib.h>
#include "python_api.h"

typedef unsigned long long word;
struct range { word low, high; };

static int by_low(const void *a, const void *b) {
    const struct range *first = a, *second = b;
    return (first->low > second->low) - (first->low < second->low);
}
static PyObject *tuple_of_ranges(const struct range *ranges, ssize_t count) {
    PyObject *tuple = PyTuple_New(count);
    for (ssize_t i = 0; tuple && i < count; i++) {
        PyObject *pair = PyTuple_New(2);
        PyTuple_SetItem(pair, 0, PyLong_FromUnsignedLongLong(ranges[i].low));
        PyTuple_SetItem(pair, 1, PyLong_FromUnsignedLongLong(ranges[i].high));
        PyTuple_SetItem(tuple, i, pair);
    }
    return tuple;
}
/* pairs: a list. */
PyObject *racegate_union_of(PyObject *pairs) {
    ssize_t count = PyList_Size(pairs), used = 0;
    struct range room[8], *ranges = count <= 8 ? room : malloc((size_t)count * sizeof *ranges);
    if (!ranges) return PyErr_NoMemory();
    for (ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyList_GetItem(pairs, i);
        ranges[i].low = PyLong_AsUnsignedLongLong(PyTuple_GetItem(pair, 0));
        ranges[i].high = PyLong_AsUnsignedLongLong(PyTuple_GetItem(pair, 1));
    }
    if (count > 1) qsort(ranges, (size_t)count, sizeof *ranges, by_low);
    for (ssize_t i = 0; i < count; i++) {
        if (ranges[i].high <= ranges[i].low) continue;
        if (used && ranges[i].low <= ranges[used - 1].high) {
            if (ranges[i].high > ranges[used - 1].high) ranges[used - 1].high = ranges[i].high;
        } else {
            ranges[used++] = ranges[i];
        }
    }
    PyObject *tuple = PyErr_Occurred() ? NULL : tuple_of_ranges(ranges, used);
    if (ranges != room) free(ranges);
    return tuple;
}
/* union(list of pairs) */
static PyObject *union_of(PyObject *self, PyObject *const *args, ssize_t count) {
    (void)self;
    if (count == 1 && PyList_Size(args[0]) >= 0) return racegate_union_of(args[0]);
    PyErr_SetString(PyExc_TypeError, "union takes a list of pairs");
    return NULL;
}
static struct method UNION = {"union", union_of, FAST, NULL};
PyObject *racegate_union(void) { return PyCFunction_NewEx(&UNION, NULL, NULL); }
