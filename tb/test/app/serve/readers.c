/* Threads that read one extended completion queue while others post: `readers COUNT`, with two QPs of this host.
 * Every completion must be seen once, with its own fields, and every thread must end. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connect.h"

#define READERS 4
#define POSTERS 2
#define DEPTH 32
#define COUNT_MAX 100000

static struct ibv_cq_ex *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static unsigned char seen[COUNT_MAX];
static int count, next, done, twice, mixed, odd;

static uint32_t length_of(uint64_t id) { return (uint32_t)(id % 61) + 1; }

static enum ibv_wc_opcode opcode_of(uint64_t id) { return id % 3 ? IBV_WC_RDMA_WRITE : IBV_WC_RDMA_READ; }

/* Look at the current completion; return its number. */
static uint64_t look(void) {
    uint64_t id = cq->wr_id;
    for (volatile int spin = 0; spin < 50; spin++) {}
    int good = cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == opcode_of(id)
        && ibv_wc_read_byte_len(cq) == length_of(id) && cq->wr_id == id;
    if (!good) __atomic_add_fetch(&mixed, 1, __ATOMIC_SEQ_CST);
    if (id >= (uint64_t)count || __atomic_exchange_n(&seen[id], 1, __ATOMIC_SEQ_CST))
        __atomic_add_fetch(&twice, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&done, 1, __ATOMIC_SEQ_CST);
    return id;
}

static void *reader(void *unused) {
    struct ibv_poll_cq_attr plain = { 0 }, unknown = { .comp_mask = 1 };
    (void)unused;
    while (__atomic_load_n(&done, __ATOMIC_SEQ_CST) < count) {
        if (ibv_start_poll(cq, &unknown) != EINVAL) __atomic_add_fetch(&odd, 1, __ATOMIC_SEQ_CST); /* locks nothing */
        int error = ibv_start_poll(cq, &plain);
        if (error == ENOENT) continue;
        if (error) {
            __atomic_add_fetch(&odd, 1, __ATOMIC_SEQ_CST);
            return NULL;
        }
        while (look() % 4 && !(error = ibv_next_poll(cq))) {}
        ibv_end_poll(cq);
        if (error && error != ENOENT) __atomic_add_fetch(&odd, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static void *poster(void *unused) {
    (void)unused;
    for (int id; (id = __atomic_fetch_add(&next, 1, __ATOMIC_SEQ_CST)) < count;) {
        struct ibv_sge sge = { (uintptr_t)mr->addr, length_of((uint64_t)id), mr->lkey };
        struct ibv_send_wr *bad, wr = { .wr_id = (uint64_t)id, .sg_list = &sge, .num_sge = 1,
            .opcode = opcode_of((uint64_t)id) == IBV_WC_RDMA_WRITE ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
            .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)mr->addr + 64, mr->rkey } };
        int error;
        do error = ibv_post_send(qp, &wr, &bad);
        while (error == ENOMEM);
        if (error) __atomic_add_fetch(&odd, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

int main(int arguments, char **argument) {
    static char memory[4096];
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list && *list ? ibv_open_device(*list) : NULL;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
    union ibv_gid gid;
    count = arguments > 1 ? atoi(argument[1]) : 1000;
    if (!pd || count > COUNT_MAX || ibv_query_gid(context, 1, 0, &gid)) return 2;
    struct ibv_cq_init_attr_ex attr = { .cqe = 4 * DEPTH, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN };
    cq = ibv_create_cq_ex(context, &attr);
    mr = ibv_reg_mr(pd, memory, sizeof memory,
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    if (!cq || !mr) return 2;
    struct ibv_qp_init_attr init = { .send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq),
        .qp_type = IBV_QPT_RC, .cap = { DEPTH, 1, 1, 1, 0 } };
    qp = ibv_create_qp(pd, &init);
    struct ibv_qp *peer = ibv_create_qp(pd, &init);
    if (!qp || !peer || to_rts(qp, gid, peer->qp_num, 0, 0) || to_rts(peer, gid, qp->qp_num, 0, 0)) return 2;
    pthread_t threads[READERS + POSTERS];
    for (int t = 0; t < READERS + POSTERS; t++) pthread_create(&threads[t], NULL, t < READERS ? reader : poster, NULL);
    for (int t = 0; t < READERS + POSTERS; t++) pthread_join(threads[t], NULL);
    printf("%d completions, %d seen twice or unknown, %d with fields of others, %d odd errors\n", done, twice, mixed,
           odd);
    return twice || mixed || odd || done != count;
}
