/* One operator whose arguments are tensors on the device, numbers and lists of such: bound, computed, and its results
   made, in one call from Python. What becomes of arguments of any other kind, kernels/binding.py says. */
#include <stddef.h>
#include <string.h>
#include "python_api.h"

PyObject *racegate_union_of(PyObject *pairs); /* order/native/ranges.c */

typedef unsigned long long word;
enum { VALUES_MAX = 24, TENSORS_MAX = 64 };
enum { ALIAS_TENSOR, ALIAS_RANGES, ALIAS_PINNED, ALIAS_IS_COMPLEX };
enum { KERNEL, WITH_NUMBER, TENSORS, WRITES, WRITES_NAMED };
enum { DATA_PTR, SIZE, STRIDE, DTYPE, IS_NEG, IS_CUDA, NAMES };
static const char *const TEXTS[NAMES] = {"data_ptr", "size", "stride", "dtype", "is_neg", "is_cuda"};
static PyObject *names[NAMES];

/* What racegate_operators is given; library.py says what each is. */
enum { TENSOR_TYPES, PLAIN_TYPES, ITEM_SIZES, ALIASES, FIND_ALIAS, EMPTY, MAKE, CONTEXT };
/* An argument on the device. */
struct pair { PyObject *alias, *tensor; int is_written; };
enum effect { READ, WRITTEN, WRITTEN_BY_NAME };
/* values: what the kernel is called with; kept: what has to be given back; reads, writes, fresh: lists of ranges, the
   last one of results. */
struct call {
    PyObject *context, *values[VALUES_MAX], *kept[VALUES_MAX + TENSORS_MAX + 4], *reads, *writes, *fresh;
    struct pair pairs[TENSORS_MAX];
    int value_count, kept_count, pair_count, has_number; /* in the place of a tensor */
};
enum outcome { FAILED, OTHER_WAY, BOUND };

static PyObject *given(const struct call *call, int what) { return PyTuple_GetItem(call->context, what); }
static PyObject *asked(PyObject *tensor, int name) {
    if (name == DTYPE || name == IS_CUDA) return PyObject_GetAttr(tensor, names[name]);
    return PyObject_VectorcallMethod(names[name], &tensor, 1, NULL);
}
/* 1, 0, or -1 for an error. */
static int is_so(PyObject *tensor, int name) {
    PyObject *answer = asked(tensor, name);
    int truth = answer ? PyObject_IsTrue(answer) : -1;
    if (answer) Py_DecRef(answer);
    return truth;
}
static word asked_word(PyObject *tensor, int name) {
    PyObject *answer = asked(tensor, name);
    word value = answer ? PyLong_AsUnsignedLongLong(answer) : 0;
    if (answer) Py_DecRef(answer);
    return value;
}
static PyObject *type_of(PyObject *value) { /* borrowed from the value */
    PyObject *type = PyObject_Type(value);
    Py_DecRef(type);
    return type;
}
static int is_one_of(PyObject *types, PyObject *type) {
    for (ssize_t at = 0, count = PyTuple_Size(types); at < count; at++)
        if (PyTuple_GetItem(types, at) == type) return 1;
    return 0;
}
static PyObject *keep(struct call *call, PyObject *made) {
    if (made) call->kept[call->kept_count++] = made;
    return made;
}

/* ---- arguments */

