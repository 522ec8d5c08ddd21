/* Work requests: from the program's lists into slots of a ring. Invalid requests are rejected here, at once. */
#include "weft.h"

static int room(const struct ring *ring, uint32_t most) {
    return ring->head->prod - LOAD(ring->head->done) < most ? 0 : ENOMEM;
}

/* Write SGEs after the header of a slot. */
void put_sges(void *slot_end, const struct ibv_sge *from, size_t count) {
    struct weft_sge_slot *to = slot_end;
    for (size_t i = 0; i < count; i++)
        to[i] = (struct weft_sge_slot){ .addr = from[i].addr, .length = from[i].length, .lkey = from[i].lkey };
}

static int put_inline(struct qp *qp, struct weft_send_slot *slot, const struct ibv_send_wr *wr) {
    uint8_t *to = (uint8_t *)(slot + 1);
    uint64_t length = 0;
    for (int i = 0; i < wr->num_sge; i++) {
        if (length + wr->sg_list[i].length > qp->cap.max_inline_data) return EINVAL;
        if (wr->sg_list[i].length)
            memcpy(to + length, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        length += wr->sg_list[i].length;
    }
    slot->num_sge = 0;
    slot->inline_length = (uint32_t)length;
    return 0;
}

static int put_send(struct qp *qp, const struct ibv_send_wr *wr) {
    const unsigned flags = IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED | IBV_SEND_INLINE;
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->cap.max_send_sge || wr->send_flags & ~flags) return EINVAL;
    if (room(&qp->send, qp->cap.max_send_wr)) return ENOMEM;
    struct weft_send_slot *slot = ring_slot(&qp->send, qp->send.head->prod);
    *slot = (struct weft_send_slot){ .wr_id = wr->wr_id, .opcode = (uint8_t)wr->opcode,
        .flags = (uint8_t)(wr->send_flags | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0)),
        .num_sge = (uint8_t)wr->num_sge };
    switch (wr->opcode) {
    case IBV_WR_SEND_WITH_IMM:
        slot->imm_data = be32toh(wr->imm_data); /* fall through */
    case IBV_WR_SEND:
        if (qp->ex.qp_base.qp_type != IBV_QPT_UD) break;
        if (!wr->wr.ud.ah) return EINVAL;
        put_destination(slot, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
        break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
        slot->imm_data = be32toh(wr->imm_data); /* fall through */
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_READ:
        slot->remote_addr = wr->wr.rdma.remote_addr;
        slot->rkey = wr->wr.rdma.rkey;
        break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        slot->remote_addr = wr->wr.atomic.remote_addr;
        slot->rkey = wr->wr.atomic.rkey;
        slot->compare_add = wr->wr.atomic.compare_add;
        slot->swap = wr->wr.atomic.swap;
        break;
    default:
        return EOPNOTSUPP;
    }
    if (!may_send(qp, wr->opcode)) return EINVAL;
    if (wr->send_flags & IBV_SEND_INLINE) return wr->opcode >= IBV_WR_RDMA_READ ? EINVAL : put_inline(qp, slot, wr);
    put_sges(slot + 1, wr->sg_list, (size_t)wr->num_sge);
    return 0;
}

int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    struct qp *qp = qp_of(ibv);
    int error = ibv->state < IBV_QPS_RTS ? EINVAL : 0;
    pthread_mutex_lock(&qp->send_lock);
    for (; wr; wr = wr->next) {
        if (!error) error = put_send(qp, wr);
        if (error) {
            *bad = wr;
            break;
        }
        STORE(qp->send.head->prod, qp->send.head->prod + 1);
    }
    pthread_mutex_unlock(&qp->send_lock);
    ring_bell(context_of(ibv->context), WEFT_DOORBELL_SENDS);
    return error;
}

static int put_recvs(struct ring *ring, uint32_t most, uint32_t sges, struct ibv_recv_wr *wr,
                     struct ibv_recv_wr **bad) {
    for (; wr; wr = wr->next) {
        int error = wr->num_sge < 0 || (uint32_t)wr->num_sge > sges ? EINVAL : room(ring, most);
        if (error) {
            *bad = wr;
            return error;
        }
        struct weft_recv_slot *slot = ring_slot(ring, ring->head->prod);
        *slot = (struct weft_recv_slot){ .wr_id = wr->wr_id, .num_sge = (uint32_t)wr->num_sge };
        put_sges(slot + 1, wr->sg_list, (size_t)wr->num_sge);
        STORE(ring->head->prod, ring->head->prod + 1);
    }
    return 0;
}

int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct qp *qp = qp_of(ibv);
    if (ibv->state == IBV_QPS_RESET || ibv->srq) {
        *bad = wr;
        return EINVAL;
    }
    pthread_mutex_lock(&qp->recv_lock);
    int error = put_recvs(&qp->recv, qp->cap.max_recv_wr, qp->cap.max_recv_sge, wr, bad);
    pthread_mutex_unlock(&qp->recv_lock);
    ring_bell(context_of(ibv->context), WEFT_DOORBELL_RECEIVES);
    return error;
}

int post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct srq *srq = srq_of(ibv);
    pthread_mutex_lock(&srq->lock);
    int error = put_recvs(&srq->ring, srq->max_wr, srq->max_sge, wr, bad);
    pthread_mutex_unlock(&srq->lock);
    ring_bell(context_of(ibv->context), WEFT_DOORBELL_RECEIVES);
    return error;
}
