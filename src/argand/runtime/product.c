/* argand.runtime._native, matrix products by the BLAS inside libtorch, on plain pointers.
 *
 * BLAS is column-major and our C is row-major, so it is asked for C^T = B^T A^T. */
#include "plan.h"
#include <stdlib.h>

typedef struct {
    const Product *product;
    const char *bias;
    char *c;
} Fill;

/* Where matrix `index` of the batch starts, in elements. */
static int64_t place(const Product *p, const int64_t steps[2], int64_t index)
{
    return index / p->batch[1] * steps[0] + index % p->batch[1] * steps[1];
}

static int64_t batch_size(const Product *p) { return p->batch[0] * p->batch[1]; }

/* Rows begin..end-1 of all batches together become the bias. */
static void fill_rows(int64_t begin, int64_t end, void *context)
{
    const Fill *fill = context;
    const Product *p = fill->product;
    for (int64_t i = begin; i < end; i++) {
        int64_t index = i / p->m, row = i % p->m;
        int64_t to = place(p, p->step_c, index) + row * p->ldc;
        int64_t from = place(p, p->step_bias, index) + row * p->bias_row;
        if (p->is_double) {
            double *out = (double *)fill->c + to;
            const double *in = (const double *)fill->bias + from;
            for (int j = 0; j < p->n; j++)
                out[j] = in[j * p->bias_column];
        } else if (p->bias_column == 1) {
            memcpy((float *)fill->c + to, (const float *)fill->bias + from, p->n * sizeof(float));
        } else {
            float *out = (float *)fill->c + to;
            const float *in = (const float *)fill->bias + from;
            for (int j = 0; j < p->n; j++)
                out[j] = in[j * p->bias_column];
        }
    }
}

static void fill_bias(const TorchLink *torch, const Product *p, const void *bias, void *c)
{
    enum { SERIAL = 1 << 15 };
    Fill fill = {p, bias, c};
    int64_t rows = batch_size(p) * p->m;
    if (rows * p->n < SERIAL)
        fill_rows(0, rows, &fill);
    else
        torch->parallel_for(0, rows, 1 + SERIAL / (p->n + 1), fill_rows, &fill);
}

static void multiply(const TorchLink *torch, const Product *p, const char *a, const char *b,
                     char *c)
{
    if (p->is_double) {
        torch->dgemm(&p->trans_b, &p->trans_a, &p->n, &p->m, &p->k, &p->alpha, (const double *)b,
                     &p->ldb, (const double *)a, &p->lda, &p->beta, (double *)c, &p->ldc);
    } else {
        float alpha = (float)p->alpha, beta = (float)p->beta;
        torch->sgemm(&p->trans_b, &p->trans_a, &p->n, &p->m, &p->k, &alpha, (const float *)b,
                     &p->ldb, (const float *)a, &p->lda, &beta, (float *)c, &p->ldc);
    }
}

/* One group of equal products: BLAS spreads the batch over its threads. */
static int multiply_batch(const TorchLink *torch, const Product *p, const char *a, const char *b,
                          char *c)
{
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
    int groups = 1, size = (int)count;
    if (p->is_double) {
        torch->dgemm_batch(&p->trans_b, &p->trans_a, &p->n, &p->m, &p->k, &p->alpha,
                           (const double **)rights, &p->ldb, (const double **)lefts, &p->lda,
                           &p->beta, (double **)outs, &p->ldc, &groups, &size);
    } else {
        float alpha = (float)p->alpha, beta = (float)p->beta;
        torch->sgemm_batch(&p->trans_b, &p->trans_a, &p->n, &p->m, &p->k, &alpha,
                           (const float **)rights, &p->ldb, (const float **)lefts, &p->lda, &beta,
                           (float **)outs, &p->ldc, &groups, &size);
    }
    free(memory);
    return 0;
}

void argand_run_product(const TorchLink *torch, const Step *step, void *const *pointers)
{
    const Product *p = &step->product;
    const char *a = pointers[step->ids[0]], *b = pointers[step->ids[1]];
    char *c = pointers[step->ids[2]];
    if (step->n_ids == 4)
        fill_bias(torch, p, pointers[step->ids[3]], c);
    if (batch_size(p) > 1 && !multiply_batch(torch, p, a, b, c))
        return;
    int64_t width = p->is_double ? sizeof(double) : sizeof(float);
    for (int64_t i = 0; i < batch_size(p); i++)
        multiply(torch, p, a + place(p, p->step_a, i) * width, b + place(p, p->step_b, i) * width,
                 c + place(p, p->step_c, i) * width);
}