/* By which an alias is known, as kernels/aliases.py makes it; NULL without an error: the tensor has no address. */
static PyObject *key_of(PyObject *tensor) {
    PyObject *key = PyTuple_New(5);
    for (int name = DATA_PTR; key && name <= IS_NEG; name++) {
        PyObject *part = asked(tensor, name);
        if (!part) { PyErr_Clear(); Py_DecRef(key); return NULL; }
        PyTuple_SetItem(key, name, part);
    }
    return key;
}
static PyObject *alias_of(struct call *call, PyObject *tensor) {
    PyObject *key = key_of(tensor), *alias = key ? PyDict_GetItemWithError(given(call, ALIASES), key) : NULL;
    if (key) Py_DecRef(key);
    if (alias && PyTuple_GetItem(alias, ALIAS_PINNED) == &_Py_NoneStruct && !PyObject_IsTrue(PyTuple_GetItem(alias, ALIAS_IS_COMPLEX))) {
        Py_IncRef(alias);
        return keep(call, alias);
    }
    return keep(call, PyObject_CallFunctionObjArgs(given(call, FIND_ALIAS), tensor, NULL));
}
static int add_ranges(PyObject *list, PyObject *ranges) {
    for (ssize_t i = 0, count = list ? PyTuple_Size(ranges) : 0; i < count; i++)
        if (PyList_Append(list, PyTuple_GetItem(ranges, i))) return 0;
    return 1;
}
/* exact: its bytes, if they are fewer than the whole. */
static enum outcome bind_tensor(struct call *call, PyObject **value, enum effect effect, PyObject *exact) {
    PyObject *tensor = *value;
    int is_on_device = is_so(tensor, IS_CUDA);
    if (is_on_device < 0) return FAILED;
    if (!is_on_device || call->pair_count == TENSORS_MAX) return OTHER_WAY;
    PyObject *alias = alias_of(call, tensor);
    if (!alias) return FAILED;
    PyObject *ranges = PyTuple_GetItem(alias, ALIAS_RANGES);
    if (effect == WRITTEN_BY_NAME && !PyTuple_Size(ranges)) return OTHER_WAY; /* it has to grow first */
    if (!add_ranges(effect == READ ? call->reads : call->writes, exact ? exact : ranges)) return FAILED;
    *value = PyTuple_GetItem(alias, ALIAS_TENSOR);
    call->pairs[call->pair_count++] = (struct pair){*value, tensor, effect != READ};
    return BOUND;
}
static enum outcome bind_list(struct call *call, PyObject **value, enum effect effect, PyObject *exact) {
    ssize_t count = PyList_Size(*value);
    PyObject *made = keep(call, PyList_New(count));
    if (!made) return FAILED;
    for (ssize_t i = 0; i < count; i++) {
        PyObject *item = PyList_GetItem(*value, i), *type = type_of(item);
        enum outcome outcome = BOUND;
        if (is_one_of(given(call, TENSOR_TYPES), type)) outcome = bind_tensor(call, &item, effect, exact);
        else if (!is_one_of(given(call, PLAIN_TYPES), type)) outcome = OTHER_WAY;
        if (outcome != BOUND) return outcome;
        Py_IncRef(item);
        PyList_SetItem(made, i, item);
    }
    *value = made;
    return BOUND;
}
static enum outcome bind_value(struct call *call, PyObject *value, enum effect effect, int is_for_tensor, PyObject *exact) {
    PyObject *type = type_of(value);
    enum outcome outcome = BOUND;
    if (call->value_count == VALUES_MAX) return OTHER_WAY;
    if (is_one_of(given(call, PLAIN_TYPES), type)) call->has_number |= is_for_tensor && value != &_Py_NoneStruct;
    else if (is_one_of(given(call, TENSOR_TYPES), type)) outcome = bind_tensor(call, &value, effect, exact);
    else if (type == &PyList_Type) outcome = bind_list(call, &value, effect, exact);
    else outcome = OTHER_WAY;
    call->values[call->value_count++] = value;
    return outcome;
}
static enum outcome bind_args(struct call *call, PyObject *plan, PyObject *args, PyObject *exact) {
    long written = PyLong_AsLong(PyTuple_GetItem(plan, WRITES)), tensors = PyLong_AsLong(PyTuple_GetItem(plan, TENSORS));
    enum outcome outcome = BOUND;
    for (ssize_t at = 0, count = PyTuple_Size(args); at < count && outcome == BOUND; at++) {
        PyObject *ranges = NULL;
        if (PyDict_Size(exact)) {
            PyObject *position = PyLong_FromLong(at);
            ranges = PyDict_GetItemWithError(exact, position);
            Py_DecRef(position);
        }
        outcome = bind_value(call, PyTuple_GetItem(args, at), written >> at & 1 ? WRITTEN : READ, tensors >> at & 1, ranges);
    }
    return outcome;
}
static enum outcome bind_named(struct call *call, PyObject *plan, PyObject *kwargs, PyObject *keys) {
    PyObject *key, *value;
    ssize_t at = 0, count = 0;
    enum outcome outcome = BOUND;
    while (outcome == BOUND && PyDict_Next(kwargs, &at, &key, &value)) {
        int is_written = PySequence_Contains(PyTuple_GetItem(plan, WRITES_NAMED), key);
        outcome = bind_value(call, value, is_written ? WRITTEN_BY_NAME : READ, 0, NULL);
        Py_IncRef(key);
        PyTuple_SetItem(keys, count++, key);
    }
    return outcome;
}

