/* Shared by the C programs of this folder: an open device with its objects, connected QPs, and completions. */
#pragma once
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NEED(condition) do { if (!(condition)) { \
    printf("line %d: %s fails: %s\n", __LINE__, #condition, strerror(errno)); fflush(stdout); exit(2); } } while (0)

/* Bring a QP from RESET to RTS; return 0, or the error of ibv_modify_qp. */
static int to_rts(struct ibv_qp *qp, union ibv_gid peer, uint32_t qp_num, uint32_t own_psn, uint32_t peer_psn) {
    struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
    struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp_num,
        .rq_psn = peer_psn, .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = peer, .hop_limit = 1 } } };
    struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .sq_psn = own_psn, .timeout = 12, .retry_cnt = 3,
        .rnr_retry = 7, .max_rd_atomic = 4 };
    int error = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (!error) error = ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN
                                                    | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (!error) error = ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT
                                                    | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
    return error;
}

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
