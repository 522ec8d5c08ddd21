/* Registers and deregisters overlapping ranges of the heap and of its stack, while threads increment every word of the
 * heap's: no increment may get lost. overlap ROUNDS SEED */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 3
#define PAGES 24
#define WORDS (PAGES * 4096 / 8)
#define HELD 6

static volatile int stop;
static unsigned long wrong;
static volatile unsigned long *words; /* thread t counts in words t, t + THREADS, ... */

static void *count(void *argument) {
    unsigned long t = (unsigned long)argument, rounds = 0;
    while (!stop) {
        for (unsigned long i = t; i < WORDS; i += THREADS) words[i]++;
        rounds++;
    }
    return (void *)rounds;
}

static int work(struct ibv_pd *pd, volatile unsigned char *memory, int rounds) {
    struct ibv_mr *held[HELD] = { 0 };
    for (int n = 0; n < rounds; n++) {
        int k = rand() % HELD;
        if (held[k] && ibv_dereg_mr(held[k])) return 2;
        size_t at = (size_t)rand() % (PAGES * 4096 - 1), size = 1 + (size_t)rand() % (PAGES * 4096 - at);
        held[k] = ibv_reg_mr(pd, (void *)(memory + at), size, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
        if (!held[k]) return 3;
    }
    for (int k = 0; k < HELD; k++)
        if (held[k] && ibv_dereg_mr(held[k])) return 4;
    return 0;
}

static int on_stack(struct ibv_pd *pd, int rounds) {
    volatile unsigned char mine[PAGES * 4096];
    for (size_t i = 0; i < sizeof mine; i++) mine[i] = (unsigned char)(i * 7);
    int result = work(pd, mine, rounds);
    for (size_t i = 0; i < sizeof mine; i++) wrong += mine[i] != (unsigned char)(i * 7);
    return result;
}

int main(int count_arguments, char **arguments) {
    int rounds = count_arguments > 1 ? atoi(arguments[1]) : 100;
    srand(count_arguments > 2 ? (unsigned)atoi(arguments[2]) : 1);
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = *list ? ibv_open_device(*list) : NULL;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    pthread_t threads[THREADS];
    void *done[THREADS];
    if (!pd) return 1;
    words = aligned_alloc(4096, WORDS * 8);
    if (!words) return 1;
    memset((void *)words, 0, WORDS * 8);
    for (unsigned long t = 0; t < THREADS; t++) pthread_create(&threads[t], NULL, count, (void *)t);
    int result = work(pd, (volatile unsigned char *)words, rounds);
    stop = 1;
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], &done[t]);
    for (unsigned long i = 0; i < WORDS; i++) wrong += words[i] != (unsigned long)done[i % THREADS] ? 8 : 0;
    if (!result) result = on_stack(pd, rounds);
    printf("%d registrations, %lu rounds of counting, %lu wrong bytes\n", 2 * rounds, (unsigned long)done[0], wrong);
    if (wrong) result = 6;
    ibv_dealloc_pd(pd);
    ibv_close_device(context);
    ibv_free_device_list(list);
    return result;
}
