/* Whether an operator's arguments are all of the host's own memory, so that nobody has to look at them any closer:
   program/hostmode.py asks it before every operator of the host. */
#include "python_api.h"

typedef unsigned long long word;
enum { TENSOR_TYPES, PLAIN_TYPES, CPU }; /* of the context */
enum { EQUAL = 2 };                      /* Py_EQ */
static PyObject *is_cpu, *data_ptr, *pin_memory;

static int is_one_of(PyObject *types, PyObject *type) {
    for (ssize_t at = 0, count = PyTuple_Size(types); at < count; at++)
        if (PyTuple_GetItem(types, at) == type) return 1;
    return 0;
}
static int is_host_tensor(PyObject *tensor, word low, word high) {
    PyObject *on_host = PyObject_GetAttr(tensor, is_cpu), *start = NULL;
    int is_so = on_host && PyObject_IsTrue(on_host);
    if (is_so) start = PyObject_VectorcallMethod(data_ptr, &tensor, 1, NULL);
    word address = start ? PyLong_AsUnsignedLongLong(start) : low;
    if (on_host) Py_DecRef(on_host);
    if (start) Py_DecRef(start);
    return is_so && (address < low || address >= high);
}
static int is_elsewhere(PyObject *context, PyObject *value, word low, word high) {
    PyObject *type = PyObject_Type(value);
    Py_DecRef(type); /* the value has it */
    if (is_one_of(PyTuple_GetItem(context, PLAIN_TYPES), type)) return 1;
    if (is_one_of(PyTuple_GetItem(context, TENSOR_TYPES), type)) return is_host_tensor(value, low, high);
    if (type != &PyList_Type) return PyObject_RichCompareBool(value, PyTuple_GetItem(context, CPU), EQUAL) == 1;
    for (ssize_t at = 0, count = PyList_Size(value); at < count; at++)
        if (!is_elsewhere(context, PyList_GetItem(value, at), low, high)) return 0;
    return 1;
}
/* are_elsewhere(args, kwargs, low, high): no argument is on the device, in [low, high) or asks for such memory. What
   cannot be told is taken for one that is. */
static PyObject *are_elsewhere(PyObject *self, PyObject *const *given, ssize_t count) {
    if (count != 4) { PyErr_SetString(PyExc_TypeError, "are_elsewhere takes 4 arguments"); return NULL; }
    word low = PyLong_AsUnsignedLongLong(given[2]), high = PyLong_AsUnsignedLongLong(given[3]);
    PyObject *key, *value;
    ssize_t at = 0;
    int are_so = 1;
    for (ssize_t i = 0, args = PyTuple_Size(given[0]); are_so && i < args; i++)
        are_so = is_elsewhere(self, PyTuple_GetItem(given[0], i), low, high);
    while (are_so && PyDict_Next(given[1], &at, &key, &value))
        are_so = is_elsewhere(self, value, low, high) && !(PyObject_RichCompareBool(key, pin_memory, EQUAL) && PyObject_IsTrue(value));
    if (PyErr_Occurred()) PyErr_Clear(); /* a tensor without an address */
    return PyBool_FromLong(are_so);
}
static struct method ARE_ELSEWHERE = {"are_elsewhere", are_elsewhere, FAST, NULL};

/* context: (types of tensors, types of plain arguments, torch's CPU device) */
PyObject *racegate_elsewhere(PyObject *context) {
    is_cpu = PyUnicode_InternFromString("is_cpu");
    data_ptr = PyUnicode_InternFromString("data_ptr");
    pin_memory = PyUnicode_InternFromString("pin_memory");
    return PyCFunction_NewEx(&ARE_ELSEWHERE, context, NULL);
}