/* ---- results */

/* Bytes from the first to the last element if a tensor of this shape has each of them once, else 0. */
static word dense_size(PyObject *size, PyObject *stride, word item_size) {
    word count = 1, reach = 1;
    for (ssize_t i = 0, dims = PyTuple_Size(size); i < dims; i++) {
        word extent = PyLong_AsUnsignedLongLong(PyTuple_GetItem(size, i));
        if (!extent) return 0;
        count *= extent;
        reach += (extent - 1) * PyLong_AsUnsignedLongLong(PyTuple_GetItem(stride, i));
    }
    return count == reach ? count * item_size : 0;
}
static int add_new(struct call *call, word low, word high) {
    if (!call->fresh) return 1;
    PyObject *pair = PyTuple_New(2);
    if (!pair) return 0;
    PyTuple_SetItem(pair, 0, PyLong_FromUnsignedLongLong(low));
    PyTuple_SetItem(pair, 1, PyLong_FromUnsignedLongLong(high));
    int is_added = !PyList_Append(call->fresh, pair) && !PyList_Append(call->writes, pair);
    Py_DecRef(pair);
    return is_added;
}
/* kernels/run.py makes it, and says which bytes it has. */
static PyObject *make_otherwise(struct call *call, PyObject *value) {
    PyObject *both = PyObject_CallFunctionObjArgs(given(call, MAKE), value, NULL);
    if (!both) return NULL;
    PyObject *tensor = PyTuple_GetItem(both, 0), *ranges = PyTuple_GetItem(both, 1);
    if (add_ranges(call->writes, ranges) && add_ranges(call->fresh, ranges)) Py_IncRef(tensor); else tensor = NULL;
    Py_DecRef(both);
    return tensor;
}
/* A tensor on the device with the values of one on the host. */
static PyObject *new_tensor(struct call *call, PyObject *value) {
    PyObject *dtype = asked(value, DTYPE), *item_size = dtype ? PyDict_GetItemWithError(given(call, ITEM_SIZES), dtype) : NULL;
    PyObject *asked_size = asked(value, SIZE), *size = asked_size ? PySequence_Tuple(asked_size) : NULL, *stride = asked(value, STRIDE), *tensor = NULL;
    if (dtype && asked_size && !stride) PyErr_Clear(); /* a sparse one has none */
    word nbytes = item_size && size && stride && !is_so(value, IS_NEG) ? dense_size(size, stride, PyLong_AsUnsignedLongLong(item_size)) : 0;
    if (nbytes) {
        tensor = PyObject_CallFunctionObjArgs(given(call, EMPTY), size, stride, dtype, NULL);
        word low = tensor ? asked_word(tensor, DATA_PTR) : 0, from = tensor ? asked_word(value, DATA_PTR) : 0;
        if (low && from) memcpy((void *)low, (void *)from, nbytes);
        if (tensor && !add_new(call, low, low + nbytes)) { Py_DecRef(tensor); tensor = NULL; }
    } else if (!PyErr_Occurred()) {
        tensor = make_otherwise(call, value);
    }
    PyObject *asked_for[] = {dtype, asked_size, size, stride};
    for (int i = 0; i < 4; i++) if (asked_for[i]) Py_DecRef(asked_for[i]);
    return tensor;
}
/* The argument that a result is, borrowed: one that is written, if several are the same view. */
static PyObject *argument_of(const struct call *call, PyObject *value) {
    PyObject *tensor = NULL;
    for (int at = 0; at < call->pair_count; at++)
        if (call->pairs[at].alias == value && (!tensor || call->pairs[at].is_written)) tensor = call->pairs[at].tensor;
    return tensor;
}
static PyObject *to_device(struct call *call, PyObject *value) {
    PyObject *type = type_of(value);
    if (is_one_of(given(call, TENSOR_TYPES), type)) {
        PyObject *tensor = argument_of(call, value);
        if (tensor) Py_IncRef(tensor);
        return tensor ? tensor : new_tensor(call, value);
    }
    if (type != &PyTuple_Type && type != &PyList_Type) { Py_IncRef(value); return value; }
    PyObject *list = PySequence_List(value);
    for (ssize_t i = 0, count = list ? PyList_Size(list) : 0; list && i < count; i++) {
        PyObject *item = to_device(call, PyList_GetItem(list, i));
        if (item) PyList_SetItem(list, i, item); else { Py_DecRef(list); list = NULL; }
    }
    if (!list || type == &PyList_Type) return list;
    PyObject *tuple = PySequence_Tuple(list);
    Py_DecRef(list);
    return tuple;
}

