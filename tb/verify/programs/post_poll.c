/* Measures the processor time of posting and polling in the library: `post_poll ROUNDS`, with two QPs of this host.
 * In a round, 64 small writes are posted one by one and, when all of them are done, polled one by one; then the same
 * with a single write. Prints nanoseconds of a post and a poll together: the mean and the median for 64, and the median
 * for single writes, where every post has to wake the daemon.
 *
 * post_poll spin SECONDS: polls an empty queue without pause, as perftest does; prints the fraction of a processor that
 * this took, and the microseconds of a poll. Between these polls it sleeps for a millisecond after each 400 readings of
 * the clock, and prints the same numbers of that, which depend on the machine alone. post_poll idle SECONDS: connects
 * and sleeps. */
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "connect.h"

#define BYTES 64
#define DEPTH 64
#define AT_ONCE 4000 /* polls before as many readings of the clock */
#define NAP 400

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int post(struct ibv_qp *qp, struct ibv_mr *mr, size_t from) {
    struct ibv_sge sge = { .addr = (uintptr_t)mr->addr + from, .length = BYTES, .lkey = mr->lkey };
    struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
        .opcode = IBV_WR_RDMA_WRITE, .wr.rdma = { .remote_addr = (uintptr_t)mr->addr + 2 * BYTES, .rkey = mr->rkey } };
    return ibv_post_send(qp, &wr, &bad);
}

/* Return the nanoseconds of a round: post `depth` requests; when all of them are done, poll them one by one. */
static double round_of(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr, int depth, unsigned char number) {
    volatile unsigned char *memory = mr->addr;
    struct ibv_wc wc;
    double at = now(CLOCK_THREAD_CPUTIME_ID), posts, polls;
    memory[BYTES] = number; /* this byte is written last */
    for (int i = 0; i < depth; i++)
        if (post(qp, mr, i == depth - 1 ? BYTES : 0)) exit(4);
    posts = now(CLOCK_THREAD_CPUTIME_ID) - at;
    while (memory[2 * BYTES] != number) usleep(500);
    usleep(20000); /* until the last one is acknowledged */
    at = now(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < depth;) {
        int n = ibv_poll_cq(cq, 1, &wc);
        if (n < 0 || (n && wc.status)) exit(5);
        i += n;
    }
    polls = now(CLOCK_THREAD_CPUTIME_ID) - at;
    return posts + polls;
}

static int rounds(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_mr *mr, int count) {
    double *took = malloc((size_t)count * sizeof *took), *alone = malloc((size_t)count * sizeof *alone), sum = 0;
    for (int i = 0; i < count; i++) {
        took[i] = round_of(qp, cq, mr, DEPTH, (unsigned char)(2 * i + 1)) / DEPTH;
        alone[i] = round_of(qp, cq, mr, 1, (unsigned char)(2 * i + 2));
        sum += took[i];
    }
    qsort(took, (size_t)count, sizeof *took, compare);
    qsort(alone, (size_t)count, sizeof *alone, compare);
    printf("mean %.0f median %.0f alone %.0f\n", sum / count, took[count / 2], alone[count / 2]);
    return 0;
}

static int spin(struct ibv_cq *cq, double seconds) {
    struct ibv_wc wc;
    double end = now(CLOCK_MONOTONIC) + seconds * 1e9, took[2] = { 0 }, used[2] = { 0 };
    long rounds = 0;
    for (; now(CLOCK_MONOTONIC) < end; rounds++)
        for (int alone = 0; alone < 2; alone++) {
            double start = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID), at = start;
            for (int n = 1; n <= AT_ONCE; at = now(CLOCK_MONOTONIC), n++) {
                if (!alone && ibv_poll_cq(cq, 1, &wc)) return 6;
                if (alone && n % NAP == 0) poll(NULL, 0, 1);
            }
            took[alone] += at - start;
            used[alone] += now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        }
    double polls = (double)rounds * AT_ONCE;
    printf("part %.5f each %.3f, alone part %.5f each %.3f\n", used[0] / took[0], took[0] / 1000 / polls,
           used[1] / took[1], took[1] / 1000 / polls);
    return 0;
}

int main(int count, char **arguments) {
    static char memory[4096];
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list && *list ? ibv_open_device(*list) : NULL;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    if (!pd || count < 2) return 1;
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct ibv_cq *cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
    struct ibv_qp *qp = ibv_create_qp(pd, &attr), *peer = ibv_create_qp(pd, &attr);
    union ibv_gid gid;
    if (!mr || !qp || !peer || ibv_query_gid(context, 1, 0, &gid)) return 2;
    if (to_rts(qp, gid, peer->qp_num, 0, 0) || to_rts(peer, gid, qp->qp_num, 0, 0)) return 3;
    puts("ready");
    fflush(stdout);
    if (!strcmp(arguments[1], "spin")) return spin(cq, atof(arguments[2]));
    if (!strcmp(arguments[1], "idle")) return sleep((unsigned)atoi(arguments[2])) != 0;
    return rounds(qp, cq, mr, atoi(arguments[1]));
}
