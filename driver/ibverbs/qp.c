/* Queue pairs: creation, states and destruction. */
#include "weft.h"

static void fill_caps(struct ibv_qp_cap *cap, const struct weft_created_qp *a) {
    *cap = (struct ibv_qp_cap){ a->max_send_wr, a->max_recv_wr, a->max_send_sge, a->max_recv_sge, a->max_inline_data };
}

/* Create a QP at the daemon, and map its rings. */
static int create(struct qp *qp, struct ibv_pd *pd, const struct ibv_qp_init_attr_ex *a) {
    struct weft_create_qp body = { .user = qp->name, .pd = pd->handle, .send_cq = a->send_cq ? a->send_cq->handle : 0,
        .recv_cq = a->recv_cq ? a->recv_cq->handle : 0, .srq = a->srq ? a->srq->handle : 0, .qp_type = a->qp_type,
        .sq_sig_all = a->sq_sig_all != 0, .max_send_wr = a->cap.max_send_wr, .max_recv_wr = a->cap.max_recv_wr,
        .max_send_sge = a->cap.max_send_sge, .max_recv_sge = a->cap.max_recv_sge,
        .max_inline_data = a->cap.max_inline_data };
    struct weft_created_qp answer;
    int files[2];
    int error = weft_call(context_of(pd->context), (struct call){ .opcode = WEFT_CREATE_QP, .body = &body,
        .size = sizeof body, .answer = &answer, .answer_size = sizeof answer, .files = files, .count = 2 });
    if (error) return error;
    error = ring_map(&qp->send, files[0], answer.send_slots, answer.send_slot_bytes);
    int second = ring_map(&qp->recv, files[1], answer.recv_slots, answer.recv_slot_bytes);
    if (error || second) {
        weft_destroy(context_of(pd->context), WEFT_KIND_QP, answer.handle);
        ring_unmap(&qp->send);
        ring_unmap(&qp->recv);
        return error ? error : second;
    }
    fill_caps(&qp->cap, &answer);
    qp->ex.qp_base.handle = answer.handle;
    qp->ex.qp_base.qp_num = answer.qp_num;
    return 0;
}

struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *a) {
    const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    const uint64_t messages = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    const uint64_t operations = a->qp_type == IBV_QPT_UD ? messages : messages | IBV_QP_EX_WITH_RDMA_WRITE
        | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    int wants = (a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
    struct qp *qp = NULL;
    int error = EINVAL;
    if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD) || !a->pd) weft_log("a QP needs a protection domain");
    else if (a->comp_mask & ~known || (wants && a->send_ops_flags & ~operations)
             || (a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && a->create_flags)) {
        weft_log("a QP has no creation flags, XRC, RSS or TSO here, nor other operations than those of RC and UD");
        error = EOPNOTSUPP;
    } else if (!(qp = calloc(1, sizeof *qp)) || !(qp->name = name_new(qp))) error = ENOMEM;
    else error = create(qp, a->pd, a);
    if (error) {
        if (qp && qp->name) name_forget(qp->name);
        free(qp);
        errno = error;
        return NULL;
    }
    struct ibv_qp *ibv = &qp->ex.qp_base;
    ibv->context = context;
    ibv->qp_context = a->qp_context;
    ibv->pd = a->pd;
    ibv->send_cq = a->send_cq;
    ibv->recv_cq = a->recv_cq;
    ibv->srq = a->srq;
    ibv->state = IBV_QPS_RESET;
    ibv->qp_type = a->qp_type;
    pthread_mutex_init(&ibv->mutex, NULL);
    pthread_cond_init(&ibv->cond, NULL);
    pthread_mutex_init(&qp->send_lock, NULL);
    pthread_mutex_init(&qp->recv_lock, NULL);
    qp->sq_sig_all = a->sq_sig_all;
    qp->extended = wants;
    if (wants) add_builders(&qp->ex);
    a->cap = qp->cap;
    return ibv;
}

PUBLIC struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    struct ibv_qp_init_attr_ex ex = { .qp_context = attr->qp_context, .send_cq = attr->send_cq,
        .recv_cq = attr->recv_cq, .srq = attr->srq, .cap = attr->cap, .qp_type = attr->qp_type,
        .sq_sig_all = attr->sq_sig_all, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd };
    struct ibv_qp *qp = create_qp_ex(pd->context, &ex);
    if (qp) attr->cap = ex.cap;
    return qp;
}

PUBLIC struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibv) {
    return qp_of(ibv)->extended ? &qp_of(ibv)->ex : NULL;
}

/* Remove the completions of a QP that is gone or in RESET. */
static void forget_completions(struct ibv_qp *ibv) {
    cq_forget(cq_of(ibv->recv_cq), ibv->qp_num);
    if (ibv->send_cq != ibv->recv_cq) cq_forget(cq_of(ibv->send_cq), ibv->qp_num);
}

