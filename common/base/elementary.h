/* Elementary functions in float64 that give the same bits on every machine.
 *
 * A C library may pick another exp or cos for another processor, and two libraries differ in the
 * last bit. Where such a bit would reach a weight, a learning rate or a sampled token, these are
 * used instead: only +, -, *, /, and sqrt, each rounded as IEEE 754 says. They hold when compiled
 * without contraction (-ffp-contract=off) and without -ffast-math, as the build does. Errors
 * stay within a few units in the last place; tests/unit/test_rng.c measures them.
 */
#ifndef COMMON_BASE_ELEMENTARY_H
#define COMMON_BASE_ELEMENTARY_H

/* Natural logarithm. x = 0 gives -inf, x < 0 and NaN give NaN, +inf gives +inf. */
double elementary_log(double x);

/* e^x. Below -745.2 it is 0, above 709.8 it is +inf; NaN gives NaN. */
double elementary_exp(double x);

/* *s = sin(2 pi turns) and *c = cos(2 pi turns). Multiples of 1/4 and 1/2 turn give exactly 0, 1
 * and -1. A turn count that is not finite gives NaN. */
void elementary_sincos_turns(double *s, double *c, double turns);

#endif
