/* SPDX-License-Identifier: MIT */
/* sieve: prime numbers by a chain of goroutines, each of which drops the multiples of one prime. Usage: sieve [primes] */
#include <magpie.h>
#include <stdio.h>
#include <stdlib.h>

MAG_CHAN_TYPE(ints, int);

static mag_group all;

static void generate(void *arg)
{
    ints *out = *(ints **)arg;
    for (int i = 2; ints_send(out, i, MAG_FOREVER) == 0; i++)
        continue; /* until the group is cancelled */
}

struct filter {
    ints *in, *out;
    int prime;
};

static void filter(void *arg)
{
    struct filter *f = arg;
    int n;
    while (ints_recv(f->in, &n, MAG_FOREVER) == 0)
        if (n % f->prime != 0 && ints_send(f->out, n, MAG_FOREVER) != 0)
            break;
}

static void app(void *arg)
{
    int primes = *(int *)arg;
    ints **chain = calloc((size_t)primes + 1, sizeof *chain);
    chain[0] = ints_new(0);
    MAG_GROUP_GO(&all, generate, ints *, chain[0]);
    for (int i = 0; i < primes; i++) {
        int prime;
        ints_recv(chain[i], &prime, MAG_FOREVER);
        printf("%d%c", prime, i + 1 == primes || i % 10 == 9 ? '\n' : ' ');
        chain[i + 1] = ints_new(0);
        MAG_GROUP_GO(&all, filter, struct filter, chain[i], chain[i + 1], prime);
    }
    mag_group_end(&all); /* every goroutine of the chain ends here */
    for (int i = 0; i <= primes; i++)
        ints_unref(chain[i]);
    free(chain);
}

int main(int argc, char **argv)
{
    int primes = argc > 1 ? atoi(argv[1]) : 100;
    return primes > 0 && mag_run(app, &primes) == 0 ? 0 : 1;
}
