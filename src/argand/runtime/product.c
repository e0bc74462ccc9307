// argand.runtime._native, matrix products by the BLAS inside libtorch, on plain pointers.
//
// BLAS is column-major and our C is row-major, so it is asked for C^T = B^T A^T.
#include "plan.h"
#include <stdlib.h>

typedef struct {
    const Product *product;
    const char *bias;
    char *c;
} Fill;

// Where matrix `index` of the batch starts, in elements.
static int64_t place(const Product *p, const int64_t steps[2], int64_t index) {
    return index / p->batch[1] * steps[0] + index % p->batch[1] * steps[1];
}

static int64_t batch_size(const Product *p) { return p->batch[0] * p->batch[1]; }

// Rows begin..end-1 of all batches together become the bias.
static void fill_rows(int64_t begin, int64_t end, void *context) {
    const Fill *fill = context;
    const Product *p = fill->product;
    for (int64_t i = begin; i < end; i++) {
        int64_t index = i / p->m, row = i % p->m;
        int64_t to = place(p, p->step_c, index) + row * p->ldc;
        int64_t from = place(p, p->step_bias, index) + row * p->bias_row;
        if (p->is_double) {
            double *out = (double *)fill->c + to;
            const double *in = (const double *)fill->bias + from;
            for (int64_t j = 0; j < p->n; j++)
                out[j] = in[j * p->bias_column];
        } else if (p->bias_column == 1) {
            memcpy((float *)fill->c + to, (const float *)fill->bias + from, p->n * sizeof(float));
        } else {
            float *out = (float *)fill->c + to;
            const float *in = (const float *)fill->bias + from;
            for (int64_t j = 0; j < p->n; j++)
                out[j] = in[j * p->bias_column];
        }
    }
}

static void fill_bias(const TorchLink *torch, const Product *p, const void *bias, void *c) {
    enum { SERIAL = 1 << 15 };
    Fill fill = {p, bias, c};
    int64_t rows = batch_size(p) * p->m;
    if (rows * p->n < SERIAL)
        fill_rows(0, rows, &fill);
    else
        torch->parallel_for(0, rows, 1 + SERIAL / (p->n + 1), fill_rows, &fill);
}

// BLAS takes pointers to 32-bit integers; the compiler has checked that these fit.
typedef struct {
    int m, n, k, lda, ldb, ldc;
} Shape;

static Shape shape_of(const Product *p) {
    return (Shape){(int)p->m, (int)p->n, (int)p->k, (int)p->lda, (int)p->ldb, (int)p->ldc};
}

static void multiply(const TorchLink *torch, const Product *p, const char *a, const char *b,
                     char *c) {
    const Shape s = shape_of(p);
    if (p->is_double) {
        torch->dgemm(&p->trans_b, &p->trans_a, &s.n, &s.m, &s.k, &p->alpha, (const double *)b,
                     &s.ldb, (const double *)a, &s.lda, &p->beta, (double *)c, &s.ldc);
    } else {
        float alpha = (float)p->alpha, beta = (float)p->beta;
        torch->sgemm(&p->trans_b, &p->trans_a, &s.n, &s.m, &s.k, &alpha, (const float *)b, &s.ldb,
                     (const float *)a, &s.lda, &beta, (float *)c, &s.ldc);
    }
}

// One group of equal products: BLAS spreads the batch over its threads.
static int multiply_batch(const TorchLink *torch, const Product *p, const char *a, const char *b,
                          char *c) {
    int64_t count = batch_size(p);
    const void **memory = malloc(3 * count * sizeof *memory);
    if (!memory)
        return -1;
    const void **lefts = memory, **rights = memory + count;
    void **outs = (void **)(memory + 2 * count);
    int64_t width = p->is_double ? sizeof(double) : sizeof(float);
    for (int64_t i = 0; i < count; i++) {
        lefts[i] = a + place(p, p->step_a, i) * width;
        rights[i] = b + place(p, p->step_b, i) * width;
        outs[i] = c + place(p, p->step_c, i) * width;
    }
    const int groups = 1, size = (int)count;
    const Shape s = shape_of(p);
    if (p->is_double) {
        torch->dgemm_batch(&p->trans_b, &p->trans_a, &s.n, &s.m, &s.k, &p->alpha,
                           (const double **)rights, &s.ldb, (const double **)lefts, &s.lda,
                           &p->beta, (double **)outs, &s.ldc, &groups, &size);
    } else {
        float alpha = (float)p->alpha, beta = (float)p->beta;
        torch->sgemm_batch(&p->trans_b, &p->trans_a, &s.n, &s.m, &s.k, &alpha,
                           (const float **)rights, &s.ldb, (const float **)lefts, &s.lda, &beta,
                           (float **)outs, &s.ldc, &groups, &size);
    }
    free(memory);
    return 0;
}

// A product with a zero size: nothing to write, or the bias (zero without one) times beta.
static int is_empty(const Product *p) { return !batch_size(p) || !p->m || !p->n || !p->k; }

static void write_empty(const Product *p, char *c) {
    int64_t width = p->is_double ? sizeof(double) : sizeof(float);
    for (int64_t i = 0; i < batch_size(p) * p->m; i++) {
        char *row = c + (place(p, p->step_c, i / p->m) + i % p->m * p->ldc) * width;
        for (int64_t j = 0; j < p->n; j++) {
            if (p->is_double)
                ((double *)row)[j] = p->beta ? p->beta * ((double *)row)[j] : 0.0;
            else
                ((float *)row)[j] = p->beta ? (float)p->beta * ((float *)row)[j] : 0.0f;
        }
    }
}

void argand_run_product(const TorchLink *torch, const Step *step, void *const *pointers,
                        const int64_t *numbers) {
    Product resolved = step->product;
    for (int64_t *field = resolved.batch; step->symbolic && field <= &resolved.ldc; field++)
        *field = resolve(*field, numbers);
    const Product *p = &resolved;
    const char *a = pointers[step->ids[0]], *b = pointers[step->ids[1]];
    char *c = pointers[step->ids[2]];
    if (step->n_ids == 4)
        fill_bias(torch, p, pointers[step->ids[3]], c);
    if (is_empty(p)) {
        write_empty(p, c);
        return;
    }
    if (batch_size(p) > 1 && !multiply_batch(torch, p, a, b, c))
        return;
    int64_t width = p->is_double ? sizeof(double) : sizeof(float);
    for (int64_t i = 0; i < batch_size(p); i++)
        multiply(torch, p, a + place(p, p->step_a, i) * width, b + place(p, p->step_b, i) * width,
                 c + place(p, p->step_c, i) * width);
}
