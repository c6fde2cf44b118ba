/* The exact kernels that take most of a run's time, in C: the same words as their twins in Python, which are the
   definition. Each says whether it has done its work. What is not the regular case (floats, rows out of order, shapes
   that do not fit) it leaves to the twin, before it has written anything. */
#include "arrays.h"

enum { GOLDEN = 0x9E3779B9, POSITION = 0x85EBCA6B, DIGEST = 0xC2B2AE35, POISON = 0x7FC0FFEE, POISON_INT = 0x7F7F7F7F };

static inline word mix(word x) {
    x ^= x >> 16;
    x *= 0x7FEB352D;
    x ^= x >> 15;
    x *= 0x846CA68B;
    return x ^ x >> 16;
}
static inline ssize_t clipped(int32_t x, ssize_t last) { return x < 0 ? 0 : x > last ? last : x; }
static inline int is_block(int32_t block, ssize_t blocks) { return block > 0 && block < blocks; }
static int is_length(const struct array *x, ssize_t length) { return x->shape[0] == length; }

/* The tokens that belong to rows; -1 if query_start is not an ascending list within so many tokens. */
static ssize_t used_tokens(const struct array *query_start, ssize_t tokens) {
    ssize_t rows = query_start->shape[0] - 1;
    if (rows < 0 || int1(query_start, 0) != 0) return -1;
    for (ssize_t i = 0; i < rows; i++)
        if (int1(query_start, i) > int1(query_start, i + 1)) return -1;
    return int1(query_start, rows) <= tokens ? int1(query_start, rows) : -1;
}
static void zero_behind(const struct array *out, ssize_t used) { /* out: dense, of one row per token */
    if (out->shape[0] > used) memset(out->data + used * out->strides[0], 0, (size_t)((out->shape[0] - used) * out->strides[0]));
}
static int is_dense(const struct array *x) {
    ssize_t stride = 4;
    for (int i = x->dimensions - 1; i >= 0; i--) {
        if (x->strides[i] != stride && x->shape[i] > 1) return 0;
        stride *= x->shape[i];
    }
    return 1;
}

