/* The program's frames of a Python stack: device/frames.py says which those are. A place and a stack of places are made
   once, and the same tuple is handed out whenever the program stands there again, with the same frames of libraries
   inside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "python_api.h"

/* Whose code it is. BELOW: what runs the program, no frame of it follows; LIBRARY: what the program calls for CUDA. */
enum kind { OTHER, PROGRAM, BELOW, LIBRARY };
enum { FRAMES_MAX = 8, WITHIN_MAX = 4 }; /* of the program; of a library, inside its innermost */
struct place { int at; PyObject *frame; };
struct code { PyObject *code; enum kind kind; int is_module; struct place *places; size_t count, room; };
/* A stack of places, by the one without its outermost: stack 0 has none. */
struct stack { size_t inner; PyObject *frame, *tuple; };
struct frames {
    PyObject *learn; /* the kind of a code object */
    struct code **codes; size_t code_count, code_room;   /* by address, open addressing */
    struct stack *stacks; size_t stack_count, stack_room;
    size_t *slots; size_t slot_room;                     /* of stacks, by inner and frame */
};
static const char NAME[] = "racegate.frames";

static void *cleared(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) { fputs("racegate: the recorder is out of memory\n", stderr); _exit(3); }
    return memory;
}
static size_t mixed(uintptr_t a, uintptr_t b) {
    uint64_t bits = (uint64_t)(a >> 4) * 0x9E3779B97F4A7C15ull ^ (uint64_t)b * 0xC2B2AE3D27D4EB4Full;
    return (size_t)(bits ^ bits >> 29);
}

static struct code **slot_of_code(struct code **codes, size_t room, PyObject *code) {
    size_t at = mixed((uintptr_t)code, 0) & (room - 1);
    while (codes[at] && codes[at]->code != code) at = (at + 1) & (room - 1);
    return &codes[at];
}
static struct code *new_code(struct frames *frames, PyObject *code) {
    PyObject *kind = PyObject_CallFunctionObjArgs(frames->learn, code, NULL);
    PyObject *name = kind ? PyObject_GetAttrString(code, "co_name") : NULL;
    if (!name) return NULL;
    if (2 * (frames->code_count + 1) > frames->code_room) {
        size_t room = frames->code_room ? 2 * frames->code_room : 1024;
        struct code **codes = cleared(room, sizeof *codes);
        for (size_t i = 0; i < frames->code_room; i++)
            if (frames->codes[i]) *slot_of_code(codes, room, frames->codes[i]->code) = frames->codes[i];
        free(frames->codes);
        frames->codes = codes;
        frames->code_room = room;
    }
    struct code *made = cleared(1, sizeof *made);
    Py_IncRef(code); /* so that no other gets its address */
    *made = (struct code){.code = code, .kind = (enum kind)PyLong_AsLong(kind)};
    made->is_module = !PyUnicode_CompareWithASCIIString(name, "<module>");
    Py_DecRef(name);
    Py_DecRef(kind);
    frames->code_count++;
    return *slot_of_code(frames->codes, frames->code_room, code) = made;
}
static struct code *code_of(struct frames *frames, PyObject *code) {
    struct code *known = frames->code_room ? *slot_of_code(frames->codes, frames->code_room, code) : NULL;
    return known ? known : new_code(frames, code);
}

/* Of an instruction that has none (a call that a compiler made up, a frame that is being entered), its function's. */
static PyObject *line_of(struct code *code, PyObject *frame) {
    int line = PyFrame_GetLineNumber(frame);
    return line < 0 ? PyObject_GetAttrString(code->code, "co_firstlineno") : PyLong_FromLong(line);
}
/* (file, line, qualified name of the function) of a frame: by its instruction, whose line is searched for once. */
static PyObject *place_of(struct code *code, PyObject *frame) {
    int at = PyFrame_GetLasti(frame);
    for (size_t i = 0; i < code->count; i++)
        if (code->places[i].at == at) return code->places[i].frame;
    PyObject *place = PyTuple_New(3);
    PyTuple_SetItem(place, 0, PyObject_GetAttrString(code->code, "co_filename"));
    PyTuple_SetItem(place, 1, line_of(code, frame));
    PyTuple_SetItem(place, 2, PyObject_GetAttrString(code->code, "co_qualname"));
    if (code->count == code->room) {
        struct place *places = cleared(code->room ? 2 * code->room : 4, sizeof *places);
        if (code->count) memcpy(places, code->places, code->count * sizeof *places);
        free(code->places);
        code->places = places;
        code->room = code->room ? 2 * code->room : 4;
    }
    code->places[code->count++] = (struct place){at, place};
    return place;
}
/* Whether this is the script, or the module, that the program is: what runs it follows. */
static int is_main(const struct code *code, PyObject *frame) {
    if (!code->is_module) return 0;
    PyObject *globals = PyObject_GetAttrString(frame, "f_globals");
    PyObject *name = globals ? PyDict_GetItemString(globals, "__name__") : NULL;
    int is_main = name && !PyUnicode_CompareWithASCIIString(name, "__main__");
    if (globals) Py_DecRef(globals);
    return is_main;
}

