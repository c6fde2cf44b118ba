/* Arrays as kernels see them: 4-byte elements of up to four dimensions with any strides, taken through Python's buffer
   protocol, whose layout is the same from Python 3.11 on. */
#ifndef RACEGATE_ARRAYS_H
#define RACEGATE_ARRAYS_H
#include <stdlib.h>
#include <string.h>
#include "../../../order/native/python_api.h"

typedef uint32_t word;

struct array { /* Py_buffer */
    char *data;
    PyObject *owner;
    ssize_t bytes, item_bytes;
    int is_readonly, dimensions;
    char *format;
    ssize_t *shape, *strides, *suboffsets;
    void *internal;
};
int PyObject_GetBuffer(PyObject *, struct array *, int flags);
void PyBuffer_Release(struct array *);

enum { READ = 0x1c, WRITTEN = 0x1d }; /* PyBUF_RECORDS_RO, PyBUF_RECORDS: strides and the format of elements */

static inline word *at1(const struct array *x, ssize_t i) { return (word *)(x->data + i * x->strides[0]); }
static inline word *at2(const struct array *x, ssize_t i, ssize_t j) {
    return (word *)(x->data + i * x->strides[0] + j * x->strides[1]);
}
static inline word *at3(const struct array *x, ssize_t i, ssize_t j, ssize_t k) {
    return (word *)(x->data + i * x->strides[0] + j * x->strides[1] + k * x->strides[2]);
}
static inline word *at4(const struct array *x, ssize_t i, ssize_t j, ssize_t k, ssize_t l) {
    return (word *)(x->data + i * x->strides[0] + j * x->strides[1] + k * x->strides[2] + l * x->strides[3]);
}
static inline int32_t int1(const struct array *x, ssize_t i) { return (int32_t)*at1(x, i); }
static inline int32_t int2(const struct array *x, ssize_t i, ssize_t j) { return (int32_t)*at2(x, i, j); }

/* Takes the arguments as `kinds` says, two characters each: u or i for words that are read, U or I for words that are
   written, f for floats that are read, - for words that are read or None, and the number of dimensions; =0 is a number,
   which stands in `bytes`. Says whether all are so: what is not is for the twin in Python, which knows more kinds. */
static int take_arrays(PyObject *const *args, ssize_t count, const char *kinds, struct array *arrays) {
    ssize_t taken = 0;
    memset(arrays, 0, (size_t)count * sizeof *arrays);
    if ((size_t)count * 2 != strlen(kinds)) return 0;
    for (; taken < count; taken++, kinds += 2) {
        struct array *x = &arrays[taken];
        int is_written = kinds[0] == 'U' || kinds[0] == 'I', dimensions = kinds[1] - '0';
        if (kinds[0] == '-' && args[taken] == &_Py_NoneStruct) continue;
        if (kinds[0] == '=') {
            x->bytes = PyLong_AsLong(args[taken]);
            if (!PyErr_Occurred()) continue;
            PyErr_Clear();
            break;
        }
        if (PyObject_GetBuffer(args[taken], x, is_written ? WRITTEN : READ) < 0) {
            PyErr_Clear();
            memset(x, 0, sizeof *x);
            break;
        }
        char wanted = kinds[0] == 'f' ? 'f' : kinds[0] == 'i' || kinds[0] == 'I' ? 'i' : 'I';
        int is_wanted = x->dimensions == dimensions && x->item_bytes == 4 && x->format && !x->format[1];
        if (!is_wanted || x->format[0] != wanted) break;
    }
    return taken == count;
}
static PyObject *release_arrays(struct array *arrays, ssize_t count, int is_done) {
    for (ssize_t i = 0; i < count; i++)
        if (arrays[i].owner) PyBuffer_Release(&arrays[i]);
    return PyBool_FromLong(is_done);
}
#endif