PUBLIC int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *a, int mask) {
    const struct ibv_global_route *route = &a->ah_attr.grh;
    struct weft_modify_qp body = { .handle = ibv->handle, .mask = (uint32_t)mask };
    struct weft_state answer;
#define TAKE(bit, field, value) if (mask & (bit)) body.field = (value)
    TAKE(IBV_QP_STATE, qp_state, a->qp_state);
    TAKE(IBV_QP_CUR_STATE, cur_qp_state, a->cur_qp_state);
    TAKE(IBV_QP_PATH_MTU, path_mtu, a->path_mtu);
    TAKE(IBV_QP_PATH_MIG_STATE, path_mig_state, a->path_mig_state);
    TAKE(IBV_QP_QKEY, qkey, a->qkey);
    TAKE(IBV_QP_RQ_PSN, rq_psn, a->rq_psn & 0xFFFFFF);
    TAKE(IBV_QP_SQ_PSN, sq_psn, a->sq_psn & 0xFFFFFF);
    TAKE(IBV_QP_DEST_QPN, dest_qp_num, a->dest_qp_num);
    TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags, a->qp_access_flags & ~IBV_ACCESS_OPTIONAL_RANGE);
    TAKE(IBV_QP_PKEY_INDEX, pkey_index, (uint8_t)a->pkey_index);
    TAKE(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify, a->en_sqd_async_notify);
    TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic, a->max_rd_atomic);
    TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic, a->max_dest_rd_atomic);
    TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer, a->min_rnr_timer);
    TAKE(IBV_QP_PORT, port_num, a->port_num);
    TAKE(IBV_QP_TIMEOUT, timeout, a->timeout);
    TAKE(IBV_QP_RETRY_CNT, retry_cnt, a->retry_cnt);
    TAKE(IBV_QP_RNR_RETRY, rnr_retry, a->rnr_retry);
    TAKE(IBV_QP_AV, is_global, a->ah_attr.is_global);
    TAKE(IBV_QP_AV, sgid_index, route->sgid_index);
    TAKE(IBV_QP_AV, hop_limit, route->hop_limit);
    TAKE(IBV_QP_AV, traffic_class, route->traffic_class);
    TAKE(IBV_QP_AV, flow_label, route->flow_label & 0xFFFFF);
    TAKE(IBV_QP_AV, sl, a->ah_attr.sl);
    TAKE(IBV_QP_AV, ah_port_num, a->ah_attr.port_num);
#undef TAKE
    if (mask & IBV_QP_AV) memcpy(body.dgid, route->dgid.raw, sizeof body.dgid);
    int error = weft_call(context_of(ibv->context), (struct call){ .opcode = WEFT_MODIFY_QP, .body = &body,
        .size = sizeof body, .answer = &answer, .answer_size = sizeof answer });
    if (error) return error;
    ibv->state = answer.qp_state;
    if (mask & IBV_QP_MAX_QP_RD_ATOMIC) qp_of(ibv)->max_rd_atomic = a->max_rd_atomic;
    if (mask & IBV_QP_STATE && a->qp_state == IBV_QPS_RESET) {
        qp_of(ibv)->max_rd_atomic = 0;
        forget_completions(ibv);
    }
    return 0;
}

PUBLIC int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init) {
    struct qp *qp = qp_of(ibv);
    struct weft_handle body = { .handle = ibv->handle };
    struct weft_qp_attr a;
    (void)mask;
    int error = weft_call(context_of(ibv->context), (struct call){ .opcode = WEFT_QUERY_QP, .body = &body,
        .size = sizeof body, .answer = &a, .answer_size = sizeof a });
    if (error) return error;
    *attr = (struct ibv_qp_attr){
        .qp_state = a.qp_state, .cur_qp_state = a.cur_qp_state, .path_mtu = a.path_mtu,
        .path_mig_state = a.path_mig_state, .qkey = a.qkey, .rq_psn = a.rq_psn, .sq_psn = a.sq_psn,
        .dest_qp_num = a.dest_qp_num, .qp_access_flags = a.qp_access_flags, .cap = qp->cap,
        .pkey_index = a.pkey_index, .en_sqd_async_notify = a.en_sqd_async_notify, .sq_draining = a.sq_draining,
        .max_rd_atomic = a.max_rd_atomic, .max_dest_rd_atomic = a.max_dest_rd_atomic,
        .min_rnr_timer = a.min_rnr_timer, .port_num = a.port_num, .timeout = a.timeout, .retry_cnt = a.retry_cnt,
        .rnr_retry = a.rnr_retry,
        .ah_attr = { .is_global = a.is_global, .sl = a.sl, .port_num = a.ah_port_num,
                     .grh = { .sgid_index = a.sgid_index, .hop_limit = a.hop_limit, .traffic_class = a.traffic_class,
                              .flow_label = a.flow_label } } };
    memcpy(attr->ah_attr.grh.dgid.raw, a.dgid, sizeof a.dgid);
    *init = (struct ibv_qp_init_attr){ .qp_context = ibv->qp_context, .send_cq = ibv->send_cq,
        .recv_cq = ibv->recv_cq, .srq = ibv->srq, .cap = qp->cap, .qp_type = ibv->qp_type,
        .sq_sig_all = qp->sq_sig_all };
    ibv->state = a.qp_state;
    return 0;
}

PUBLIC int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags) {
    (void)qp, (void)op, (void)flags;
    return 0; /* a lost packet arrives after later ones */
}

PUBLIC int ibv_destroy_qp(struct ibv_qp *ibv) {
    struct qp *qp = qp_of(ibv);
    int error = weft_destroy(context_of(ibv->context), WEFT_KIND_QP, ibv->handle);
    if (error) return error;
    name_forget(qp->name);
    forget_completions(ibv);
    pthread_mutex_lock(&ibv->mutex);
    while (ibv->events_completed != LOAD(qp->async_events)) pthread_cond_wait(&ibv->cond, &ibv->mutex);
    pthread_mutex_unlock(&ibv->mutex);
    ring_unmap(&qp->send);
    ring_unmap(&qp->recv);
    free(qp);
    return 0;
}
