/* What op.c checks before it calls a slot: types, shapes, grains, plans. A failure is a mistake in
 * this program; the message says which operation and which of its tensors, what it is and what it
 * has to be. op: the wrapper's name; name: the tensor's name in it. */
#ifndef COMMON_BACKEND_OP_CHECK_H
#define COMMON_BACKEND_OP_CHECK_H

#include "common/backend/backend.h"

/* What may stand in a tensor. */
enum op_type {
    OP_WIDE,  /* dev->wide */
    OP_FLOAT, /* an activation or weight: dev->wide, or bf16 beside f32 */
    OP_I32,   /* token numbers */
    OP_F64    /* norms */
};

struct op_arg {
    const struct tensor *t;
    enum op_type type;
    int64_t rows, cols; /* what they have to be */
    const char *op, *name;
};

/* ST_EDTYPE, ST_ESHAPE (shape; grains that do not divide it; a stride below cols) or ST_OK. */
enum status op_check(const struct device *dev, struct op_arg arg);

/* Checks tensor pointer t of the wrapper in which it stands. */
#define CHECK_TENSOR(t, type, rows, cols) \
    TRY(op_check(dev, (struct op_arg){(t), (type), (rows), (cols), __func__, #t}))

/* A plan whose samples share `rows` rows evenly. */
enum status op_check_plan(const struct sample_plan *plan, int64_t rows, const char *op);

/* Operands and grains of one matrix product. */
enum status op_check_gemm(const struct device *dev, const struct gemm *g);

/* Sizes of attention, its tensors, and (dat not NULL) those of its gradients. */
enum status op_check_attention(const struct device *dev, const struct attention *at,
                               const struct attention *dat, const char *op);

/* The tensors of a backward of SwiGLU. */
enum status op_check_swiglu_grad(const struct device *dev, const struct swiglu_grad *d,
                                 const char *op);

#endif
