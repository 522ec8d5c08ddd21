/* Shared by the C programs of this folder. */
#pragma once
#include <infiniband/verbs.h>
#include <stdint.h>

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
