/* The arguments of an operator whose aliases are known already: kernels/binding.py says what becomes of them, and does
   the others. */
#include "python_api.h"

enum { TENSOR, RANGES, PINNED, IS_COMPLEX }; /* of an alias */
enum { DATA_PTR, SIZE, STRIDE, DTYPE, IS_NEG, IS_CUDA, NAMES };
static const char *const TEXTS[NAMES] = {"data_ptr", "size", "stride", "dtype", "is_neg", "is_cuda"};
static PyObject *names[NAMES], *tensor_types, *plain_types;

static PyObject *asked(PyObject *tensor, int name) {
    if (name == DTYPE || name == IS_CUDA) return PyObject_GetAttr(tensor, names[name]);
    return PyObject_VectorcallMethod(names[name], &tensor, 1, NULL);
}
/* By which an alias is known: as kernels/aliases.py makes it. */
static PyObject *key_of(PyObject *tensor) {
    PyObject *key = PyTuple_New(5);
    for (int name = DATA_PTR; key && name <= IS_NEG; name++) {
        PyObject *part = asked(tensor, name);
        if (!part) { Py_DecRef(key); return NULL; }
        PyTuple_SetItem(key, name, part);
    }
    return key;
}
/* Borrowed; NULL without an error if there is none that may be taken as it is. */
static PyObject *known_alias(PyObject *aliases, PyObject *tensor) {
    PyObject *on_device = asked(tensor, IS_CUDA);
    int is_on_device = on_device && PyObject_IsTrue(on_device);
    if (on_device) Py_DecRef(on_device);
    PyObject *key = is_on_device ? key_of(tensor) : NULL;
    PyObject *alias = key ? PyDict_GetItemWithError(aliases, key) : NULL;
    if (key) Py_DecRef(key);
    if (!alias || PyTuple_GetItem(alias, PINNED) != &_Py_NoneStruct) return NULL;
    return PyObject_IsTrue(PyTuple_GetItem(alias, IS_COMPLEX)) ? NULL : alias;
}
static void take(PyObject *alias, PyObject *tensor, PyObject *parts, PyObject *back, int is_written) {
    PyObject *ranges = PyTuple_GetItem(alias, RANGES), *own = PyTuple_GetItem(alias, TENSOR);
    for (ssize_t i = 0, count = PyTuple_Size(ranges); i < count; i++) PyList_Append(parts, PyTuple_GetItem(ranges, i));
    PyObject *id = PyLong_FromVoidPtr(own);
    if (is_written) PyDict_SetItem(back, id, tensor); else PyDict_SetDefault(back, id, tensor);
    Py_DecRef(id);
}
static int contains(PyObject *some, PyObject *value) { return PySequence_Contains(some, value) > 0; }

/* bind(args, aliases, written, tensor positions, converted, reads, writes, back): how many arguments, from the first on,
   it has bound. */
static PyObject *bind(PyObject *self, PyObject *const *given, ssize_t given_count) {
    (void)self;
    if (given_count != 8) { PyErr_SetString(PyExc_TypeError, "bind takes 8 arguments"); return NULL; }
    PyObject *args = given[0], *converted = given[4], *back = given[7];
    ssize_t at = 0, count = PyTuple_Size(args);
    for (; at < count; at++) {
        PyObject *value = PyTuple_GetItem(args, at), *type = PyObject_Type(value), *position = PyLong_FromLong(at);
        int is_tensor = contains(tensor_types, type), is_bound = 0;
        if (is_tensor) {
            PyObject *alias = known_alias(given[1], value);
            int is_written = alias && contains(given[2], position);
            if (alias) {
                take(alias, value, given[is_written ? 6 : 5], back, is_written);
                PyList_Append(converted, PyTuple_GetItem(alias, TENSOR));
                is_bound = 1;
            }
        } else if (contains(plain_types, type) && (value == &_Py_NoneStruct || !contains(given[3], position))) {
            PyList_Append(converted, value);
            is_bound = 1;
        }
        Py_DecRef(type);
        Py_DecRef(position);
        if (!is_bound) break;
    }
    if (PyErr_Occurred()) PyErr_Clear(); /* a tensor without an address: the other way says what it is */
    return PyLong_FromLong(at);
}
static struct method BIND = {"bind", bind, FAST, NULL};

/* tensors, plain: the types of tensors that hold bytes, and of arguments that are passed on as they are. */
PyObject *racegate_bind(PyObject *tensors, PyObject *plain) {
    for (int name = 0; name < NAMES; name++) names[name] = PyUnicode_InternFromString(TEXTS[name]);
    Py_IncRef(tensor_types = tensors);
    Py_IncRef(plain_types = plain);
    return PyCFunction_NewEx(&BIND, NULL, NULL);
}
