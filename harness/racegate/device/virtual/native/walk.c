/* The walk of a checkpoint and the way back: `Walk` of `check/checkpoint.py` for the kinds of objects that are many.
   What it keeps stands in Python's own lists, so collections see it. */
#include "../../../order/native/python_api.h"
#include <stdlib.h>

extern PyObject *PyExc_AttributeError, *PyExc_ValueError;
int PyErr_ExceptionMatches(PyObject *);
PyObject *PyList_GetSlice(PyObject *, ssize_t, ssize_t);
int PyList_SetSlice(PyObject *, ssize_t, ssize_t, PyObject *);
PyObject *PyDict_Copy(PyObject *);
void PyDict_Clear(PyObject *);
int PyDict_Update(PyObject *, PyObject *);
int PyDict_SetItem(PyObject *, PyObject *, PyObject *);
int PyDict_Contains(PyObject *, PyObject *);
PyObject *PyLong_FromVoidPtr(void *);
PyObject *PyObject_GenericGetAttr(PyObject *, PyObject *);
int PyObject_GenericSetAttr(PyObject *, PyObject *, PyObject *);
extern PyObject PyLong_Type;

enum { LIST = 1, DICT, TUPLE };

/* way_of: called with an object of a class that `ways` does not have; see there */
struct walk {
    PyObject *ways, *way_of, *seen, *lists, *dicts, *slots, *unset, *keeper;
    PyObject **pending;
    size_t count, room;
};
static PyObject *way_to_keep(struct walk *walk, PyObject *item) { /* borrowed; NULL with an error */
    PyObject *kind = PyObject_Type(item), *way = PyDict_GetItemWithError(walk->ways, kind);
    if (!way && !PyErr_Occurred()) {
        way = PyObject_CallFunctionObjArgs(walk->way_of, item, NULL);
        if (way && PyDict_SetItem(walk->ways, kind, way) < 0) way = NULL;
        if (way) Py_DecRef(way);
    }
    Py_DecRef(kind);
    return way;
}
static int push(struct walk *walk, PyObject *item) { /* unless it never changes */
    PyObject *way = way_to_keep(walk, item);
    if (!way) return -1;
    if (way == &_Py_NoneStruct) return 0;
    if (walk->count == walk->room) {
        size_t room = walk->room ? 2 * walk->room : 1024;
        PyObject **pending = realloc(walk->pending, room * sizeof *pending);
        if (!pending) return PyErr_NoMemory(), -1;
        walk->pending = pending, walk->room = room;
    }
    Py_IncRef(item);
    walk->pending[walk->count++] = item;
    return 0;
}
static int push_all(struct walk *walk, PyObject *members, ssize_t count, PyObject *(*get)(PyObject *, ssize_t)) {
    for (ssize_t i = 0; i < count; i++)
        if (push(walk, get(members, i)) < 0) return -1;
    return 0;
}
static int add(PyObject *list, PyObject *item, PyObject *content) { /* takes the content */
    int failed = !content || PyList_Append(list, item) < 0 || PyList_Append(list, content) < 0;
    if (content) Py_DecRef(content);
    return failed ? -1 : 0;
}
static int keep_list(struct walk *walk, PyObject *item) {
    if (add(walk->lists, item, PyList_GetSlice(item, 0, PyList_Size(item))) < 0) return -1;
    return push_all(walk, item, PyList_Size(item), PyList_GetItem);
}
static int keep_dict(struct walk *walk, PyObject *item) {
    PyObject *key, *value, *copy = PyDict_Copy(item);
    if (add(walk->dicts, item, copy) < 0) return -1;
    for (int is_value = 0; is_value < 2; is_value++) {
        ssize_t at = 0;
        while (PyDict_Next(copy, &at, &key, &value))
            if (push(walk, is_value ? value : key) < 0) return -1;
    }
    return 0;
}
static int keep_slots(struct walk *walk, PyObject *item, PyObject *names) { /* names[0]: is there a __dict__ */
    if (PyTuple_GetItem(names, 0) != &_Py_NoneStruct) {
        PyObject *own = PyObject_GenericGetAttr(item, PyTuple_GetItem(names, 0));
        int failed = !own || push(walk, own) < 0;
        if (own) Py_DecRef(own);
        if (failed) return -1;
    }
    for (ssize_t i = 1; i < PyTuple_Size(names); i++) {
        PyObject *name = PyTuple_GetItem(names, i), *value = PyObject_GenericGetAttr(item, name);
        if (!value) {
            if (!PyErr_ExceptionMatches(PyExc_AttributeError) && !PyErr_ExceptionMatches(PyExc_ValueError)) return -1;
            PyErr_Clear();
            if (PyList_Append(walk->unset, item) < 0 || PyList_Append(walk->unset, name) < 0) return -1;
            continue;
        }
        int failed = PyList_Append(walk->slots, item) < 0 || PyList_Append(walk->slots, name) < 0 ||
                     PyList_Append(walk->slots, value) < 0 || push(walk, value) < 0;
        Py_DecRef(value);
        if (failed) return -1;
    }
    return 0;
}
static int keep_otherwise(struct walk *walk, PyObject *item, PyObject *way) {
    PyObject *found = PyObject_CallFunctionObjArgs(way, walk->keeper, item, NULL), *members = found ? PySequence_Tuple(found) : NULL;
    int failed = !members || push_all(walk, members, PyTuple_Size(members), PyTuple_GetItem) < 0;
    if (found) Py_DecRef(found);
    if (members) Py_DecRef(members);
    return failed ? -1 : 0;
}
static int keep(struct walk *walk, PyObject *item) {
    PyObject *way = way_to_keep(walk, item), *key = PyLong_FromVoidPtr(item);
    int known = key && way ? PyDict_Contains(walk->seen, key) : -1;
    if (!known) known = PyDict_SetItem(walk->seen, key, item) < 0 ? -1 : 0;
    if (key) Py_DecRef(key);
    if (known) return known < 0 ? -1 : 0;
    PyObject *kind = PyObject_Type(way);
    Py_DecRef(kind);
    if (kind == &PyTuple_Type) return keep_slots(walk, item, way);
    if (kind != &PyLong_Type) return keep_otherwise(walk, item, way);
    switch (PyLong_AsLong(way)) {
    case LIST: return keep_list(walk, item);
    case DICT: return keep_dict(walk, item);
    default: return push_all(walk, item, PyTuple_Size(item), PyTuple_GetItem);
    }
}
/* roots, ways, way_of, seen, lists, dicts, slots, unset, keeper */
static PyObject *walk_from(PyObject *self, PyObject *const *args, ssize_t count) {
    (void)self;
    if (count != 9) return PyErr_SetString(PyExc_TypeError, "walk_from takes 9 arguments"), NULL;
    struct walk walk = {args[1], args[2], args[3], args[4], args[5], args[6], args[7], args[8], NULL, 0, 0};
    int failed = push_all(&walk, args[0], PyList_Size(args[0]), PyList_GetItem);
    while (!failed && walk.count) {
        PyObject *item = walk.pending[--walk.count];
        failed = keep(&walk, item);
        Py_DecRef(item);
    }
    while (walk.count) Py_DecRef(walk.pending[--walk.count]);
    free(walk.pending);
    if (failed) return NULL;
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}
/* lists, dicts, slots: the content of each is put back into the same object */
static PyObject *put_back(PyObject *self, PyObject *const *args, ssize_t count) {
    (void)self;
    if (count != 3) return PyErr_SetString(PyExc_TypeError, "put_back takes 3 arguments"), NULL;
    for (ssize_t i = 0; i < PyList_Size(args[2]); i += 3)
        if (PyObject_GenericSetAttr(PyList_GetItem(args[2], i), PyList_GetItem(args[2], i + 1), PyList_GetItem(args[2], i + 2)) < 0)
            return NULL;
    for (ssize_t i = 0; i < PyList_Size(args[0]); i += 2) {
        PyObject *item = PyList_GetItem(args[0], i);
        if (PyList_SetSlice(item, 0, PyList_Size(item), PyList_GetItem(args[0], i + 1)) < 0) return NULL;
    }
    for (ssize_t i = 0; i < PyList_Size(args[1]); i += 2) {
        PyDict_Clear(PyList_GetItem(args[1], i));
        if (PyDict_Update(PyList_GetItem(args[1], i), PyList_GetItem(args[1], i + 1)) < 0) return NULL;
    }
    Py_IncRef(&_Py_NoneStruct);
    return &_Py_NoneStruct;
}
static struct method WALK[] = {{"walk_from", walk_from, FAST, NULL}, {"put_back", put_back, FAST, NULL}};
/* The two of them. */
PyObject *racegate_walk(void) {
    PyObject *functions = PyTuple_New(2);
    for (ssize_t i = 0; functions && i < 2; i++) PyTuple_SetItem(functions, i, PyCFunction_NewEx(&WALK[i], NULL, NULL));
    return functions;
}
