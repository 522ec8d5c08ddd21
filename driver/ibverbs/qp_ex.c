/* Work requests built call by call: ibv_wr_start, one call for each operation and each part of it, ibv_wr_complete.
 * They are built in their slots, and the daemon sees them when they are complete. */
#include "weft.h"

static struct qp *of(struct ibv_qp_ex *ex) { return container(ex, struct qp, ex); }

static struct weft_send_slot *current(struct qp *qp) {
    return ring_slot(&qp->send, qp->send.head->prod + qp->building - 1);
}

static void fail(struct qp *qp, int error) {
    if (!qp->error) qp->error = error;
}

static void begin(struct ibv_qp_ex *ex, uint8_t opcode, uint32_t rkey, uint64_t remote_addr, __be32 imm) {
    struct qp *qp = of(ex);
    uint32_t used = qp->send.head->prod - LOAD(qp->send.head->done);
    if (used + qp->building >= qp->cap.max_send_wr) fail(qp, ENOMEM);
    else if (!may_send(qp, opcode)) fail(qp, EINVAL);
    if (qp->error) return;
    qp->building++;
    *current(qp) = (struct weft_send_slot){ .wr_id = ex->wr_id, .opcode = opcode, .rkey = rkey,
        .remote_addr = remote_addr, .imm_data = be32toh(imm),
        .flags = (uint8_t)((ex->wr_flags & ~(unsigned)IBV_SEND_INLINE) | (qp->sq_sig_all ? IBV_SEND_SIGNALED : 0)) };
}

static void atomic(struct ibv_qp_ex *ex, uint8_t opcode, uint32_t rkey, uint64_t addr, uint64_t add, uint64_t swap) {
    begin(ex, opcode, rkey, addr, 0);
    if (of(ex)->error) return;
    current(of(ex))->compare_add = add;
    current(of(ex))->swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap) {
    atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add) {
    atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr) {
    begin(ex, IBV_WR_RDMA_READ, rkey, addr, 0);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr) {
    begin(ex, IBV_WR_RDMA_WRITE, rkey, addr, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm) {
    begin(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr, imm);
}

static void wr_send(struct ibv_qp_ex *ex) { begin(ex, IBV_WR_SEND, 0, 0, 0); }

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm) { begin(ex, IBV_WR_SEND_WITH_IMM, 0, 0, imm); }

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t remote_qpn, uint32_t remote_qkey) {
    if (!of(ex)->error) put_destination(current(of(ex)), ah, remote_qpn, remote_qkey);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_sge *list) {
    struct qp *qp = of(ex);
    if (count > qp->cap.max_send_sge) fail(qp, EINVAL);
    if (qp->error) return;
    current(qp)->num_sge = (uint8_t)count;
    put_sges(current(qp) + 1, list, count);
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length) {
    struct ibv_sge sge = { .addr = addr, .length = length, .lkey = lkey };
    wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t count, const struct ibv_data_buf *list) {
    struct qp *qp = of(ex);
    uint64_t length = 0;
    for (size_t i = 0; i < count && !qp->error; i++) {
        if (length + list[i].length > qp->cap.max_inline_data) fail(qp, EINVAL);
        else if (list[i].length) memcpy((uint8_t *)(current(qp) + 1) + length, list[i].addr, list[i].length);
        length += list[i].length;
    }
    if (qp->error) return;
    current(qp)->flags |= IBV_SEND_INLINE;
    current(qp)->inline_length = (uint32_t)length;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length) {
    struct ibv_data_buf buf = { .addr = addr, .length = length };
    wr_set_inline_data_list(ex, 1, &buf);
}

static void wr_start(struct ibv_qp_ex *ex) {
    struct qp *qp = of(ex);
    pthread_mutex_lock(&qp->send_lock);
    qp->building = 0;
    qp->error = ex->qp_base.state < IBV_QPS_RTS ? EINVAL : 0;
}

static int wr_complete(struct ibv_qp_ex *ex) {
    struct qp *qp = of(ex);
    int error = qp->error;
    if (!error) STORE(qp->send.head->prod, qp->send.head->prod + qp->building);
    pthread_mutex_unlock(&qp->send_lock);
    ring_bell(context_of(ex->qp_base.context), WEFT_DOORBELL_SENDS);
    return error;
}

static void wr_abort(struct ibv_qp_ex *ex) { pthread_mutex_unlock(&of(ex)->send_lock); }

void add_builders(struct ibv_qp_ex *ex) {
    if (ex->qp_base.qp_type == IBV_QPT_UD) ex->wr_set_ud_addr = wr_set_ud_addr;
    else {
        ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
        ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
        ex->wr_rdma_read = wr_rdma_read;
        ex->wr_rdma_write = wr_rdma_write;
        ex->wr_rdma_write_imm = wr_rdma_write_imm;
    }
    ex->wr_send = wr_send;
    ex->wr_send_imm = wr_send_imm;
    ex->wr_set_inline_data = wr_set_inline_data;
    ex->wr_set_inline_data_list = wr_set_inline_data_list;
    ex->wr_set_sge = wr_set_sge;
    ex->wr_set_sge_list = wr_set_sge_list;
    ex->wr_start = wr_start;
    ex->wr_complete = wr_complete;
    ex->wr_abort = wr_abort;
}
