/* The part of Python's C interface that is used here, declared so that no Python headers are needed: functions whose
   signatures are the same from Python 3.11 on, and no object's layout. */
#ifndef RACEGATE_PYTHON_API_H
#define RACEGATE_PYTHON_API_H
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef struct _object PyObject;
typedef PyObject *(*fast_function)(PyObject *self, PyObject *const *args, ssize_t count);
struct method { const char *name; fast_function function; int flags; const char *doc; }; /* PyMethodDef */
enum { FAST = 0x0080 };                                                                    /* METH_FASTCALL */

extern PyObject _Py_NoneStruct, PyList_Type, PyTuple_Type, *PyExc_TypeError, *PyExc_MemoryError;
void Py_IncRef(PyObject *);
void Py_DecRef(PyObject *);
PyObject *PyCFunction_NewEx(struct method *, PyObject *self, PyObject *module);
PyObject *PyCapsule_New(void *, const char *name, void (*destroy)(PyObject *));
void *PyCapsule_GetPointer(PyObject *, const char *name);
PyObject *PyObject_GetAttrString(PyObject *, const char *);
PyObject *PyObject_CallFunctionObjArgs(PyObject *, ...);
PyObject *PyDict_GetItemString(PyObject *, const char *);
PyObject *PyDict_GetItemWithError(PyObject *, PyObject *);
int PyDict_Next(PyObject *, ssize_t *, PyObject **key, PyObject **value);
ssize_t PyDict_Size(PyObject *);
int PyObject_RichCompareBool(PyObject *, PyObject *, int);
int PySequence_Contains(PyObject *, PyObject *);
PyObject *PySequence_List(PyObject *);
PyObject *PySequence_Tuple(PyObject *);
PyObject *PyObject_Type(PyObject *);
PyObject *PyObject_GetAttr(PyObject *, PyObject *);
PyObject *PyObject_Vectorcall(PyObject *, PyObject *const *args, size_t count, PyObject *names);
PyObject *PyObject_VectorcallMethod(PyObject *name, PyObject *const *args, size_t count, PyObject *names);
PyObject *PyUnicode_InternFromString(const char *);
PyObject *PyLong_FromLong(long);
int PyObject_IsTrue(PyObject *);
PyObject *PyTuple_New(ssize_t);
PyObject *PyTuple_GetItem(PyObject *, ssize_t);
ssize_t PyTuple_Size(PyObject *);
int PyTuple_SetItem(PyObject *, ssize_t, PyObject *);
PyObject *PyList_New(ssize_t);
PyObject *PyList_GetItem(PyObject *, ssize_t);
ssize_t PyList_Size(PyObject *);
int PyList_SetItem(PyObject *, ssize_t, PyObject *);
int PyList_Append(PyObject *, PyObject *);
PyObject *PyLong_FromUnsignedLongLong(unsigned long long);
unsigned long long PyLong_AsUnsignedLongLong(PyObject *);
long PyLong_AsLong(PyObject *);
PyObject *PyBool_FromLong(long);
int PyUnicode_CompareWithASCIIString(PyObject *, const char *);
PyObject *PyErr_Occurred(void);
void PyErr_Clear(void);
PyObject *PyErr_NoMemory(void);
void PyErr_SetString(PyObject *, const char *);
PyObject *PyEval_GetFrame(void);
PyObject *PyFrame_GetCode(PyObject *);
PyObject *PyFrame_GetBack(PyObject *);
int PyFrame_GetLasti(PyObject *);
int PyFrame_GetLineNumber(PyObject *);
#endif