#define KERNEL(name, kinds)                                                                                            \
    static int run_##name(struct array *a);                                                                            \
    static PyObject *name(PyObject *self, PyObject *const *args, ssize_t count) {                                      \
        enum { COUNT = (sizeof kinds - 1) / 2 };                                                                       \
        struct array a[COUNT];                                                                                         \
        (void)self;                                                                                                    \
        if (count != COUNT) return PyBool_FromLong(0);                                                                 \
        return release_arrays(a, COUNT, take_arrays(args, count, kinds, a) && run_##name(a));                          \
    }                                                                                                                  \
    static int run_##name(struct array *a)

/* Recurrent states of rows, in scratch memory: [R, H * P * N]. */
struct rows {
    const struct array *state, *table, *query_start, *accepted, *computed, *is_decode;
    ssize_t count, used, size;
};
static word *live_states(const struct rows *rows) {
    const struct array *state = rows->state;
    word *current = malloc((size_t)(rows->count * rows->size + 1) * sizeof *current);
    for (ssize_t row = 0; current && row < rows->count; row++) {
        word *start = current + row * rows->size;
        int64_t column = (int64_t)int1(rows->accepted, row) - 1;
        int is_inside = column >= 0 && column < rows->table->shape[1];
        int32_t block = is_inside ? int2(rows->table, row, column) : 0;
        if (int1(rows->computed, row) <= 0)
            memset(start, 0, (size_t)rows->size * sizeof *start);
        else if (is_block(block, state->shape[0]))
            memcpy(start, at1(state, block), (size_t)rows->size * sizeof *start);
        else
            for (ssize_t i = 0; i < rows->size; i++) start[i] = POISON;
    }
    return current;
}
/* Stores the state after a token where the row keeps it, if it does. */
static void store_state(const struct rows *rows, ssize_t row, ssize_t token, const word *stepped) {
    ssize_t first = int1(rows->query_start, row), end = int1(rows->query_start, row + 1);
    int is_decode = int1(rows->is_decode, row) != 0;
    ssize_t column = is_decode ? token - first : 0;
    if (!(is_decode || token == end - 1) || column >= rows->table->shape[1]) return;
    int32_t block = int2(rows->table, row, column);
    if (is_block(block, rows->state->shape[0]))
        memcpy(at1(rows->state, block), stepped, (size_t)rows->size * sizeof *stepped);
}
static int are_rows(struct rows *rows, const struct array *a, ssize_t tokens) {
    *rows = (struct rows){&a[0], &a[1], &a[2], &a[3], &a[4], &a[5], a[1].shape[0], used_tokens(&a[2], tokens), 0};
    const struct array *state = rows->state;
    rows->size = state->shape[1] * state->shape[2] * state->shape[3];
    return rows->used >= 0 && is_dense(state) && is_length(&a[2], rows->count + 1) && is_length(&a[3], rows->count) &&
           is_length(&a[4], rows->count) && is_length(&a[5], rows->count);
}

/* q, k, v, b, g, dt_bias, a_log, state, state_table, query_start, accepted, computed, is_decode, out */
KERNEL(gated_delta_update, "u3u3u3u2u2u1u1U4i2i1i1i1i1U3") {
    const struct array *q = &a[0], *k = &a[1], *v = &a[2], *b = &a[3], *g = &a[4], *bias = &a[5], *state = &a[7], *out = &a[13];
    ssize_t tokens = v->shape[0], heads = v->shape[1], size = v->shape[2], keys = q->shape[1], width = q->shape[2];
    struct rows rows;
    if (!are_rows(&rows, &a[7], tokens) || !is_dense(out) || state->shape[1] != heads || state->shape[2] != size) return 0;
    if (state->shape[3] != width || !keys || heads % keys || k->shape[1] != keys || k->shape[2] != width) return 0;
    if (!is_length(q, tokens) || !is_length(k, tokens) || !is_length(b, tokens) || !is_length(g, tokens)) return 0;
    if (b->shape[1] != heads || g->shape[1] != heads || !is_length(bias, heads)) return 0;
    word *current = live_states(&rows);
    if (!current) return 0;
    for (ssize_t row = 0; row < rows.count; row++) {
        word *mine = current + row * rows.size;
        for (ssize_t t = int1(rows.query_start, row); t < int1(rows.query_start, row + 1); t++) {
            for (ssize_t h = 0; h < heads; h++) {
                ssize_t key = h / (heads / keys);
                word beta = mix(*at2(b, t, h)) * 2, decay = mix(*at2(g, t, h) + *at1(bias, h)) | 1;
                for (ssize_t p = 0; p < size; p++) {
                    word *line = mine + (h * size + p) * width, along = 0, sum = 0;
                    for (ssize_t n = 0; n < width; n++) along += line[n] * *at3(k, t, key, n);
                    word change = beta * *at3(v, t, h, p) - decay * beta * along;
                    for (ssize_t n = 0; n < width; n++) {
                        line[n] = decay * line[n] + change * *at3(k, t, key, n);
                        sum += line[n] * *at3(q, t, key, n);
                    }
                    *at3(out, t, h, p) = sum;
                }
            }
            store_state(&rows, row, t, mine);
        }
    }
    zero_behind(out, rows.used);
    free(current);
    return 1;
}

/* x, b, c, dt, dt_bias, a_log, skip, state, state_table, query_start, accepted, computed, is_decode, out */
KERNEL(mamba2_update, "u3u2u2u2u1u1u1U4i2i1i1i1i1U3") {
    const struct array *x = &a[0], *b = &a[1], *c = &a[2], *dt = &a[3], *bias = &a[4], *skip = &a[6], *state = &a[7], *out = &a[13];
    ssize_t tokens = x->shape[0], heads = x->shape[1], size = x->shape[2], width = state->shape[3];
    ssize_t groups = width ? b->shape[1] / width : 0;
    struct rows rows;
    if (!are_rows(&rows, &a[7], tokens) || !is_dense(out) || state->shape[1] != heads || state->shape[2] != size) return 0;
    if (!groups || heads % groups || b->shape[1] != groups * width || c->shape[1] != groups * width) return 0;
    if (!is_length(b, tokens) || !is_length(c, tokens) || !is_length(dt, tokens) || dt->shape[1] != heads) return 0;
    if (!is_length(bias, heads) || !is_length(skip, heads)) return 0;
    word *current = live_states(&rows);
    if (!current) return 0;
    for (ssize_t row = 0; row < rows.count; row++) {
        word *mine = current + row * rows.size;
        for (ssize_t t = int1(rows.query_start, row); t < int1(rows.query_start, row + 1); t++) {
            for (ssize_t h = 0; h < heads; h++) {
                ssize_t first = h / (heads / groups) * width;
                word decay = mix(*at2(dt, t, h) + *at1(bias, h)) | 1;
                for (ssize_t p = 0; p < size; p++) {
                    word *line = mine + (h * size + p) * width, input = *at3(x, t, h, p), sum = *at1(skip, h) * input;
                    for (ssize_t n = 0; n < width; n++) {
                        line[n] = decay * line[n] + input * *at2(b, t, first + n);
                        sum += line[n] * *at2(c, t, first + n);
                    }
                    *at3(out, t, h, p) = sum;
                }
            }
            store_state(&rows, row, t, mine);
        }
    }
    zero_behind(out, rows.used);
    free(current);
    return 1;
}

/* x, weight, window, window_block, query_start, accepted, computed, is_decode, bias, out */
KERNEL(conv_update, "u2u2U3i1i1i1i1i1-1U2") {
    const struct array *x = &a[0], *weight = &a[1], *window = &a[2], *block = &a[3], *start = &a[4], *bias = &a[8], *out = &a[9];
    ssize_t tokens = x->shape[0], channels = x->shape[1], width = weight->shape[1], capacity = window->shape[2];
    ssize_t rows = block->shape[0], used = used_tokens(start, tokens), past = width - 1;
    if (used < 0 || !is_length(start, rows + 1) || !is_dense(out) || width < 1 || capacity < past) return 0;
    for (int i = 5; i < 8; i++)
        if (!is_length(&a[i], rows)) return 0;
    if (weight->shape[0] != channels || window->shape[1] != channels) return 0;
    if (bias->data && !is_length(bias, channels)) return 0;
    /* Per row its history, then its inputs: every row has read before any writes. */
    word *inputs = malloc((size_t)((rows * past + used) * channels + 1) * sizeof *inputs);
    if (!inputs) return 0;
    for (ssize_t row = 0; row < rows; row++) {
        word *mine = inputs + (row * past + int1(start, row)) * channels;
        int64_t offset = (int64_t)int1(&a[5], row) - 1;
        int is_known = int1(&a[6], row) > 0, is_inside = is_block(int1(block, row), window->shape[0]);
        is_inside = is_inside && offset >= 0 && offset <= capacity - past;
        for (ssize_t tap = 0; tap < past; tap++)
            for (ssize_t c = 0; c < channels; c++)
                mine[tap * channels + c] = !is_known ? 0 : is_inside ? *at3(window, int1(block, row), c, offset + tap) : POISON;
        for (ssize_t t = int1(start, row); t < int1(start, row + 1); t++)
            for (ssize_t c = 0; c < channels; c++) mine[(past + t - int1(start, row)) * channels + c] = *at2(x, t, c);
    }
    for (ssize_t row = 0; row < rows; row++) {
        const word *mine = inputs + (row * past + int1(start, row)) * channels;
        ssize_t first = int1(start, row), length = int1(start, row + 1) - first;
        for (ssize_t t = 0; t < length; t++)
            for (ssize_t c = 0; c < channels; c++) {
                word sum = bias->data ? *at1(bias, c) : 0;
                for (ssize_t tap = 0; tap < width; tap++) sum += mine[(t + tap) * channels + c] * *at2(weight, c, tap);
                *at2(out, first + t, c) = mix(sum);
            }
        if (!length || !is_block(int1(block, row), window->shape[0])) continue;
        int is_decode = int1(&a[7], row) != 0;
        ssize_t from = is_decode ? 1 : length, kept = is_decode ? past - 1 + length : past;
        if (is_decode && kept > capacity) kept = capacity;
        for (ssize_t i = 0; i < kept; i++)
            for (ssize_t c = 0; c < channels; c++) *at3(window, int1(block, row), c, i) = mine[(from + i) * channels + c];
    }
    zero_behind(out, used);
    free(inputs);
    return 1;
}

/* q, cache, block_table, query_start, seq_lens, positions, out */
KERNEL(paged_attention, "u3u3i2i1i1i1U3") {
    const struct array *q = &a[0], *cache = &a[1], *table = &a[2], *start = &a[3], *lengths = &a[4], *places = &a[5], *out = &a[6];
    ssize_t tokens = q->shape[0], heads = q->shape[1], size = q->shape[2], rows = table->shape[0];
    ssize_t used = used_tokens(start, tokens), block_size = cache->shape[1], shared = size ? cache->shape[2] / (2 * size) : 0;
    if (used < 0 || !is_length(start, rows + 1) || !is_length(lengths, rows) || !is_length(places, tokens)) return 0;
    if (!is_dense(out) || !shared || heads % shared || cache->shape[2] != 2 * shared * size) return 0;
    for (ssize_t row = 0; row < rows; row++) {
        ssize_t context = table->shape[1] * block_size;
        if (int1(lengths, row) < context) context = int1(lengths, row);
        for (ssize_t t = int1(start, row); t < int1(start, row + 1); t++) {
            memset(at1(out, t), 0, (size_t)(heads * size) * sizeof(word));
            for (ssize_t j = 0; j < context && j <= int1(places, t); j++) {
                int32_t block = int2(table, row, j / block_size);
                int is_inside = is_block(block, cache->shape[0]);
                for (ssize_t h = 0; h < heads; h++) {
                    ssize_t key = h / (heads / shared) * size, value = shared * size + key;
                    word score = 0;
                    for (ssize_t p = 0; p < size; p++)
                        score += *at3(q, t, h, p) * (is_inside ? *at3(cache, block, j % block_size, key + p) : POISON);
                    for (ssize_t p = 0; p < size; p++)
                        *at3(out, t, h, p) += score * (is_inside ? *at3(cache, block, j % block_size, value + p) : POISON);
                }
            }
        }
    }
    zero_behind(out, used);
    return 1;
}

/* x, weight, bias, out */
KERNEL(linear, "u2u2-1U2") {
    const struct array *x = &a[0], *weight = &a[1], *bias = &a[2], *out = &a[3];
    ssize_t inner = x->shape[1], outer = weight->shape[0];
    if (weight->shape[1] != inner || !is_length(out, x->shape[0]) || out->shape[1] != outer) return 0;
    if (bias->data && !is_length(bias, outer)) return 0;
    for (ssize_t t = 0; t < x->shape[0]; t++)
        for (ssize_t o = 0; o < outer; o++) {
            word sum = bias->data ? *at1(bias, o) : 0;
            for (ssize_t i = 0; i < inner; i++) sum += *at2(x, t, i) * *at2(weight, o, i);
            *at2(out, t, o) = sum;
        }
    return 1;
}

/* x, weight, out */
KERNEL(norm, "u2-1U2") {
    const struct array *x = &a[0], *weight = &a[1], *out = &a[2];
    if (weight->data && !is_length(weight, x->shape[1])) return 0;
    for (ssize_t t = 0; t < x->shape[0]; t++)
        for (ssize_t i = 0; i < x->shape[1]; i++) *at2(out, t, i) = mix(*at2(x, t, i)) * (weight->data ? *at1(weight, i) : 1);
    return 1;
}

/* y, z, out */
KERNEL(gate, "u2u2U2") {
    const struct array *y = &a[0], *z = &a[1], *out = &a[2];
    if (y->shape[0] != z->shape[0] || y->shape[1] != z->shape[1]) return 0;
    for (ssize_t t = 0; t < y->shape[0]; t++)
        for (ssize_t i = 0; i < y->shape[1]; i++) *at2(out, t, i) = mix(*at2(y, t, i) + mix(*at2(z, t, i)));
    return 1;
}

/* input_ids, query_start, prev_positions, draft_lens, prev_next_token, prev_drafts */
static inline void put_input(const struct array *ids, int32_t index, int32_t value) {
    if (index >= 0 && index < ids->shape[0]) *at1(ids, index) = (word)value;
}
KERNEL(scatter_inputs, "I1i1i1i1i1i2") {
    const struct array *ids = &a[0], *start = &a[1], *previous = &a[2], *lengths = &a[3], *next = &a[4], *drafts = &a[5];
    ssize_t rows = previous->shape[0];
    if (start->shape[0] < rows + 1 || !is_length(lengths, rows) || !next->shape[0] || !drafts->shape[0]) return 0;
    for (ssize_t place = -1; place < drafts->shape[1]; place++) /* of all rows one place after another */
        for (ssize_t row = 0; row < rows; row++) {
            int32_t before = int1(previous, row);
            if (before < 0 || (place >= 0 && int1(lengths, row) <= place)) continue;
            word first = *at1(start, row + 1) - 1 - *at1(lengths, row);
            if (place < 0)
                put_input(ids, (int32_t)first, before < next->shape[0] ? int1(next, before) : POISON_INT);
            else
                put_input(ids, (int32_t)(first + 1 + (word)place), before < drafts->shape[0] ? int2(drafts, before, place) : POISON_INT);
        }
    return 1;
}

/* logits, logit_index, input_ids, positions, temperature, seed, sampled: where every row is greedy */
KERNEL(rejection_verify, "u3i2i1i1f1u1I2") {
    const struct array *logits = &a[0], *index = &a[1], *ids = &a[2], *heat = &a[4], *sampled = &a[6];
    ssize_t rows = logits->shape[0], columns = logits->shape[1], vocabulary = logits->shape[2], last = ids->shape[0] - 1;
    if (!vocabulary || last < 0 || !is_length(index, rows) || index->shape[1] != columns || !is_length(heat, rows)) return 0;
    if (!is_length(sampled, rows) || sampled->shape[1] != columns) return 0;
    for (ssize_t row = 0; row < rows; row++) {
        float warmth;
        memcpy(&warmth, at1(heat, row), sizeof warmth);
        if (warmth > 0) return 0;
        for (ssize_t j = 0; j < columns; j++)
            if (int2(index, row, j) == INT32_MAX) return 0; /* there is no input behind it */
    }
    for (ssize_t row = 0; row < rows; row++) {
        int goes_on = 1;
        for (ssize_t j = 0; j < columns; j++) {
            word best = 0, drawn = 0;
            int32_t at = int2(index, row, j);
            for (ssize_t i = 0; i < vocabulary; i++)
                if (*at3(logits, row, j, i) > best) best = *at3(logits, row, j, i), drawn = (word)i;
            *at2(sampled, row, j) = at >= 0 && goes_on ? drawn : (word)-1;
            int64_t behind = (at > 0 ? (int64_t)at : 0) + 1;
            int has_draft = j + 1 < columns && int2(index, row, j + 1) >= 0;
            goes_on = goes_on && has_draft && drawn == *at1(ids, behind < last ? behind : last);
        }
    }
    return 1;
}

/* shifted_ids, positions, slot_mapping, last_index, next_token, block_table, request_index, accept_target, truth,
   truth_digest, cache, drafts, vocab_size */
KERNEL(scripted_draft, "i1i1i1i1i1i2i1i1i2u2U3I2=0") {
    const struct array *places = &a[1], *slots = &a[2], *table = &a[5], *truth = &a[8], *digests = &a[9], *cache = &a[10], *drafts = &a[11];
    ssize_t tokens = a[0].shape[0], rows = a[3].shape[0], block_size = cache->shape[1], last = truth->shape[1] - 1;
    int32_t vocabulary = (int32_t)a[12].bytes;
    if (!tokens || !is_length(places, tokens) || !is_length(slots, tokens) || cache->shape[2] != 1 || vocabulary < 2 || vocabulary != a[12].bytes) return 0;
    if (!is_length(&a[4], rows) || !is_length(table, rows) || !is_length(&a[6], rows) || !is_length(&a[7], rows)) return 0;
    if (!is_length(drafts, rows) || !truth->shape[0] || last < 0 || !is_length(digests, truth->shape[0])) return 0;
    if (digests->shape[1] != last + 1) return 0;
    for (ssize_t t = 0; t < tokens; t++) {
        int32_t slot = int1(slots, t);
        word entry = mix(*at1(&a[0], t) * (word)GOLDEN + *at1(places, t) * (word)POSITION + 1);
        if (slot >= block_size && slot < cache->shape[0] * block_size) *at3(cache, slot / block_size, slot % block_size, 0) = entry;
    }
    for (ssize_t row = 0; row < rows; row++) {
        int32_t index = int1(&a[3], row), place = index >= 0 && index < tokens ? int1(places, index) : POISON_INT;
        ssize_t request = clipped(int1(&a[6], row), truth->shape[0] - 1);
        word digest = 0;
        for (ssize_t j = 0; j <= place && j < table->shape[1] * block_size; j++) {
            int32_t block = int2(table, row, j / block_size);
            word entry = is_block(block, cache->shape[0]) ? *at3(cache, block, j % block_size, 0) : (word)POISON;
            digest += mix(entry + (word)j * (word)DIGEST);
        }
        int is_right = int1(&a[4], row) == int2(truth, request, clipped((int32_t)((word)place + 1), last));
        is_right = is_right && digest == *at2(digests, request, clipped(place, last));
        for (ssize_t i = 0; i < drafts->shape[1]; i++) {
            word token = *at2(truth, request, clipped((int32_t)((word)place + 2 + (word)i), last));
            int32_t wrong = (int32_t)(token + 1 + mix(digest + (word)i) % (word)(vocabulary - 1)) % vocabulary;
            int is_true = is_right && i < (int32_t)(*at1(&a[7], row) - 1);
            *at2(drafts, row, i) = is_true ? token : (word)(wrong < 0 ? wrong + vocabulary : wrong);
        }
    }
    return 1;
}

static struct method METHODS[] = {
#define METHOD(name) {#name, name, FAST, NULL}
    METHOD(gated_delta_update), METHOD(mamba2_update), METHOD(conv_update), METHOD(paged_attention), METHOD(linear),
    METHOD(norm), METHOD(gate), METHOD(scatter_inputs), METHOD(rejection_verify), METHOD(scripted_draft),
};
/* The kernels, in the order of METHODS. */
PyObject *racegate_exact_kernels(void) {
    enum { COUNT = sizeof METHODS / sizeof *METHODS };
    PyObject *functions = PyTuple_New(COUNT);
    for (ssize_t i = 0; functions && i < COUNT; i++)
        PyTuple_SetItem(functions, i, PyCFunction_NewEx(&METHODS[i], NULL, NULL));
    return functions;
}
