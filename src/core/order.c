/* SPDX-License-Identifier: MIT */
#include "core/order.h"

#include <stdlib.h>

static uint32_t common_divisor(uint32_t a, uint32_t b) { return b == 0 ? a : common_divisor(b, a % b); }

struct order *mag__order_new(uint32_t n)
{
    struct order *o = malloc(sizeof *o + n * sizeof o->stride[0]);
    if (o == NULL)
        return NULL;
    o->n = n;
    o->nstrides = 0;
    for (uint32_t s = 1; s <= n; s++)
        if (common_divisor(s, n) == 1)
            o->stride[o->nstrides++] = (uint16_t)s;
    return o;
}
