/* Two queue pairs of one context, connected to each other, and writes between them. */
#pragma once
#include "connect.h"

#define SMALL 10000
#define ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

struct pair {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp, *peer;
    struct ibv_mr *mr; /* of `pattern` */
    unsigned char pattern[SMALL];
};

static void fail(const char *kind, const char *what) {
    printf("%s: %s, %s\n", kind, what, strerror(errno));
    exit(1);
}

static struct pair *open_pair(void) {
    struct pair *p = calloc(1, sizeof *p);
    struct host h = open_host(NULL);
    struct ibv_qp_cap cap = { 4, 1, 1, 1, 0 };
    p->context = h.context;
    p->pd = h.pd;
    p->cq = h.cq;
    NEED((p->qp = new_qp(&h, NULL, &cap)) && (p->peer = new_qp(&h, NULL, &cap)));
    for (size_t i = 0; i < SMALL; i++) p->pattern[i] = (unsigned char)(i * 31 + 7);
    NEED(p->mr = ibv_reg_mr(p->pd, p->pattern, SMALL, ALL));
    join(&h, p->qp, &h, p->peer);
    return p;
}

static void close_pair(struct pair *p) {
    if (ibv_destroy_qp(p->qp) || ibv_destroy_qp(p->peer) || ibv_destroy_cq(p->cq) || ibv_dereg_mr(p->mr)
        || ibv_dealloc_pd(p->pd) || ibv_close_device(p->context)) fail("pair", "not closed");
    free(p);
}

/* Write `size` bytes and return the status of the completion. */
static int moved(struct pair *p, const void *from, uint32_t lkey, void *to, uint32_t rkey, uint32_t size) {
    struct ibv_sge sge = { .addr = (uintptr_t)from, .length = size, .lkey = lkey };
    struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { .remote_addr = (uintptr_t)to, .rkey = rkey } };
    struct ibv_wc wc;
    return ibv_post_send(p->qp, &wr, &bad) ? -1 : status_of(p->cq, &wc);
}