/* ---- the whole */

/* (result, reads, writes, ranges of new tensors): what has been read is told as a union, as in kernels/run.py. */
static PyObject *told(struct call *call, PyObject *result) {
    PyObject *tuple = PyTuple_New(4);
    if (!tuple) { Py_DecRef(result); return NULL; }
    PyTuple_SetItem(tuple, 0, result);
    PyObject *lists[] = {call->reads, call->writes, call->fresh};
    for (int i = 0; i < 3; i++) {
        int is_union = lists[i] && lists[i] != call->fresh && PyList_Size(lists[i]) > 1;
        PyObject *ranges = is_union ? racegate_union_of(lists[i]) : lists[i] ? PySequence_Tuple(lists[i]) : PyTuple_New(0);
        if (!ranges) { Py_DecRef(tuple); return NULL; }
        PyTuple_SetItem(tuple, 1 + i, ranges);
    }
    return tuple;
}
static PyObject *compute(struct call *call, PyObject *plan, PyObject *args, PyObject *keys) {
    PyObject *kernel = PyTuple_GetItem(plan, call->has_number ? WITH_NUMBER : KERNEL);
    PyObject *made = PyObject_Vectorcall(kernel, call->values, (size_t)PyTuple_Size(args), keys);
    PyObject *result = made ? to_device(call, made) : NULL;
    if (made) Py_DecRef(made);
    return result ? told(call, result) : NULL;
}
/* run(plan, args, kwargs, exact, is_recording): see told; None if it has to go the other way, and nothing has happened.
   exact: by position, the bytes of an argument that is touched in part. */
static PyObject *run(PyObject *self, PyObject *const *given_args, ssize_t count) {
    if (count != 5) { PyErr_SetString(PyExc_TypeError, "run takes 5 arguments"); return NULL; }
    PyObject *plan = given_args[0], *args = given_args[1], *kwargs = given_args[2];
    struct call call;
    memset(&call, 0, offsetof(struct call, pairs));
    call.value_count = call.kept_count = call.pair_count = call.has_number = 0;
    call.context = self;
    ssize_t named = PyDict_Size(kwargs);
    PyObject *keys = named ? keep(&call, PyTuple_New(named)) : NULL, *result = NULL;
    if (PyObject_IsTrue(given_args[4])) {
        call.reads = keep(&call, PyList_New(0));
        call.writes = keep(&call, PyList_New(0));
        call.fresh = keep(&call, PyList_New(0));
    }
    enum outcome outcome = bind_args(&call, plan, args, given_args[3]);
    if (outcome == BOUND && named) outcome = bind_named(&call, plan, kwargs, keys);
    if (outcome == BOUND && !call.pair_count) outcome = OTHER_WAY;
    if (outcome == BOUND) result = compute(&call, plan, args, keys);
    else if (outcome == OTHER_WAY) Py_IncRef(result = &_Py_NoneStruct);
    while (call.kept_count) Py_DecRef(call.kept[--call.kept_count]);
    return result;
}
static struct method RUN = {"run", run, FAST, NULL};

/* context: a tuple in the order of the enumeration above. */
PyObject *racegate_operators(PyObject *context) {
    for (int name = 0; name < NAMES; name++) names[name] = PyUnicode_InternFromString(TEXTS[name]);
    return PyCFunction_NewEx(&RUN, context, NULL);
}
