/* Checks of the C programs of this folder: each wrong one prints a line, and `wrong` counts them. */
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "connect.h"

#define EVERYTHING \
    (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define CHECK(condition, ...) do { if (!(condition)) { \
    printf("line %d: %s is wrong: ", __LINE__, #condition); printf(__VA_ARGS__); puts(""); \
    fflush(stdout); wrong++; } } while (0)
#define NEED(condition) do { if (!(condition)) { \
    printf("line %d: %s fails: %s\n", __LINE__, #condition, strerror(errno)); fflush(stdout); exit(2); } } while (0)

static int wrong;

static inline double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Wait up to ten seconds for one completion; return its status, or -1. */
static inline int status_of(struct ibv_cq *cq, struct ibv_wc *wc) {
    double end = seconds() + 10;
    int n;
    while (!(n = ibv_poll_cq(cq, 1, wc)) && seconds() < end) {}
    return n == 1 ? (int)wc->status : -1;
}

/* An open device with its objects. */
struct host {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    union ibv_gid gid;
};

/* Open the device of a socket, or that of the environment if there is none. */
static inline struct host open_host(const char *path) {
    struct host h;
    if (path) setenv("WEFT_SOCKET", path, 1);
    struct ibv_device **list = ibv_get_device_list(NULL);
    NEED(list && *list);
    NEED(h.context = ibv_open_device(*list));
    ibv_free_device_list(list);
    NEED(h.pd = ibv_alloc_pd(h.context));
    NEED(h.cq = ibv_create_cq(h.context, 256, NULL, NULL, 0));
    NEED(!ibv_query_gid(h.context, 1, 0, &h.gid));
    return h;
}

static inline struct ibv_qp *new_qp(struct host *h, struct ibv_srq *srq, struct ibv_qp_cap *cap) {
    struct ibv_qp_init_attr init = { .send_cq = h->cq, .recv_cq = h->cq, .srq = srq, .qp_type = IBV_QPT_RC,
                                     .cap = *cap };
    struct ibv_qp *qp = ibv_create_qp(h->pd, &init);
    if (qp) *cap = init.cap;
    return qp;
}

static inline void join(struct host *a, struct ibv_qp *qa, struct host *b, struct ibv_qp *qb) {
    NEED(!to_rts(qa, b->gid, qb->qp_num, 1, 2) && !to_rts(qb, a->gid, qa->qp_num, 2, 1));
}

static inline int post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, struct ibv_sge *sges, int count, void *remote,
                       uint32_t rkey, unsigned flags) {
    struct ibv_send_wr *bad = NULL, wr = { .wr_id = 7, .sg_list = sges, .num_sge = count, .opcode = opcode,
        .send_flags = flags | IBV_SEND_SIGNALED, .imm_data = 5 };
    if (opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) wr.wr.atomic.remote_addr = (uintptr_t)remote, wr.wr.atomic.rkey = rkey;
    else wr.wr.rdma.remote_addr = (uintptr_t)remote, wr.wr.rdma.rkey = rkey;
    int error = ibv_post_send(qp, &wr, &bad);
    CHECK(!error || bad == &wr, "bad_wr of %s", strerror(error));
    return error;
}