static size_t *slot_of_stack(const struct frames *frames, size_t inner, PyObject *frame) {
    size_t at = mixed((uintptr_t)frame, inner) & (frames->slot_room - 1);
    while (frames->slots[at]) {
        const struct stack *stack = &frames->stacks[frames->slots[at]];
        if (stack->inner == inner && stack->frame == frame) break;
        at = (at + 1) & (frames->slot_room - 1);
    }
    return &frames->slots[at];
}
static void more_stacks(struct frames *frames) {
    size_t room = frames->stack_room ? 2 * frames->stack_room : 64;
    struct stack *stacks = cleared(room, sizeof *stacks);
    if (frames->stacks) memcpy(stacks, frames->stacks, frames->stack_count * sizeof *stacks);
    free(frames->stacks);
    free(frames->slots);
    frames->stacks = stacks;
    frames->stack_room = room;
    frames->slot_room = 2 * room;
    frames->slots = cleared(frames->slot_room, sizeof *frames->slots);
    for (size_t i = 1; i < frames->stack_count; i++)
        *slot_of_stack(frames, stacks[i].inner, stacks[i].frame) = i;
}
static size_t longer(struct frames *frames, size_t inner, PyObject *frame) {
    size_t *slot = slot_of_stack(frames, inner, frame);
    if (*slot) return *slot;
    if (frames->stack_count == frames->stack_room) {
        more_stacks(frames);
        slot = slot_of_stack(frames, inner, frame);
    }
    frames->stacks[frames->stack_count] = (struct stack){.inner = inner, .frame = frame};
    return *slot = frames->stack_count++;
}
/* The outermost frames of a stack, innermost first. */
static PyObject *outermost(const struct frames *frames, size_t stack, ssize_t count) {
    PyObject *tuple = PyTuple_New(count);
    if (!tuple) return NULL;
    for (size_t at = stack; count--; at = frames->stacks[at].inner) {
        Py_IncRef(frames->stacks[at].frame);
        PyTuple_SetItem(tuple, count, frames->stacks[at].frame);
    }
    return tuple;
}
static PyObject *tuple_of(struct frames *frames, size_t stack, ssize_t count) {
    if (!frames->stacks[stack].tuple) {
        PyObject *tuple = outermost(frames, stack, count);
        if (!tuple) return NULL;
        frames->stacks[stack].tuple = tuple;
    }
    Py_IncRef(frames->stacks[stack].tuple);
    return frames->stacks[stack].tuple;
}

/* walk(frame, or None for the caller's) */
static PyObject *walk(PyObject *self, PyObject *const *args, ssize_t arg_count) {
    if (arg_count != 1) { PyErr_SetString(PyExc_TypeError, "walk takes 1 argument"); return NULL; }
    struct frames *frames = PyCapsule_GetPointer(self, NAME);
    PyObject *frame = args[0] == &_Py_NoneStruct ? PyEval_GetFrame() : args[0];
    size_t stack = 0;
    ssize_t count = 0;
    int within = 0;
    if (frame) Py_IncRef(frame);
    while (frame) {
        PyObject *object = PyFrame_GetCode(frame);
        struct code *code = code_of(frames, object);
        int is_last = !code || code->kind == BELOW;
        if (!is_last && code->kind == PROGRAM) {
            stack = longer(frames, stack, place_of(code, frame));
            is_last = ++count == FRAMES_MAX || is_main(code, frame);
        } else if (!is_last && code->kind == LIBRARY && !count && within < WITHIN_MAX) {
            stack = longer(frames, stack, place_of(code, frame));
            within++;
        }
        PyObject *back = is_last ? NULL : PyFrame_GetBack(frame);
        Py_DecRef(object);
        Py_DecRef(frame);
        frame = back;
    }
    return PyErr_Occurred() ? NULL : tuple_of(frames, stack, count);
}
static struct method WALK = {"walk", walk, FAST, NULL};

/* within(a tuple that walk gave): the library's frames inside it, innermost first */
static PyObject *within(PyObject *self, PyObject *const *args, ssize_t arg_count) {
    if (arg_count != 1) { PyErr_SetString(PyExc_TypeError, "within takes 1 argument"); return NULL; }
    struct frames *frames = PyCapsule_GetPointer(self, NAME);
    ssize_t count = PyTuple_Size(args[0]), depth = 0;
    if (count < 0) return NULL;
    size_t stack = count ? frames->stack_count - 1 : 0;
    while (stack && frames->stacks[stack].tuple != args[0]) stack--;
    while (stack && count--) stack = frames->stacks[stack].inner;
    for (size_t at = stack; at; at = frames->stacks[at].inner) depth++;
    return outermost(frames, stack, depth);
}
static struct method WITHIN = {"within", within, FAST, NULL};

static void destroy(PyObject *capsule) {
    struct frames *frames = PyCapsule_GetPointer(capsule, NAME);
    for (size_t i = 0; i < frames->stack_count; i++)
        if (frames->stacks[i].tuple) Py_DecRef(frames->stacks[i].tuple);
    for (size_t i = 0; i < frames->code_room; i++) {
        struct code *code = frames->codes[i];
        if (!code) continue;
        for (size_t p = 0; p < code->count; p++) Py_DecRef(code->places[p].frame);
        Py_DecRef(code->code);
        free(code->places);
        free(code);
    }
    Py_DecRef(frames->learn);
    free(frames->codes);
    free(frames->stacks);
    free(frames->slots);
    free(frames);
}
/* The functions that walk and look within, for one who says of each code object what kind it is. */
PyObject *racegate_frames(PyObject *learn) {
    struct frames *frames = cleared(1, sizeof *frames);
    frames->stack_count = 1;
    more_stacks(frames);
    Py_IncRef(learn);
    frames->learn = learn;
    PyObject *self = PyCapsule_New(frames, NAME, destroy);
    if (!self) return NULL;
    PyObject *functions = PyTuple_New(2);
    if (functions) {
        PyTuple_SetItem(functions, 0, PyCFunction_NewEx(&WALK, self, NULL));
        PyTuple_SetItem(functions, 1, PyCFunction_NewEx(&WITHIN, self, NULL));
    }
    Py_DecRef(self);
    return functions;
}
