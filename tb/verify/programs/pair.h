/* Two queue pairs of one context, connected to each other, and writes between them. */
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    struct ibv_device **list = ibv_get_device_list(NULL);
    union ibv_gid gid;
    if (!list || !*list || !(p->context = ibv_open_device(*list))) fail("device", "not there");
    ibv_free_device_list(list);
    p->pd = ibv_alloc_pd(p->context);
    p->cq = ibv_create_cq(p->context, 16, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = { .send_cq = p->cq, .recv_cq = p->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
    p->qp = ibv_create_qp(p->pd, &attr);
    p->peer = ibv_create_qp(p->pd, &attr);
    for (size_t i = 0; i < SMALL; i++) p->pattern[i] = (unsigned char)(i * 31 + 7);
    p->mr = ibv_reg_mr(p->pd, p->pattern, SMALL, ALL);
    if (!p->mr || ibv_query_gid(p->context, 1, 0, &gid) || to_rts(p->qp, gid, p->peer->qp_num, 0, 0)
        || to_rts(p->peer, gid, p->qp->qp_num, 0, 0)) fail("pair", "not connected");
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
        .wr.rdma = { .remote_addr = (uintptr_t)to, .rkey = rkey } };
    struct ibv_wc wc;
    int n = ibv_post_send(p->qp, &wr, &bad) ? -1 : 0;
    while (!n) n = ibv_poll_cq(p->cq, 1, &wc);
    return n < 0 ? -1 : (int)wc.status;
}
